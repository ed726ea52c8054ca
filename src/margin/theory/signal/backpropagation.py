r"""Backpropagation written out: deltas through a chain of layers, and per-unit formulas of an MLP.

Rumelhart, Hinton and Williams (1986). A delta is the gradient of the loss in a layer's output:
:math:`\delta_{l-1} = J_l^\top \delta_l`. Automatic differentiation computes the same; here it is the check.

On a subject's own network a layer whose backward pass was replaced (a gradient that is clipped,
masked or passed straight through) would show here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import capture, copied, eval_mode, weighted_mean
from margin.engine.loop import risk
from margin.theory.signal.chain import NotAChainError, Stage, chain_in
from margin.theory.signal.propagation import looked_at

Slope = Callable[[Any, Tensor], Tensor]


def _gelu_slope(module: nn.GELU, z: Tensor) -> Tensor:
    if module.approximate == "none":
        density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
        return (1 + torch.erf(z / math.sqrt(2))) / 2 + z * density
    scale = math.sqrt(2 / math.pi)
    t = torch.tanh(scale * (z + 0.044715 * z**3))
    return (1 + t) / 2 + z / 2 * (1 - t.square()) * scale * (1 + 3 * 0.044715 * z.square())


SLOPES: Mapping[type[nn.Module], Slope] = {
    nn.Identity: lambda module, z: torch.ones_like(z),
    nn.ReLU: lambda module, z: (z > 0).to(z),
    nn.LeakyReLU: lambda module, z: torch.where(z > 0, torch.ones_like(z), module.negative_slope),
    nn.Tanh: lambda module, z: 1 / z.cosh().square(),
    nn.Sigmoid: lambda module, z: z.sigmoid() * (-z).sigmoid(),
    nn.GELU: _gelu_slope,
    nn.SiLU: lambda module, z: z.sigmoid() * (1 + z * (-z).sigmoid()),
    nn.ELU: lambda module, z: torch.where(z > 0, 1.0, module.alpha * z.clamp_max(0).exp()).to(z),
    nn.Softplus: lambda module, z: torch.where(
        module.beta * z > module.threshold, 1.0, (module.beta * z).sigmoid()
    ).to(z),
    nn.Softsign: lambda module, z: 1 / (1 + z.abs()).square(),
}
"""The derivative of each pointwise activation in closed form; relu'(0) = 0, as in torch."""

RESHAPING = (nn.Flatten, nn.Dropout)
"""Layers that move numbers only, in evaluation mode."""


class Deltas(NamedTuple):
    """Of a chain h_l = F_l(h_{l-1}): the deltas dloss/dh_l, l = 0 .. L, and the gradients of each layer."""

    deltas: list[Tensor]
    gradients: list[dict[str, Tensor]]


def pull_back(layers: Sequence[nn.Module], x: Tensor, upstream: Callable[[Tensor], Tensor]) -> Deltas:
    r"""Deltas and gradients of a chain of any layers, one product with a transposed Jacobian a layer.

    .. math:: \delta_{l-1} = J_l^\top \delta_l, \qquad \frac{\partial \ell}{\partial \theta_l} =
        \Big(\frac{\partial h_l}{\partial \theta_l}\Big)^\top \delta_l

    Each layer is run once forward and once back: the cost is linear in depth. It gives the gradient of one
    function at one point, not "any function".

    Args:
        layers: F_1 .. F_L, each from one tensor to one, deterministic; at least one.
        x: h_0.
        upstream: ``h_L -> dloss/dh_L``, of the shape of h_L.

    Raises:
        ValueError: There is no layer, or dloss/dh_L has another shape than h_L.

    Reference: Rumelhart, Hinton and Williams 1986, Equations 4-7; Griewank and Walther 2008, Section 3.2.
    """
    if not len(layers):
        raise ValueError("a chain must have a layer: got none")
    h, pulls = x, []
    for layer in layers:
        parameters = {name: p.detach() for name, p in layer.named_parameters()}

        def run(parameters: dict[str, Tensor], h: Tensor, layer: nn.Module = layer) -> Tensor:
            output: Tensor = torch.func.functional_call(layer, parameters, (h,))
            return output

        found = torch.func.vjp(run, parameters, h)
        h = found[0]
        pulls.append(found[1])
    delta = upstream(h)
    if delta.shape != h.shape:
        raise ValueError(f"dloss/dh_L must have the shape of h_L {tuple(h.shape)}: got {tuple(delta.shape)}")
    deltas, all_gradients = [delta], []
    for pull in reversed(pulls):
        gradients, delta = pull(delta)
        all_gradients.append(gradients)
        deltas.append(delta)
    return Deltas(deltas[::-1], all_gradients[::-1])


