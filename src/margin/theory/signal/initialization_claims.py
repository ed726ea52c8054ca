"""What an initialization keeps: the variance of each weight times its fan-in, the mean square of a signal.

LeCun, Bottou, Orr and Müller (1998) ask for n Var W = 1, He, Zhang, Ren and Sun (2015) for 2 before ReLU,
Glorot and Bengio (2010) for 2 n / (n + m), between the 1 of the signal and that of its gradient.
"""

import copy
import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.engine.evaluation import eval_mode
from margin.nn.initialization import affine_weights, initialize
from margin.nn.preprocessed import Preprocessed
from margin.theory.prediction.held_out import stated
from margin.theory.signal.sizes import looked_at

DRAWS = (200, 600)
"""Networks that are drawn from each scheme, at least and at most: small ones cost little and scatter more."""

NUMBERS = 5_000_000
"""Weights that are drawn from each scheme, about."""

EXAMPLES = 128
"""Inputs that each of them is shown."""

TOLERANCE = 0.1
"""Width at which a mean over draws is told from what is promised, in its unit."""

FAMILIES = {"He": "he_normal", "LeCun": "lecun_normal", "Glorot": "glorot_normal", "orthogonal": "orthogonal"}


class Gain(NamedTuple):
    """The variance gain of one affine map.

    Args:
        name: Its name in the model.
        fan_in: n.
        fan_out: m.
        value: n times the mean square of its weights: the mean square of an output for inputs that are
            uncorrelated, each of mean square 1.
        stderr: The value's standard error, were the weights independent draws from one law.
    """

    name: str
    fan_in: int
    fan_out: int
    value: float
    stderr: float


def has_affine_maps(subject: Subject) -> bool:
    """Whether the model has an affine map."""
    return bool(affine_weights(subject.model))


@torch.no_grad()
def variance_gains(model: nn.Module) -> list[Gain]:
    r"""The gain :math:`n \, \overline{w^2}` of every affine map, in the order of the model.

    Args:
        model: Any module.

    Reference:
        LeCun, Bottou, Orr and Müller 1998, Section 4.6; He, Zhang, Ren and Sun 2015, Equation 10.
    """
    gains = []
    with eval_mode(model):  # a spectral norm that trains writes its vectors when the weight is read
        for found in affine_weights(model):
            squares = found.weight.double().square().flatten()
            n, m = found.fans
            spread = float(squares.std()) / math.sqrt(len(squares)) if len(squares) > 1 else math.inf
            gains.append(Gain(found.name.removeprefix("model."), n, m, n * float(squares.mean()), n * spread))
    return gains


def variance(subject: Subject) -> Finding:
    """The gain n Var W of each affine map, of the weights that training began with where they are known.

    Nothing is promised, for a model does not say by which scheme it was drawn; what each scheme promises
    stands beside.

    Args:
        subject: A model with affine maps.
    """
    known = subject.initial is not None
    gains = variance_gains(subject.model if subject.initial is None else subject.initial)
    value, stderr = (torch.tensor([g[i] for g in gains], dtype=torch.float64) for i in (3, 4))
    glorot = torch.tensor([2 * g.fan_in / (g.fan_in + g.fan_out) for g in gains], dtype=torch.float64)
    curves = {"map": torch.arange(1.0, len(gains) + 1), "at the beginning" if known else "now": value}
    if known:
        curves["now"] = torch.tensor([g.value for g in variance_gains(subject.model)], dtype=torch.float64)
    curves |= {"LeCun: 1": torch.ones_like(value), "He: 2": torch.full_like(value, 2.0), "Glorot": glorot}
    curves["torch's default: 1/3"] = torch.full_like(value, 1 / 3)
    bad = [g.name for g in gains if not math.isfinite(g.value)]
    begun = (
        "when training began" if known else "as it is (the weights that training began with are not known)"
    )
    return Finding(
        statement=f"The fan-in n times the mean square of the weights of each affine map, {begun}. A signal "
        "keeps its mean square through linear maps at 1 (LeCun), through maps with ReLU at 2 (He); Glorot's "
        f"2 n / (n + m) is {_span(glorot)} here; torch's default for linear maps and convolutions gives 1/3.",
        value=value,
        unit="1",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=stderr,
        labels=tuple(f"{g.name} (n = {g.fan_in:,})" for g in gains),
        failure=f"the weights of {', '.join(bad)} are not finite" if bad else "",
        premises=(
            Premise(
                "the weights of a map are independent draws from one law of mean 0",
                "assumed",
                "the errors are those of such draws; training makes weights depend on each other",
            ),
        ),
        reference="LeCun, Bottou, Orr and Müller 1998, Section 4.6; Glorot and Bengio 2010, Equation 12; "
        "He, Zhang, Ren and Sun 2015, Equation 10",
        curves=curves if len(gains) > 1 else {},
    )


