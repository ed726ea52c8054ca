"""The linear recurrent unit (Orvieto et al. 2023): stability, variance, the ring of its initialization.

How many steps its last state holds (Orvieto et al. 2024): a signal read back from it, with what error.
"""

import copy
import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.nn.scan import scan
from margin.sequence.linear.lru import LRU, capacity, classifier, memory, normalization, reconstructed
from margin.sequence.recurrent.captured import example

FAILURE = 1e-4
"""Probability with which draws of the law of the ring are further from it than is promised."""

ERROR = 0.05
"""Half-width that the interval of a mean square is to have, relative."""

WORK = 20_000_000
"""States that are computed to measure a layer's variance, at most, about."""

STEPS = (64, 2048)
"""Steps for which white input is given, at least and at most."""

SEQUENCES = 64
"""Sequences of white input that are given at once."""

NEAR, EXACT = 0.1, 1e-6
"""How far from 1 the mean ratio of sampled input may be, and the computed ratio of a unit."""


def layers(subject: Subject) -> dict[str, LRU]:
    """The linear recurrent units of a model, by name."""
    named = subject.model.named_modules()
    return {name.removeprefix("model."): module for name, module in named if isinstance(module, LRU)}


def has_lru(subject: Subject) -> bool:
    """Whether the model has a linear recurrent unit."""
    return bool(layers(subject))


def least_nu(dtype: torch.dtype) -> float:
    """The nu down to which exp(-e^nu) is below 1 in floating point: -16 in float32, -37 in float64.

    There e^nu is 2 units of rounding below 1 in float32, and rounds to 1 only at -17.3.
    """
    return float(math.floor(math.log(torch.finfo(dtype).eps)))


def away_from_rounding(found: dict[str, LRU]) -> Premise:
    """Whether no modulus rounds to 1: every nu at least :func:`least_nu`; else the layer is named."""
    least = {name: float(layer.nu.detach().min()) for name, layer in found.items()}
    low = [
        f"{name} (nu = {least[name]:.3f})"
        for name, layer in found.items()
        if least[name] < least_nu(layer.nu.dtype)
    ]
    floor = max(least_nu(layer.nu.dtype) for layer in found.values())
    return Premise(
        f"every nu is at least {floor:g}, so that no modulus rounds to 1",
        "refuted" if low else "proved",
        f"below it: {', '.join(low)}" if low else f"the least is {min(least.values()):.3f}",
    )


def not_finite(found: dict[str, LRU]) -> str:
    """Why a layer cannot be judged: its parameters are not finite; "" where they are."""
    bad = [
        name for name, layer in found.items() if not all(bool(p.isfinite().all()) for p in layer.parameters())
    ]
    return f"the parameters of {', '.join(bad)} are not finite" if bad else ""


@torch.no_grad()
def stability(subject: Subject) -> Finding:
    """Whether every eigenvalue's modulus is below 1, of the numbers that the layer multiplies its state by.

    Args:
        subject: A model with linear recurrent units.
    """
    found = layers(subject)
    longest = max(float((1 / layer.nu.double().exp()).max()) for layer in found.values())
    return Finding(
        statement="Every eigenvalue lies inside the unit circle, whatever was learned: the largest modulus "
        f"of each layer. The longest memory is {longest:,.0f} steps to 1/e.",
        value=torch.stack([layer.eigenvalues.to(torch.complex128).abs().max() for layer in found.values()]),
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=2.0**-51,  # of the sum value + rounding of the value, in float64
        labels=tuple(found),
        premises=(away_from_rounding(found),),
        failure=not_finite(found),
    )


@torch.no_grad()
def white_response(layer: LRU, generator: Generator) -> tuple[Tensor, int]:
    r"""The mean over units of |zeta_i|^2 / E|zeta_i|^2 after white input, for each of many sequences.

    Units of B_i = 0 hear nothing and are left out; of a layer of no others the ratios are 1.

    Args:
        layer: The layer; it is asked as it is, in its own type.
        generator: Where the inputs are drawn from.

    Returns:
        The ratio of each sequence, and the number T of steps.
    """
    steps = steps_of(layer)
    expected = mean_squares(layer, steps)
    hear = expected > 0
    if not bool(hear.any()) and bool(expected.isfinite().all()):
        return torch.ones(SEQUENCES, dtype=torch.float64, device=expected.device), steps
    work, ratios = steps * len(layer.nu), torch.empty(0, dtype=torch.float64, device=expected.device)
    while len(ratios) < SEQUENCES or (wide(ratios) and len(ratios) * work < WORK):
        zeta = white_state(layer, steps, generator).to(torch.complex128)
        ratios = torch.cat((ratios, (zeta.abs().square() / expected)[:, hear].mean(1)))
    return ratios, steps