class Unrolled(NamedTuple):
    """Of an MLP: the gradients of each affine layer (as if all had biases), and their terms' moduli."""

    weights: list[Tensor]
    biases: list[Tensor]
    weight_sizes: list[Tensor]
    bias_sizes: list[Tensor]


def unit_gradients(
    layers: Sequence[nn.Module], x: Float[Tensor, " batch *shape"], upstream: Float[Tensor, " batch *outputs"]
) -> Unrolled:
    r"""The gradients of an MLP by the formulas of a unit, without automatic differentiation.

    .. math:: \frac{\partial \ell}{\partial w^l_{ij}} = \delta^l_i \varphi'(z^l_i) x^{l-1}_j, \quad
        \frac{\partial \ell}{\partial b^l_i} = \delta^l_i \varphi'(z^l_i), \quad
        \delta^{l-1}_j = \sum_i \delta^l_i \varphi'(z^l_i) w^l_{ij}

    with :math:`\delta^l = \partial \ell / \partial x^l`, in the activation and not in z: the slope stands in
    each formula once. The same recursion over moduli, :math:`|\delta|\,|\varphi'|\,|x|`, gives the size of
    the terms that are summed, in whose units rounding is measured.

    Args:
        layers: Linear layers, activations of :data:`SLOPES`, Flatten, Dropout (as in evaluation), in order.
        x: Inputs, a row an example.
        upstream: dloss/dx^L.

    Raises:
        ValueError: A layer is of another kind.

    Reference: Rumelhart, Hinton and Williams 1986, Equations 4-7.
    """
    points = [x]
    for layer in layers:
        points.append(_forward(layer, points[-1]))
    delta, size = upstream.reshape(points[-1].shape), upstream.abs().reshape(points[-1].shape)
    found = Unrolled([], [], [], [])
    for layer, z in zip(reversed(layers), reversed(points[:-1]), strict=True):
        if type(layer) is nn.Linear:
            flat, rows = (t.reshape(-1, t.shape[-1]) for t in (delta, z))
            sizes = size.reshape(-1, size.shape[-1])
            found.weights.insert(0, flat.mT @ rows)
            found.biases.insert(0, flat.sum(0))
            found.weight_sizes.insert(0, sizes.mT @ rows.abs())
            found.bias_sizes.insert(0, sizes.sum(0))
            delta, size = delta @ layer.weight, size @ layer.weight.abs()
        elif type(layer) in SLOPES:
            slope = SLOPES[type(layer)](layer, z)
            delta, size = delta * slope, size * slope.abs()
        else:
            delta, size = delta.reshape(z.shape), size.reshape(z.shape)
    return found


def _forward(layer: nn.Module, x: Tensor) -> Tensor:
    if type(layer) is nn.Linear:
        return F.linear(x, layer.weight, layer.bias)
    if type(layer) is nn.Dropout:
        return x
    if type(layer) in SLOPES or type(layer) in RESHAPING:
        output: Tensor = layer(x.clone())  # an activation may work in place
        return output
    known: tuple[type[nn.Module], ...] = (nn.Linear, *SLOPES, *RESHAPING)
    kinds = ", ".join(kind.__name__ for kind in known)
    raise ValueError(f"a layer must be one of {kinds}: got {type(layer).__name__}")


ROUNDING = 1e-10
"""In float64, relative to the sum of the moduli of the terms."""

EXAMPLES = 512


class Compared(NamedTuple):
    """A layer's relative difference of recursion and autograd, and the size of its gradient."""

    difference: float
    scale: float


def is_affine_chain(subject: Subject) -> bool:
    """Whether the model is a chain of Linear layers and pointwise activations whose slope is known."""
    if not len(subject.test):
        return False
    try:
        stages = chain_in(subject)
    except NotAChainError:
        return False
    return all(type(stage.layer) is nn.Linear and _known(stage) for stage in stages)


