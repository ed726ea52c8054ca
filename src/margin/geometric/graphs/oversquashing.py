r"""Oversquashing: how little of a distant node's features reaches another (Topping et al. 2022, Lemma 1).

.. math:: \left\lVert \frac{\partial x_i^{(k)}}{\partial x_j} \right\rVert_2
    \le \Bigl( \prod_{l=1}^{k} \alpha_l \lVert W_l \rVert_2 \Bigr) (\hat A^k)_{ij}

for layers :math:`x^{(l)} = \sigma_l(\hat A x^{(l-1)} W_l + b_l)` whose activation is
:math:`\alpha_l`-Lipschitz.
The entry of the power counts the ways from j to i; where they are few among many, the product is small.

How much of a distant node reaches another, against what the graph lets through (Topping et al. 2022).
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.claims import convolutions, matrix_of, small_gcn
from margin.geometric.graphs.gcn import GCNLayer
from margin.geometric.graphs.layers import CapturedLayers, LayerCall, captured_layers, probed, steps_of
from margin.geometric.graphs.message_passing import steps_to

Features = Float[Tensor, "nodes features"]


def reach(matrix: Tensor, node: int, layers: int) -> Float[Tensor, " nodes"]:
    """Row i of A^k: how much weight the ways of k steps to node i give to each node.

    Args:
        matrix: A (M, M), sparse.
        node: i.
        layers: k, at least 0.
    """
    back, row = matrix.t(), _unit(matrix, node)
    for _ in range(layers):
        row = back @ row
    return row[:, 0]


def _unit(matrix: Tensor, node: int) -> Float[Tensor, "nodes 1"]:
    unit = torch.zeros(matrix.shape[0], 1, dtype=matrix.dtype, device=matrix.device)
    unit[node] = 1.0
    return unit


def bound(matrices: Sequence[Tensor], norms: Sequence[float], node: int) -> Float[Tensor, " nodes"]:
    """The bound of |d x_i / d x_j|_2 for every j, of layers that couple nodes by their own matrices.

    Args:
        matrices: A_l (M, M) of each layer, the first layer's first; entries of any sign: magnitudes count.
        norms: alpha_l |W_l|_2 of each layer.
        node: i.
    """
    if len(matrices) != len(norms) or not len(matrices):
        raise ValueError(f"each layer has a matrix and a norm: got {len(matrices)} and {len(norms)}")
    row = _unit(matrices[0], node)
    for matrix, norm in zip(reversed(matrices), reversed(norms), strict=True):
        row = norm * (matrix.abs().t() @ row)
    return row[:, 0]


def jacobian_norms(
    f: Callable[[Features], Tensor], x: Features, node: int, near: Int[Tensor, " near"] | None = None
) -> Float[Tensor, " near"]:
    """The spectral norm of d f(x)_i / d x_j for every node j, by one backward pass an output.

    Args:
        f: Features of nodes to features of nodes.
        x: Where it is differentiated.
        node: i.
        near: The nodes j that are asked for; None: all.
    """
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        outputs = f(x)[node]
        rows = []
        for k, output in enumerate(outputs):
            (gradient,) = torch.autograd.grad(output, x, retain_graph=k + 1 < len(outputs))
            rows.append(gradient if near is None else gradient[near])
    return torch.linalg.matrix_norm(torch.stack(rows, 1), ord=2)


NODES = 4
"""Nodes whose derivatives are taken: a backward pass for each of them and each number that it is given."""

ROUNDING = 1e-9
"""In float64, in parts of what is compared."""

ACTIVATIONS = {
    "the identity": lambda z: z,
    "ReLU": torch.relu,
    "tanh": torch.tanh,
    "ELU": F.elu,
    "the sigmoid": torch.sigmoid,
    "leaky ReLU of slope 0.01": F.leaky_relu,
    "leaky ReLU of slope 0.2": lambda z: F.leaky_relu(z, 0.2),
}
"""Activations of Lipschitz constant at most 1 that a network's layers are compared with."""