def steps_of(layer: LRU) -> int:
    """Steps after which the state is stationary to 1 percent, within :data:`STEPS`."""
    decay = layer.nu.detach().double().exp()  # -log |lambda|
    return int(min(max(math.log(100) / (2 * float(decay.min())), STEPS[0]), STEPS[1]))


def mean_squares(layer: LRU, steps: int) -> Float[Tensor, " units"]:
    r"""What white input of variance 1 is to leave of each state after T steps, in the mean of its square.

    .. math:: E|\zeta_{i,T}|^2 = \|B_i\|^2 (1 - |\lambda_i|^{2T}) \to \|B_i\|^2

    Args:
        layer: The layer.
        steps: T.
    """
    decay = layer.nu.detach().double().exp()
    return layer.B.detach().double().square().sum((1, 2)) * -torch.expm1(-2 * steps * decay)


@torch.no_grad()
def worst_state(layer: LRU, steps: int) -> float:
    r"""Of the ratios to :func:`mean_squares` the one furthest from 1, of the states that impulses leave.

    White input leaves a linear state the mean square that is the sum of the squares of what impulses leave,
    over their times t and over the numbers j of the input,

    .. math:: E|\zeta_{i,T}|^2 = \sum_{t=1}^T \sum_j |\lambda_i^{T-t} \gamma_i B_{ij}|^2

    so that no sampling is needed. A unit that is to stay at 0 and does has the ratio 1; one that does not,
    the largest number.

    Args:
        layer: The layer; a copy of it in float64 is asked, by its own drive, eigenvalues and scan.
        steps: T.
    """
    double = copy.deepcopy(layer).double()
    inputs = torch.eye(double.input_size, dtype=torch.float64, device=double.d.device)
    impulse = torch.zeros(1, steps, len(double.nu), dtype=torch.complex128, device=double.d.device)
    impulse[:, 0] = 1
    kept = scan(double.eigenvalues, impulse)[0].abs().square().sum(0)
    found, expected = double.driven(inputs).abs().square().sum(0) * kept, mean_squares(double, steps)
    largest = torch.full_like(found, torch.finfo(torch.float64).max)
    ratios = torch.where(expected == 0, largest.where(found > 0, 1.0), found / expected)
    return float(ratios[(ratios - 1).abs().argmax()])


def wide(ratios: Tensor) -> bool:
    """Whether the interval of their mean is wider than it is to be."""
    return not 4 * float(ratios.std()) <= ERROR * math.sqrt(len(ratios))


def white_state(layer: LRU, steps: int, generator: Generator) -> Tensor:
    """The states that :data:`SEQUENCES` sequences of white input leave, a piece of time after the other."""
    zeta = layer.initial(layer.d.new_empty(SEQUENCES, 0))[0]
    for start in range(0, steps, STEPS[0]):
        shape = (SEQUENCES, min(STEPS[0], steps - start), layer.input_size)
        x = torch.randn(shape, generator=generator, dtype=layer.d.dtype).to(layer.d.device)
        zeta = scan(layer.eigenvalues, layer.driven(x), zeta)[:, -1]
    return zeta