def _span(values: Tensor) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g} to {high:.3g}"


PLAIN = (nn.Flatten, nn.Identity, nn.Dropout, nn.ReLU, nn.Linear)
"""What a chain may consist of; the mean square of a signal is known behind each."""


def relu_chain(subject: Subject) -> tuple[nn.Sequential, Tensor] | None:
    """The hidden part of a model that is a chain of linear maps and ReLUs, and what enters it, else None.

    A copy with fresh weights, for which nothing is 0 or no number, is asked for some held-out examples
    while its submodules are watched; that these, one after the other, give its answer shows that nothing
    happens between them.

    Args:
        subject: Any model.
    """
    model = copy.deepcopy(subject.model)
    core = model.model if isinstance(model, Preprocessed) else model
    leaves = [module for module in core.modules() if not list(module.children())]
    if not all(isinstance(module, PLAIN) for module in leaves) or not affine_weights(core):
        return None
    device = next(core.parameters()).device
    initialize(core, "he_normal", generator=Generator(device=device).manual_seed(0))
    calls: list[tuple[nn.Module, Tensor]] = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((module, inputs[0]))

    handles = [module.register_forward_hook(watch) for module in leaves]
    with torch.no_grad(), eval_mode(model):
        outputs = model(*looked_at(subject, EXAMPLES)[0].inputs)
        for handle in handles:
            handle.remove()
        hidden = _hidden_part([module for module, _ in calls])
        if hidden is None or not isinstance(outputs, Tensor) or not _joined(calls):
            return None
        again = nn.Sequential(*(module for module, _ in calls)).eval()(calls[0][1])
    if again.shape != outputs.shape and again.flatten().shape != outputs.shape:
        return None
    same = torch.allclose(again.flatten().to(outputs), outputs.flatten(), rtol=1e-5, atol=0, equal_nan=True)
    first = next(x for module, x in calls if isinstance(module, nn.Linear))
    return (hidden.eval(), first[:EXAMPLES]) if same else None


def _joined(calls: list[tuple[nn.Module, Tensor]]) -> bool:
    """Whether each map could take what the one before it gives: not where outputs are joined."""
    widths = [(m.in_features, m.out_features) for m, _ in calls if isinstance(m, nn.Linear)]
    return all(out == into for (_, out), (into, _) in pairwise(widths))


def _hidden_part(modules: list[nn.Module]) -> nn.Sequential | None:
    """From the first linear map to the last ReLU, where maps and ReLUs alternate and no map is used twice."""
    kinds = "".join({nn.Linear: "w", nn.ReLU: "r"}.get(type(module), "") for module in modules)
    linear = [i for i, module in enumerate(modules) if isinstance(module, nn.Linear)]
    if len(linear) < 2 or kinds != "wr" * (len(linear) - 1) + "w":
        return None
    hidden = nn.Sequential(*modules[linear[0] : linear[-1]])
    return hidden if len(affine_weights(hidden)) == len(linear) - 1 else None


def is_relu_chain(subject: Subject) -> bool:
    """Whether the model is a chain of linear maps with ReLUs between them."""
    return len(subject.test) > 0 and relu_chain(subject) is not None


