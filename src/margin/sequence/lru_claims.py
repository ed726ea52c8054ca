"""What the linear recurrent unit promises (Orvieto et al. 2023): stability, variance, a ring to begin on."""

import math

import torch
from torch import Generator, Tensor

from margin.engine.descent import risk
from margin.findings import Finding, Premise, Subject
from margin.sequence.lru import LRU, classifier
from margin.sequence.scan import scan
from margin.tasks import CLASSES
from margin.types import Batch

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
    """Whether every eigenvalue's modulus exp(-e^nu) is below 1, as the layer computes it.

    Args:
        subject: A model with linear recurrent units.
    """
    found = layers(subject)
    longest = max(float((1 / layer.nu.double().exp()).max()) for layer in found.values())
    return Finding(
        statement="Every eigenvalue lies inside the unit circle, whatever was learned: the largest modulus "
        f"of each layer. The longest memory is {longest:,.0f} steps to 1/e.",
        value=torch.stack([torch.exp(-layer.nu.exp()).max().double() for layer in found.values()]),
        unit="1",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=2.0**-51,  # of the sum value + rounding of the value, in float64
        labels=tuple(found),
        premises=(away_from_rounding(found),),
        reference="Orvieto et al. 2023, Section 3.3",
        failure=not_finite(found),
    )


@torch.no_grad()
def white_response(layer: LRU, generator: Generator) -> tuple[Tensor, int]:
    r"""The mean over units of |zeta_i|^2 / E|zeta_i|^2 after white input, for each of many sequences.

    .. math:: E|\zeta_{i,T}|^2 = \|B_i\|^2 (1 - |\lambda_i|^{2T}) \to \|B_i\|^2

    Args:
        layer: The layer; it is asked as it is, in its own type.
        generator: Where the inputs are drawn from.

    Returns:
        The ratio of each sequence, and the number T of steps.
    """
    decay = layer.nu.double().exp()  # -log |lambda|
    steps = int(min(max(math.log(100) / (2 * float(decay.min())), STEPS[0]), STEPS[1]))
    expected = layer.B.double().square().sum((1, 2)) * -torch.expm1(-2 * steps * decay)
    work, ratios = steps * len(layer.nu), torch.empty(0, dtype=torch.float64, device=decay.device)
    while len(ratios) < SEQUENCES or (wide(ratios) and len(ratios) * work < WORK):
        zeta = white_state(layer, steps, generator).to(torch.complex128)
        ratios = torch.cat((ratios, (zeta.abs().square() / expected).mean(1)))
    return ratios, steps


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

    Args:
        subject: A model with linear recurrent units.
    """
    found, failure = layers(subject), not_finite(layers(subject))
    premise = away_from_rounding(found)
    ratios, steps = [torch.full((2,), math.nan, dtype=torch.float64)] * len(found), [0]
    if not failure and premise.status == "proved":
        generator = Generator().manual_seed(0)
        answered = [white_response(layer, generator) for layer in found.values()]
        ratios, steps = [ratio for ratio, _ in answered], [count for _, count in answered]
    sizes = [float(layer.B.detach().square().sum((1, 2)).mean()) for layer in found.values()]
    return Finding(
        statement=f"After {' and '.join(f'{n:,}' for n in sorted(set(steps)))} steps of white input of "
        "variance 1, the mean square of state i is ||B_i||^2 (1 - |lambda_i|^(2 T)): their ratio, averaged "
        f"over the states of each layer. ||B_i||^2 is {', '.join(f'{size:.3g}' for size in sizes)} in the "
        "mean (1 at the beginning).",
        value=torch.stack([ratio.mean() for ratio in ratios]),
        unit="1",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack([ratio.std() / math.sqrt(len(ratio)) for ratio in ratios]),
        low=torch.ones((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=0.1,
        labels=tuple(found),
        premises=(premise,),
        reference="Orvieto et al. 2023, Section 3.4",
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
        unit="1",
        range=(0.0, 1.0),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.tensor(high, dtype=torch.float64),
        scope="probability",
        labels=("modulus squared", "phase"),
        premises=(),
        reference="Orvieto et al. 2023, Lemma 3.2; Massart 1990, Corollary 1",
        failure="" if finite else "the eigenvalues that training began with are not finite",
    )


def demo() -> Subject:
    """Two layers of 64 linear recurrent units, as they begin."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 3, width=16, states=64, r_min=0.5, r_max=0.95)
        batch = Batch((torch.randn(6, 5, 2),), torch.arange(6) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), initial=model)
