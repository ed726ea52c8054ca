r"""Wide random networks: how lengths, angles and gradients pass from layer to layer (Poole et al. 2016).

With weights drawn independently with mean 0 and variance :math:`\sigma_w^2 / n` and biases of variance
:math:`\sigma_b^2`, the pre-activations of an infinitely wide layer are Gaussian. Their variance q obeys the
length map; :math:`\chi_1` is the factor by which a small difference of inputs, and a squared gradient, grows
in a layer (Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017). Everything is computed in float64.

The theory speaks of weights as they are drawn: where those that training began with are known, it is
asked of them, and the trained ones are shown beside.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.theory.signal.chain import Call, NotAChainError, Stage, chain_in, watched
from margin.theory.signal.propagation import Signal, looked_at, signal
from margin.theory.signal.symmetry import POINTWISE

Activation = Callable[[Tensor], Tensor]
Numbers = Float[Tensor, "*batch"]

REACH = 10.0
"""Standard deviations to which a Gaussian is integrated: beyond lies 1.5e-23."""

LARGEST = 1e12
"""A length that grows beyond it has no fixed point."""


@cache
def _nodes(panels: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a mean over a standard Gaussian, on equal panels that meet at 0."""
    points, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(16))
    width = 2 * REACH / panels
    starts = -REACH + width * torch.arange(panels, dtype=torch.float64)
    z = (starts[:, None] + width * (points + 1) / 2).flatten()
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    return z, weights.repeat(panels) * width / 2 * density


def gaussian_mean(g: Activation, q: Numbers, *, panels: int = 64) -> Numbers:
    r"""The mean of g(u) for u Gaussian of mean 0 and variance q.

    By the Gauss-Legendre rule on panels that meet at 0, where activations bend. The Gauss-Hermite rule is as
    good where g is smooth and slow where it is steep: its error for tanh at q = 100 is 1e-4 with 256 nodes.

    Args:
        g: Elementwise.
        q: Variances, at least 0.
        panels: Into how many parts 20 standard deviations are cut; even.
    """
    z, weights = _nodes(panels)
    q = torch.as_tensor(q, dtype=torch.float64)
    return (g(q[..., None].sqrt() * z) * weights).sum(-1)


def slope_of(phi: Activation) -> Activation:
    """The derivative of an elementwise function, by automatic differentiation."""

    def slope(u: Tensor) -> Tensor:
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            (found,) = torch.autograd.grad(phi(u).sum(), u)
        return found

    return slope