def near(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape differ by rounding alone."""
    if one.shape != other.shape:
        return False
    return bool(((one - other).abs() <= ROUNDING * max(1.0, float(other.abs().max()))).all())


def is_convolution(call: LayerCall, matrix: Tensor) -> Premise:
    """The premise that a layer is A_hat X W^T + b: compared on the features that it was given."""
    text = f"{call.name} is a graph convolution"
    if not isinstance(call.layer, GCNLayer):
        return Premise(text, "refuted", f"{call.name} is a {type(call.layer).__name__}")
    expected = matrix @ (call.x @ call.layer.linear.weight.detach().T) + call.layer.bias.detach()
    if near(call.gave.detach(), expected):
        return Premise(text, "sampled", "it gives A_hat X W^T + b of the held-out graph")
    return Premise(text, "refuted", f"{call.name} does not give A_hat X W^T + b of the held-out graph")


def activates(before: LayerCall, after: LayerCall) -> Premise:
    """The premise that a layer reads what the one before it gave through a 1-Lipschitz activation."""
    text = f"{after.name} reads a 1-Lipschitz activation of what {before.name} gives"
    gave = before.gave.detach()
    found = next((name for name, act in ACTIVATIONS.items() if near(after.x, act(gave))), "")
    if found:
        return Premise(text, "sampled", f"on the held-out graph it is {found}")
    return Premise(
        text, "refuted", f"what {after.name} reads is no known activation of what {before.name} gives"
    )


def measured(found: CapturedLayers, node: int) -> Tensor:
    """The spectral norm of the derivative of a node's last row by every row that the first layer read."""
    first, last = found.calls[0].given[0], found.calls[-1].gave
    rows = [
        torch.autograd.grad(output, first, retain_graph=True, materialize_grads=True)[0]
        for output in last[node]
    ]
    stacked = torch.stack(rows, 1)
    norms, finite = stacked.flatten(1).norm(dim=1), stacked.flatten(1).isfinite().all(1)
    touched = finite & (norms > 0)
    norms[touched] = torch.linalg.matrix_norm(stacked[touched], ord=2)
    return norms


def jacobian(subject: Subject) -> Finding:
    """The derivative of a node's last row by another's first, for each distance, against the layers' bound.

    Of the pairs that are so far apart the one is shown that comes nearest to its bound; of a model that is no
    chain of graph convolutions the one of the largest derivative, without a bound.

    Args:
        subject: A model of graphs with layers that pass messages.
    """
    found = captured_layers(subject)
    chain = len(convolutions(found)) == len(found.calls)
    premises = _premises(found) if chain else ()
    nodes = probed(len(found.inputs[0]), NODES)
    steps = steps_to(torch.tensor(nodes, dtype=torch.int64), found.inputs[1], len(found.inputs[0]))
    derivative = torch.stack([measured(found, node) for node in nodes]).cpu()
    bounds = _bounds(found, nodes).cpu() if chain else torch.full_like(derivative, math.inf)
    closeness = torch.where(bounds > 0, derivative / bounds, derivative) if chain else derivative
    value, high, shown = [], [], []
    for distance in range(sum(map(steps_of, found.calls)) + 1):
        at = steps == distance
        if bool(at.any()):
            place = torch.where(at, closeness, -1.0).argmax()  # a NaN comes first
            value.append(derivative.flatten()[place])
            high.append(bounds.flatten()[place])
            shown.append(distance)
    finite = bool(derivative.isfinite().all())
    against = (
        "is at most the product of the layers' norms and the ways that lead there" if chain else "is shown"
    )
    return Finding(
        statement=f"How strongly the last of {len(found.calls)} layers depends on what the first read of "
        f"a node so many edges away {against}.",
        value=torch.stack(value),
        unit="output per input",
        range=(0.0, math.inf),
        high=torch.stack(high) * (1 + ROUNDING) if chain else None,
        labels=tuple(f"{k} steps" for k in shown),
        failure="" if finite else "a derivative is not finite",
        premises=premises,
        curves={"steps": torch.tensor(shown).double(), "derivative": torch.stack(value)}
        | ({"bound": torch.stack(high)} if chain else {}),
    )


def _premises(found: CapturedLayers) -> tuple[Premise, ...]:
    layers = convolutions(found)
    own = [is_convolution(call, matrix_of(layer, found)) for call, layer in layers]
    between = [activates(one, two) for (one, _), (two, _) in pairwise(layers)]
    return (*own, *between)


def _bounds(found: CapturedLayers, nodes: list[int]) -> Tensor:
    layers = [layer for _, layer in convolutions(found)]
    matrices = [matrix_of(layer, found) for layer in layers]
    weights = [layer.linear.weight.detach() for layer in layers]
    norms = [
        float(torch.linalg.matrix_norm(weight, ord=2)) if bool(weight.isfinite().all()) else math.nan
        for weight in weights
    ]
    return torch.stack([bound(matrices, norms, node) for node in nodes])


def demo() -> Subject:
    """Three layers of graph convolution on a ring beside a path."""
    return small_gcn(layers=3)