def variance(subject: Subject) -> Finding:
    """Whether white input of variance 1 leaves each state with the mean square ||B_i||^2.

    Two numbers a layer: the ratio in the mean over its units, of sampled input, which is to be 1 to a tenth;
    and that of its worst state, which is computed.

    Args:
        subject: A model with linear recurrent units.
    """
    found, failure = layers(subject), not_finite(layers(subject))
    premise = away_from_rounding(found)
    ratios, steps = [torch.full((2,), math.nan, dtype=torch.float64)] * len(found), [0]
    worst = [math.nan] * len(found)
    if not failure and premise.status == "proved":
        generator = Generator().manual_seed(0)
        answered = [white_response(layer, generator) for layer in found.values()]
        ratios, steps = [ratio.cpu() for ratio, _ in answered], [count for _, count in answered]
        worst = [worst_state(layer, count) for layer, count in zip(found.values(), steps, strict=True)]
    sizes = [float(layer.B.detach().square().sum((1, 2)).mean()) for layer in found.values()]
    values = [(float(ratio.mean()), unit) for ratio, unit in zip(ratios, worst, strict=True)]
    errors = [(float(ratio.std()) / math.sqrt(len(ratio)), 0.0) for ratio in ratios]
    allowed = torch.tensor([NEAR - EXACT, 0.0], dtype=torch.float64).repeat(len(found))
    return Finding(
        statement=f"After {' and '.join(f'{n:,}' for n in sorted(set(steps)))} steps of white input of "
        "variance 1, the mean square of state i is ||B_i||^2 (1 - |lambda_i|^(2 T)): their ratio, averaged "
        f"over the states of each layer (to {NEAR:g}, sampled) and of its worst state (by impulses). "
        f"||B_i||^2 is {', '.join(f'{size:.3g}' for size in sizes)} in the mean (1 at the beginning).",
        value=torch.tensor(values, dtype=torch.float64).flatten(),
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.tensor(errors, dtype=torch.float64).flatten(),
        low=1 - allowed,
        high=1 + allowed,
        tolerance=EXACT,
        labels=tuple(f"{name}, {which}" for name in found for which in ("mean", "worst state")),
        premises=(premise,),
        failure=failure,
    )


def distance_to_uniform(u: Tensor) -> float:
    """The Kolmogorov-Smirnov distance sup |F_n - F| of numbers from the uniform law on [0, 1].

    Reference: Massart 1990, Corollary 1 (its law).
    """
    x = u.double().clamp(0, 1).sort().values  # the law's own distribution function: 0 below, 1 above
    steps = torch.arange(1, len(x) + 1, dtype=torch.float64, device=x.device) / len(x)
    return float(torch.maximum(steps - x, x - steps + 1 / len(x)).max())


@torch.no_grad()
def ring(subject: Subject) -> Finding:
    r"""Whether the eigenvalues began uniform in the area of their ring: |lambda|^2 and the phase uniform.

    By Massart's inequality n draws are further than :math:`\sqrt{\log(2 / \delta) / 2n}` from their law with
    probability at most delta. A radius that were itself uniform in [0, 1] has a square 1/4 from uniform.

    Args:
        subject: A model with linear recurrent units whose beginning is known.
    """
    if subject.initial is None:
        raise ValueError("the law of the beginning needs the weights that the training began with")
    began = [m for m in subject.initial.modules() if isinstance(m, LRU)]
    radii, phases = [], []
    for layer in began:
        r_min, r_max, max_phase = layer.ring
        square = torch.exp(-2 * layer.nu.double().exp())
        radii.append((square - r_min**2) / (r_max**2 - r_min**2))
        phases.append(layer.phi.double() / max_phase)
    u, v = torch.cat(radii), torch.cat(phases)
    high = math.sqrt(math.log(2 / FAILURE) / (2 * len(u)))
    value = torch.tensor([distance_to_uniform(u), distance_to_uniform(v)], dtype=torch.float64)
    finite = bool(u.isfinite().all()) and bool(v.isfinite().all())
    return Finding(
        statement=f"The {len(u)} eigenvalues began evenly in the area of their ring: how far the square of "
        "the modulus, and the phase, are from the uniform law (Kolmogorov-Smirnov). Draws of that law are "
        f"further than {high:.3f} with probability at most {FAILURE:g}; a law nearer than that is "
        "not told from it.",
        value=value if finite else torch.full_like(value, math.nan),
        range=(0.0, 1.0),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.tensor(high, dtype=torch.float64),
        scope="probability",
        labels=("modulus squared", "phase"),
        failure="" if finite else "the eigenvalues that training began with are not finite",
    )


def demo() -> Subject:
    """Two layers of 64 linear recurrent units, as they begin."""
    subject = example(
        lambda: classifier(2, 3, width=16, states=64, r_min=0.5, r_max=0.95), (6, 5, 2), classes=3
    )
    return replace(subject, initial=subject.model)