def next_length(phi: Activation, q: Numbers, sigma_w: float, sigma_b: float) -> Numbers:
    r"""The variance of the next layer's pre-activations.

    .. math:: q^{l+1} = \sigma_w^2\, \mathbb{E}[\varphi(\sqrt{q^l} z)^2] + \sigma_b^2

    Args:
        phi: The activation, elementwise.
        q: Variances of this layer's pre-activations.
        sigma_w: Root of width times the variance of a weight, at least 0.
        sigma_b: Standard deviation of a bias, at least 0.

    Raises:
        ValueError: A standard deviation is negative or not finite.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 3.
    """
    for name, value in (("sigma_w", sigma_w), ("sigma_b", sigma_b)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0: got {value}")
    return sigma_w**2 * gaussian_mean(lambda u: phi(u).square(), q) + sigma_b**2


def fixed_length(phi: Activation, sigma_w: float, sigma_b: float) -> float:
    r"""The length :math:`q^*` to which the length map leads from q = 1; infinite where lengths explode.

    Args:
        phi: The activation, elementwise.
        sigma_w: Root of width times the variance of a weight.
        sigma_b: Standard deviation of a bias.

    Raises:
        ValueError: Every length is kept, as by ReLU with sigma_w^2 = 2 and sigma_b = 0 (He et al. 2015).

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Section 3.
    """
    from scipy.optimize import brentq

    def change(q: float) -> float:
        return float(next_length(phi, torch.tensor(q, dtype=torch.float64), sigma_w, sigma_b)) - q

    if abs(change(1.0)) <= 1e-12 and abs(change(4.0)) <= 4e-12:
        raise ValueError("every length is kept: the length map has no fixed point of its own")
    # From 1 the map moves monotonically to the first fixed point on its way.
    q, up = 1.0, change(1.0) > 0
    while (change(q) > 0) == up:
        if not 1 / LARGEST < q < LARGEST:
            return math.inf if up else 0.0
        q = 2 * q if up else q / 2
    return float(brentq(change, *sorted((q, q / 2 if up else 2 * q)), xtol=1e-15, rtol=1e-14))


def chi(phi: Activation, q: Numbers, sigma_w: float) -> Numbers:
    r"""The factor by which a small squared difference, and a squared gradient, grows in a layer.

    .. math:: \chi_1 = \sigma_w^2\, \mathbb{E}[\varphi'(\sqrt{q} z)^2]

    Below 1 differences vanish and gradients vanish; above 1 both explode; at 1 lies the critical line.

    Args:
        phi: The activation, elementwise; where it bends its slope is torch's.
        q: Variances of the pre-activations.
        sigma_w: Root of width times the variance of a weight.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 6; Schoenholz, Gilmer, Ganguli
    and Sohl-Dickstein 2017, Section 4 (gradients).
    """
    slope = slope_of(phi)
    return sigma_w**2 * gaussian_mean(lambda u: slope(u).square(), q)


def depth_scale(factor: Numbers) -> Numbers:
    r"""The number of layers in which what is multiplied by :math:`\chi` in each shrinks or grows e-fold.

    .. math:: \xi = |1 / \log \chi|

    For :math:`\chi_1 < 1` it is the depth scale of correlations and, for either sign, that of gradients.

    Args:
        factor: Above 0; at 1 the scale is infinite.

    Raises:
        ValueError: A factor is not above 0.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Sections 3 and 4.
    """
    factor = torch.as_tensor(factor, dtype=torch.float64)
    if not bool((factor > 0).all()):
        raise ValueError(f"a factor must be above 0: got {float(factor.min()):g}")
    return 1 / factor.log().abs()


def critical_point(phi: Activation, q: Numbers) -> tuple[Numbers, Numbers]:
    r"""The point :math:`(\sigma_w, \sigma_b)` of the critical line at which the fixed length is q.

    .. math:: \sigma_w^2 = 1 / \mathbb{E}[\varphi'(\sqrt{q} z)^2], \qquad
        \sigma_b^2 = q - \sigma_w^2\, \mathbb{E}[\varphi(\sqrt{q} z)^2]

    Args:
        phi: The activation, elementwise.
        q: The fixed length, above 0: as it grows one moves along the line.

    Returns:
        Both standard deviations; NaN for sigma_b where no bias gives this length.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3.
    """
    q = torch.as_tensor(q, dtype=torch.float64)
    variance = 1 / chi(phi, q, 1.0)
    rest = q - variance * gaussian_mean(lambda u: phi(u).square(), q)
    # What rounding leaves of a difference that is 0, as for ReLU, is no missing bias.
    rest = torch.where(rest.abs() <= 1e-12 * q, 0.0, rest)
    return variance.sqrt(), rest.sqrt()


def pair_mean(g: Activation, q: Numbers, c: Numbers, *, panels: int = 32) -> Numbers:
    r"""The mean of g(u) g(v) for u, v Gaussian of mean 0, variance q and correlation c.

    Args:
        g: Elementwise.
        q: Variances.
        c: Correlations, in [-1, 1], of the shape of q.
        panels: As in :func:`gaussian_mean`.

    Raises:
        ValueError: A correlation is out of range.
    """
    q, c = torch.as_tensor(q, dtype=torch.float64), torch.as_tensor(c, dtype=torch.float64)
    if not bool((c.abs() <= 1).all()):
        raise ValueError("a correlation must lie in [-1, 1]")
    z, weights = _nodes(panels)
    root, c = q[..., None].sqrt(), c[..., None, None]
    u = root * z
    v = root[..., None] * (c * z[:, None] + (1 - c.square()).sqrt() * z)
    return ((g(v) * weights).sum(-1) * g(u) * weights).sum(-1)


def next_correlation(phi: Activation, c: Numbers, q: Numbers, sigma_w: float, sigma_b: float) -> Numbers:
    r"""The correlation of two inputs' pre-activations in the next layer, at a fixed length q.

    .. math:: c^{l+1} = \frac{\sigma_w^2\, \mathbb{E}[\varphi(u) \varphi(v)] + \sigma_b^2}{q}

    It keeps c = 1, where its slope is :math:`\chi_1`.

    Args:
        phi: The activation, elementwise.
        c: Correlations, in [-1, 1].
        q: The fixed length.
        sigma_w: Root of width times the variance of a weight.
        sigma_b: Standard deviation of a bias.

    Reference: Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli 2016, Equation 5.
    """
    return (sigma_w**2 * pair_mean(phi, q, c) + sigma_b**2) / torch.as_tensor(q, dtype=torch.float64)


def correlation_slope(phi: Activation, c: Numbers, q: Numbers, sigma_w: float) -> Numbers:
    r"""The slope of the correlation map, :math:`\sigma_w^2\, \mathbb{E}[\varphi'(u) \varphi'(v)]`.

    At the fixed correlation it is the factor by which a distance from it shrinks: :func:`depth_scale` of it
    is the depth to which two inputs can be told apart, :math:`\xi_c`.

    Reference: Schoenholz, Gilmer, Ganguli and Sohl-Dickstein 2017, Section 3.
    """
    return sigma_w**2 * pair_mean(slope_of(phi), q, c)


EXAMPLES = 256
CLOSE = 0.1
"""Share within which a network of finite width is said to follow the limit."""

OFF = 6.0
"""Standard errors by which the mean weight of a layer may differ from 0."""

PASSING: tuple[type[nn.Module], ...] = (nn.Dropout, nn.Flatten)


class Predicted(NamedTuple):
    """Of each hidden layer and example: the predicted length of pre-activations, and the factor chi."""

    lengths: Float[Tensor, "hidden examples"]
    factors: Float[Tensor, "hidden examples"]


def is_random_net(subject: Subject) -> bool:
    """Whether the model is a chain of two Linear layers or more with pointwise activations, on rows."""
    if not len(subject.test):
        return False
    try:
        stages = chain_in(subject)
    except NotAChainError:
        return False
    return len(stages) > 1 and all(
        isinstance(stage.layer, nn.Linear)
        and len(stage.given) == 2
        and all(type(module) in POINTWISE or type(module) in PASSING for _, module in stage.after)
        for stage in stages
    )


def deviations(layer: nn.Linear | nn.Conv2d) -> tuple[float, float]:
    r"""The layer's :math:`\sigma_w = \sqrt{n\, \overline{w^2}}`, n its inputs, and :math:`\sigma_b`."""
    weight, bias = layer.weight.detach().double(), layer.bias
    sigma_w = math.sqrt(weight.shape[1] * float(weight.square().mean()))
    return sigma_w, 0.0 if bias is None else math.sqrt(float(bias.detach().double().square().mean()))


def predict(stages: Sequence[Stage], first: Float[Tensor, " examples"]) -> Predicted:
    """The length map and the factors chi along a network, from its weights' second moments alone.

    Args:
        stages: The layers, in evaluation mode.
        first: The mean square of each example's inputs to the first layer.
    """
    lengths, factors = [], []
    sigma_w, sigma_b = deviations(stages[0].layer)
    q = sigma_w**2 * first + sigma_b**2
    for before, stage in pairwise(stages):
        lengths.append(q)
        sigma_w, sigma_b = deviations(stage.layer)
        if not math.isfinite(sigma_w + sigma_b):
            sigma_w = sigma_b = 0.0
            q = q * math.nan  # nothing is known from here on
        phi = _between(before)
        factors.append(chi(phi, q, sigma_w))
        q = next_length(phi, q, sigma_w, sigma_b)
    return Predicted(torch.stack(lengths), torch.stack(factors))


def _between(stage: Stage) -> Activation:
    layers = [module for _, module in stage.after if type(module) not in PASSING]

    def phi(u: Tensor) -> Tensor:
        for layer in layers:
            u = layer(u.clone() if getattr(layer, "inplace", False) else u)
        return u

    return phi


def lengths(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    r"""The mean square of each hidden layer's pre-activations, in units of what the length map predicts.

    Prediction: :math:`q^1 = \sigma_w^2 |x|^2 / n + \sigma_b^2`, then the map, example by example, with the
    :math:`\sigma` that each layer's weights have.

    Args:
        subject: A chain of Linear layers with pointwise activations.
        examples: Held-out examples at most, drawn at random.
    """
    model, whose = _drawn(subject)
    stages, found, first, runs = _measured(model, subject, examples)
    predicted = predict(stages, first).lengths
    measured = torch.stack([level.activation for level in found.levels.values()])[:-1]
    weight = found.weight / found.weight.sum()
    q, q_hat = measured @ weight, predicted @ weight
    curves = {"depth": torch.arange(1, len(q) + 1).double(), "predicted": q_hat, "measured": q}
    if model is not subject.model:
        after = _measured(subject.model, subject, examples)[1]
        curves["after training"] = torch.stack([e.activation for e in after.levels.values()])[:-1] @ weight
    return Finding(
        statement=f"The mean square of hidden pre-activations of {whose}, in units of the mean-field "
        f"prediction for infinite width, over {len(first):,} held-out examples; the least hidden width is "
        f"{min(stage.units for stage in stages[:-1]):,}.",
        value=q / q_hat,
        unit="predicted",
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=CLOSE,
        scope="limit",
        labels=tuple(found.levels)[:-1],
        failure=_runs(runs) or _failure(q, q_hat),
        premises=(_independent(stages, drawn=model is not subject.model),),
        curves=curves,
    )


def gradient_growth(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    r"""The mean square of gradients in hidden pre-activations, in units of what is predicted from the last.

    Prediction, back from the gradient in the last layer's output: a layer of :math:`n_l` units before one of
    :math:`n_{l+1}` has :math:`\chi_1(q^l)\, n_{l+1} / n_l` times its mean square.

    Args:
        subject: A chain of Linear layers with pointwise activations, and an objective.
        examples: Held-out examples at most, drawn at random.
    """
    model, whose = _drawn(subject)
    stages, found, first, runs = _measured(model, subject, examples)
    predicted = predict(stages, first)
    measured = _come_back([level.gradient for level in found.levels.values()])
    widths = [stage.units for stage in stages]
    g = [measured[-1]]
    for i in reversed(range(len(stages) - 1)):
        g.insert(0, g[0] * predicted.factors[i] * widths[i + 1] / widths[i])
    weight = found.weight / found.weight.sum()
    grown, grown_hat = measured @ weight, torch.stack(g) @ weight
    factors = ", ".join(f"{float(each @ weight):.3g}" for each in predicted.factors[:8])
    return Finding(
        statement=f"The mean square of the loss gradient in hidden pre-activations of {whose}, in "
        f"units of the mean-field prediction from the last layer; chi_1 layer by layer: {factors}"
        f"{', ...' if len(predicted.factors) > 8 else ''}.",
        value=(grown / grown_hat)[:-1],
        unit="predicted",
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=CLOSE,
        scope="limit",
        labels=tuple(found.levels)[:-1],
        failure=_runs(runs) or _failure(grown, grown_hat),
        premises=(
            _independent(stages, drawn=model is not subject.model),
            Premise(
                "weights on the way back are independent of those on the way forward",
                "assumed",
                "they are the same weights; the theory takes them for independent",
            ),
        ),
        curves={
            "depth": torch.arange(1, len(grown) + 1).double(),
            "predicted": grown_hat,
            "measured": grown,
        },
    )


def _drawn(subject: Subject) -> tuple[nn.Module, str]:
    if subject.initial is not None:
        return subject.initial, "the network that training began with"
    return subject.model, "the network as it stands"


def _measured(
    model: nn.Module, subject: Subject, examples: int
) -> tuple[tuple[Stage, ...], Signal, Float[Tensor, " examples"], int]:
    """The layers of a chain, the signal at each, the mean square of what the first takes, the runs of it."""
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    stages = chain_in(subject, model)
    few = looked_at(subject, subject.at_most(examples) or examples)
    taken: list[Tensor] = []

    def seen(call: Call) -> None:
        if call.module is stages[0].layer:
            taken.append(call.given.detach().double().square().mean(1).cpu())

    with torch.no_grad(), eval_mode(model), watched(model, seen):
        for batch in few:
            model(*batch.inputs)
    found = signal(model, few, subject.objective)
    runs = len(found.levels) // len(stages)
    # a layer's own name where the model is that layer; of several runs the first
    levels = {stage.name: level for stage, level in zip(stages, found.levels.values(), strict=False)}
    return stages, found._replace(levels=levels), torch.cat(taken), runs


def _come_back(gradients: list[Tensor]) -> Tensor:
    measured = torch.stack(gradients)
    if not bool(measured.any()):
        raise NotAsked("no gradient comes back into the model: there are no ratios of gradients")
    return measured


def _runs(runs: int) -> str:
    return "" if runs == 1 else f"the objective must run the model once: it ran it {runs} times"


def _failure(measured: Tensor, predicted: Tensor) -> str:
    if not bool((measured.isfinite() & predicted.isfinite()).all()):
        return "a length or a gradient is not finite"
    return "" if bool((predicted > 0).all()) else "a prediction is 0: nothing passes"


def _independent(stages: Sequence[Stage], *, drawn: bool) -> Premise:
    text = "weights and biases are independent draws of mean 0"
    worst, where = 0.0, ""
    for stage in stages:
        weight = stage.layer.weight.detach().double()
        error = float(weight.std()) / math.sqrt(weight.numel()) if weight.numel() > 1 else math.inf
        off = abs(float(weight.mean())) / error if error > 0 else math.inf
        if off >= worst:
            worst, where = off, stage.name
    evidence = f"the mean weight of layer {where!r} lies {worst:.2g} standard errors from 0, no other further"
    if not drawn:
        return Premise(text, "assumed", f"{evidence}; training makes weights depend on the data")
    return Premise(text, "sampled" if worst <= OFF else "refuted", evidence)


def demo() -> Subject:
    """A tanh network of five layers, 400 units wide, with sigma_w = 1.5 and sigma_b = 0.3, as it is drawn."""
    generator = Generator().manual_seed(2016)
    widths, layers = (20, 400, 400, 400, 400, 5), []
    for taken, given in pairwise(widths):
        layer = nn.Linear(taken, given)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(given, taken, generator=generator) * 1.5 / math.sqrt(taken))
            layer.bias.copy_(torch.randn(given, generator=generator) * 0.3)
        layers += [layer, nn.Tanh()]
    x = torch.randn(64, 20, generator=generator)
    return Subject(
        model=nn.Sequential(*layers[:-1]),
        test=[Batch((x,), torch.arange(64) % 5)],
        task=CLASSES,
        objective=risk(CLASSES),
    )