@torch.no_grad()
def mean_square_ratios(net: nn.Module, x: Tensor, scheme: str, draws: int, generator: Generator) -> Tensor:
    """The mean square of what leaves a net over that of what enters it, for each of several draws.

    Args:
        net: A module with affine maps; it is drawn anew.
        x: Inputs, over which both mean squares are taken.
        scheme: One of ``margin.nn.initialization.SCHEMES``.
        draws: Their number.
        generator: What is drawn from.
    """
    ratios = []
    for _ in range(draws):
        initialize(net, scheme, generator=generator)
        ratios.append(net(x).double().square().mean() / x.double().square().mean())
    return torch.stack(ratios)


def promised_gain(net: nn.Module, family: str) -> float:
    r"""The expected ratio of mean squares through a chain of linear maps, each followed by ReLU.

    .. math:: E \frac{\overline{h_L^2}}{\overline{h_0^2}} = \prod_l \frac{n_l \operatorname{Var} W_l}2

    It is exact at every width: given h, the entries of W h have a symmetric law and the second moment
    Var W |h|^2, and ReLU keeps half of it. An orthogonal matrix has Var W = 1 / max(n, m).

    Args:
        net: The chain.
        family: He, LeCun, Glorot or orthogonal.

    Reference:
        He, Zhang, Ren and Sun 2015, Equation 9.
    """
    gain = 1.0
    for found in affine_weights(net):
        n, m = found.fans
        variances = {"He": 2 / n, "LeCun": 1 / n, "Glorot": 2 / (n + m), "orthogonal": 1 / max(n, m)}
        gain *= n * variances[family] / 2
    return gain


def mean_square(subject: Subject) -> Finding:
    """Whether the mean square of the signal behind the last ReLU is, over fresh draws, what theory says.

    Each of the four schemes draws the model's chain of maps many times; the mean over draws stands relative
    to what is promised for its widths and depth.

    Args:
        subject: A chain of linear maps and ReLUs.

    Raises:
        ValueError: The model is no such chain.
    """
    if (found := relu_chain(subject)) is None:
        raise ValueError("the model must be a chain of linear maps with ReLUs between them")
    net, x = found
    generator = Generator(device=x.device).manual_seed(0)
    weights = sum(found.weight.numel() for found in affine_weights(net))
    draws = min(max(NUMBERS // weights, DRAWS[0]), DRAWS[1])
    means, errors, promises = [], [], []
    for family, scheme in FAMILIES.items():
        promised = promised_gain(net, family)
        ratios = mean_square_ratios(net, x, scheme, draws, generator) / promised
        promises.append(promised)
        means.append(ratios.mean())
        errors.append(ratios.std() / math.sqrt(draws))
    value = torch.stack(means).cpu()
    depth = len(affine_weights(net))
    return Finding(
        statement=f"The mean square behind the last of {depth} ReLUs over that of the input, mean of {draws} "
        "fresh draws of the weights, relative to what the scheme promises.",
        value=value,
        unit="of the promise",
        range=(0.0, math.inf),
        kind="estimate",
        stderr=torch.stack(errors).cpu(),
        low=torch.ones_like(value),
        high=torch.ones_like(value),
        tolerance=TOLERANCE,
        labels=tuple(f"{family} ({p:.3g})" for family, p in zip(FAMILIES, promises, strict=True)),
        failure=""
        if bool(value.isfinite().all())
        else "a mean square is not finite, or the inputs are all 0",
        premises=(
            Premise(
                "the model is a chain of linear maps, each but the last followed by ReLU",
                "proved",
                "each submodule took what the one before it gave",
            ),
        ),
        reference="He, Zhang, Ren and Sun 2015, Equations 9 and 10; Glorot and Bengio 2010, Equation 12",
    )


def demo() -> Subject:
    """A chain of three maps and two ReLUs, drawn by He's scheme."""
    g = Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).double()
    initialize(net, "he_normal", generator=g)
    x = torch.randn(32, 20, generator=g, dtype=torch.float64)
    subject = stated(x, torch.zeros(32).long(), task=CLASSES)
    return Subject(model=net, test=subject.test, task=subject.task, objective=subject.objective)