LONGEST = 128
"""Steps that are read back, at most."""

EPS = torch.finfo(torch.float64).eps


class Readback(NamedTuple):
    """A signal read back from one layer's state.

    Args:
        error: ||x^ - x|| / ||x||.
        steps: T.
        condition: Of the map from signal to state.
        by_time: The condition for 1 .. T steps.
    """

    error: float
    steps: int
    condition: float
    by_time: Tensor


@torch.no_grad()
def readback(layer: LRU, longest: int, generator: Generator) -> Readback:
    """Give a layer in float64 a scalar signal along the input that it receives best, and read it back.

    Args:
        layer: The layer; a copy of it is asked.
        longest: Steps at most; no more than its states can hold are given.
        generator: Where the signal is drawn from.
    """
    wide = copy.deepcopy(layer).double()
    B = torch.view_as_complex((normalization(wide.nu)[:, None, None] * wide.B).movedim(1, 2).contiguous())
    pairs = torch.cat((B.real, B.imag))
    direction = torch.linalg.svd(pairs, full_matrices=False).Vh[0]
    received, values = (B @ direction.to(B.dtype))[:, None], wide.eigenvalues
    steps = min(longest, capacity(len(values), 1))
    signal = torch.randn(steps, generator=generator, dtype=torch.float64).to(values.device)
    _, (zeta,) = wide((signal[:, None] * direction)[None])
    found = reconstructed(zeta[0], values, received, steps)
    by_time = [torch.linalg.svdvals(memory(values, received, t)) for t in range(1, steps + 1)]
    error = float((found.x[:, 0] - signal).norm() / signal.norm())
    return Readback(error, steps, found.condition, torch.stack([s[0] / s[-1] for s in by_time]))


def longest_sequence(subject: Subject) -> int:
    """Steps of the longest held-out sequence, at most :data:`LONGEST`."""
    return max(1, min(LONGEST, max((batch.inputs[0].shape[1] for batch in subject.test), default=1)))


def reading(subject: Subject) -> Finding:
    """Whether a signal is read back from a layer's last state within condition times rounding.

    The signal is one number a step, along the direction of the layer's input that it receives best, as long
    as the held-out sequences or as the states hold, 2 m. What is read back exactly, a perceptron behind it
    can compute with: that the layer and a perceptron are universal rests on it. The condition says to how
    many digits the perceptron must read the state.

    Args:
        subject: A model with linear recurrent units.
    """
    found, failure = layers(subject), not_finite(layers(subject))
    generator, longest = Generator().manual_seed(0), longest_sequence(subject)
    lost = Readback(math.nan, 0, math.nan, torch.full((1,), torch.nan).double())
    answers = [lost if failure else readback(layer, longest, generator) for layer in found.values()]
    bounds = [answer.steps * answer.condition * EPS for answer in answers]
    # of a bound of 1 and more nothing is left: the matrix is singular to rounding
    high = torch.tensor([bound if bound < 1 else math.inf for bound in bounds], dtype=torch.float64)
    conditions = ", ".join(f"{answer.condition:.1e}" for answer in answers)
    clear = ", ".join(str(int((answer.by_time < 1 / EPS**0.5).sum())) for answer in answers)
    return Finding(
        statement=f"A signal of {answers[0].steps} steps is read back from the last state of each layer with "
        f"a relative error of at most T cond eps; the conditions are {conditions}. Half of the digits of "
        f"float64 remain up to {clear} steps.",
        value=torch.tensor([answer.error for answer in answers], dtype=torch.float64),
        range=(0.0, math.inf),
        low=torch.zeros_like(high),
        high=high,
        tolerance=16 * EPS,
        labels=tuple(found),
        reference="Orvieto, De, Gulcehre, Pascanu and Smith 2024, Section 3; Higham 2002, Theorem 20.1",
        failure=failure,
        curves={"steps": torch.arange(1.0, answers[0].steps + 1)}
        | {f"condition: {name}": answer.by_time for name, answer in zip(found, answers, strict=True)},
    )


def reading_demo() -> Subject:
    """Two layers of 16 linear recurrent units near the unit circle, and sequences of 12 steps."""
    return example(lambda: classifier(2, 3, width=4, states=16), (6, 12, 2), classes=3)