def _known(stage: Stage) -> bool:
    return all(type(module) in SLOPES or type(module) in RESHAPING for _, module in stage.after)


def recursion(subject: Subject, *, examples: int = EXAMPLES) -> Finding:
    """The gradient of the mean loss by the formulas of a unit, against autograd; computed in float64.

    Args:
        subject: A chain of Linear layers and pointwise activations, with an objective that runs it once.
        examples: Examples at most, drawn at random.

    Raises:
        ValueError: ``examples`` is below 1.
    """
    if examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    stages = chain_in(subject)
    model = copied(subject.model).double()
    batch = looked_at(subject, examples)[0]  # of several batches the first is enough
    batch = batch.to(dtype=torch.float64, device=batch.inputs[0].device)
    compared, failure = _compare(model, stages, batch, subject)
    return Finding(
        statement="The gradient of each layer by the recursion of the deltas is that of automatic "
        f"differentiation; the loss is the mean over {len(batch.inputs[0]):,} examples, differences are "
        "relative to the sum of the moduli of the terms.",
        value=torch.tensor([each.difference for each in compared], dtype=torch.float64),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(stage.name for stage in stages),
        failure=failure,
    )


def names_of(stage: Stage) -> tuple[str, ...]:
    """The names of a stage's layers in order; one that serves twice is named twice."""
    return (stage.name, *(name for name, _ in stage.after))


def _compare(
    model: nn.Module, stages: tuple[Stage, ...], batch: Batch, subject: Subject
) -> tuple[list[Compared], str]:
    """Both gradients of each stage on a copy of the model in float64, which is left to be thrown away."""
    layers = [model.get_submodule(name) for stage in stages for name in names_of(stage)]
    affine = [layer for layer in layers if type(layer) is nn.Linear]
    with eval_mode(model) as generator, torch.enable_grad():
        model.requires_grad_(True)
        with capture((layers[0], layers[-1])) as calls:
            loss = weighted_mean(subject.objective(model, batch, generator), batch.weight)
        entered = [call.args[0] for call in calls if call.module is layers[0]]
        answered = [call.output for call in calls if call.module is layers[-1]]
        nothing = [Compared(math.nan, math.nan)] * len(stages)
        if len(entered) != 1:
            return nothing, f"the objective must run the model once: it ran it {len(entered)} times"
        wanted = [p for layer in affine for p in layer.parameters()]
        upstream, *automatic = torch.autograd.grad(loss, [answered[-1], *wanted], materialize_grads=True)
    with torch.no_grad():
        found = unit_gradients(layers, entered[0].detach(), upstream)
    compared = _differences(found, affine, automatic)
    sizes = [each.scale for each in compared]
    if not all(math.isfinite(each) for each in (*sizes, loss.item())):
        return compared, "the loss or a gradient is not finite"
    return compared, "" if any(sizes) else "the gradient of the loss in the outputs is 0: nothing to compare"


def _differences(found: Unrolled, affine: list[nn.Linear], automatic: list[Tensor]) -> list[Compared]:
    compared, rest = [], iter(automatic)  # max() of torch, unlike Python's, passes over no NaN
    for i, layer in enumerate(affine):
        pairs = [(next(rest), found.weights[i], found.weight_sizes[i])]
        if layer.bias is not None:
            pairs.append((next(rest), found.biases[i], found.bias_sizes[i]))
        differences = [
            _relative(float((auto - own).abs().max()), float(sizes.max())) for auto, own, sizes in pairs
        ]
        compared.append(
            Compared(float(torch.tensor(differences).max()), max(float(sizes.max()) for *_, sizes in pairs))
        )
    return compared


def _relative(gap: float, size: float) -> float:
    """A difference in units of the terms' size; NaN stays NaN, and terms that are all 0 leave no room."""
    if size == 0:
        return 0.0 if gap == 0 else math.inf
    return gap / size


def demo() -> Subject:
    """A network of three affine layers, tanh and ReLU, of fixed weights on twelve points of three classes."""
    generator = Generator().manual_seed(1986)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return Subject(
        model=model, test=[Batch((x,), torch.arange(12) % 3)], task=CLASSES, objective=risk(CLASSES)
    )
