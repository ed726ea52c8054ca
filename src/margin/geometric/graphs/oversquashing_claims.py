"""How much of a distant node reaches another, against what the graph lets through (Topping et al. 2022)."""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.coupling_claims import convolutions, matrix_of, small_gcn
from margin.geometric.graphs.gcn import GCNLayer
from margin.geometric.graphs.hops import steps_to
from margin.geometric.graphs.layers import Heard, Listened, listened, probed, steps_of
from margin.geometric.graphs.oversquashing import bound

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


def is_convolution(call: Heard, matrix: Tensor) -> Premise:
    """The premise that a layer is A_hat X W^T + b: compared on the features that it was given."""
    text = f"{call.name} is a graph convolution"
    if not isinstance(call.layer, GCNLayer):
        return Premise(text, "refuted", f"{call.name} is a {type(call.layer).__name__}")
    expected = matrix @ (call.x @ call.layer.linear.weight.detach().T) + call.layer.bias.detach()
    if near(call.gave.detach(), expected):
        return Premise(text, "sampled", "it gives A_hat X W^T + b of the held-out graph")
    return Premise(text, "refuted", f"{call.name} does not give A_hat X W^T + b of the held-out graph")


def activates(before: Heard, after: Heard) -> Premise:
    """The premise that a layer reads what the one before it gave through a 1-Lipschitz activation."""
    text = f"{after.name} reads a 1-Lipschitz activation of what {before.name} gives"
    gave = before.gave.detach()
    found = next((name for name, act in ACTIVATIONS.items() if near(after.x, act(gave))), "")
    if found:
        return Premise(text, "sampled", f"on the held-out graph it is {found}")
    return Premise(
        text, "refuted", f"what {after.name} reads is no known activation of what {before.name} gives"
    )


def measured(found: Listened, node: int) -> Tensor:
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
    found = listened(subject)
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
        reference="Topping, Di Giovanni, Chamberlain, Dong and Bronstein 2022, Lemma 1",
        curves={"steps": torch.tensor(shown).double(), "derivative": torch.stack(value)}
        | ({"bound": torch.stack(high)} if chain else {}),
    )


def _premises(found: Listened) -> tuple[Premise, ...]:
    layers = convolutions(found)
    own = [is_convolution(call, matrix_of(layer, found)) for call, layer in layers]
    between = [activates(one, two) for (one, _), (two, _) in pairwise(layers)]
    return (*own, *between)


def _bounds(found: Listened, nodes: list[int]) -> Tensor:
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
