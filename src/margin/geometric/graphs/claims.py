"""Homophily: how often an edge joins nodes of one class, as labeled and as predicted (Zhu et al. 2020).

Depth and diameter: a node does not depend on what lies beyond the layers' reach (Alon and Yahav 2021).

The coupling matrix of graph convolutions has norm 1: it enlarges no features (Kipf and Welling 2017).
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import learn, risk
from margin.geometric.graphs.figures import picture
from margin.geometric.graphs.gcn import GCN, GCNLayer
from margin.geometric.graphs.layers import (
    CapturedLayers,
    LayerCall,
    captured_layers,
    is_graph,
    is_node_model,
    probed,
    reads_neighbors,
    steps_of,
)
from margin.geometric.graphs.message_passing import steps_to
from margin.geometric.graphs.sparsity import coupling_matrix, weights_of
from margin.geometric.graphs.weisfeiler_leman import both_ways, ring
from margin.theory.curvature.eigenpairs import leading_eigenpairs
from margin.theory.curvature.lanczos import random_direction

DENSE = 512
"""Nodes of graphs whose whole spectrum is computed."""

EXACT = 1e-12
"""What rounding may do to an eigenvalue of a symmetric matrix of norm 1, in float64."""

TOLERANCE = 1e-8
"""Residual at which the Lanczos process stops on larger graphs."""


def is_gcn(subject: Subject) -> bool:
    """Whether the model reads graphs and holds layers of a graph convolutional network."""
    return is_graph(subject) and any(isinstance(module, GCNLayer) for module in subject.model.modules())


def convolutions(found: CapturedLayers) -> list[tuple[LayerCall, GCNLayer]]:
    """The calls of layers of a graph convolutional network."""
    return [(call, call.layer) for call in found.calls if isinstance(call.layer, GCNLayer)]


def matrix_of(layer: GCNLayer, found: CapturedLayers) -> Tensor:
    """A_hat (M, M) of a layer on the graph that the model was asked on, sparse.

    Raises:
        ValueError: A weight is negative.
    """
    x, edge_index, edge_attr, _ = found.inputs
    weight = weights_of(edge_attr, layer.edge_weight).detach()
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # else torch warns that it does not
        return coupling_matrix(edge_index, len(x), weight)


def is_symmetric(matrix: Tensor) -> bool:
    """Whether a sparse matrix equals its transpose, up to float32's rounding of weights."""
    back = matrix.t().coalesce()
    same = torch.equal(back.indices(), matrix.indices())
    return same and torch.allclose(back.values(), matrix.values(), rtol=1e-6, atol=0)


def undirected(matrix: Tensor) -> Premise:
    """The premise that a coupling matrix is symmetric."""
    text = "the graph is undirected"
    if is_symmetric(matrix):
        return Premise(text, "proved", "every edge has its like in the other direction, of the same weight")
    return Premise(text, "refuted", "an edge has no like in the other direction of the same weight")


def spectral_norm(matrix: Tensor) -> tuple[float, float]:
    """The largest singular value of a sparse matrix, and the residual of its square.

    Up to :data:`DENSE` rows from all of them, beyond by the Lanczos process on A^T A.
    """
    if len(matrix) <= DENSE:
        return float(torch.linalg.matrix_norm(matrix.to_dense(), ord=2)), 0.0
    back = matrix.t()

    def product(v: Tensor) -> Tensor:
        image: Tensor = back @ (matrix @ v[:, None])
        return image[:, 0]

    start = random_direction(len(matrix), device=matrix.device)
    found = leading_eigenpairs(product, start, 1, by="largest", tol=TOLERANCE, max_products=3000)
    if not found.converged:
        return math.nan, math.inf
    return float(found.values[0].clamp_min(0).sqrt()), float(found.residuals[0])


def norm(subject: Subject) -> Finding:
    """The spectral norm of the coupling matrix of each layer, on the first held-out batch's graph.

    Args:
        subject: A model with layers of a graph convolutional network.
    """
    found = captured_layers(subject)
    values, errors, premises, labels = [], [0.0], [], []
    for call, layer in convolutions(found):
        weights = weights_of(found.inputs[2], layer.edge_weight)
        text = f"the weights that {call.name} reads are at least 0"
        good = bool((weights >= 0).all())
        low = float(weights.min()) if len(weights) else 0.0
        premises.append(Premise(text, "proved" if good else "refuted", f"the least is {low:.3g}"))
        matrix = matrix_of(layer, found)
        value, error = spectral_norm(matrix)
        premises.append(undirected(matrix))
        values.append(value)
        errors.append(error)
        labels.append(call.name)
    return Finding(
        statement="The coupling matrix D^(-1/2) (A + I) D^(-1/2) has norm 1: no convolution enlarges the "
        "features of the nodes together, and the roots of the degrees it keeps.",
        value=torch.tensor(values or [math.nan], dtype=torch.float64),
        range=(0.0, math.inf),
        equals=1.0,
        tolerance=EXACT + max(errors),
        labels=tuple(labels),
        failure="" if values else "the model does not call its convolutions with features and edges",
        premises=tuple(dict.fromkeys(premises)),
        reference="Kipf and Welling 2017, Section 2.2 (renormalization)",
    )


def small_gcn(*, layers: int = 2) -> Subject:
    """Layers of graph convolution on a ring of 9 nodes beside a path of 3, as they begin.

    Args:
        layers: How many.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = GCN(4, 3, hidden=5, layers=layers)
        x = torch.randn(12, 4)
    edges = both_ways([*ring(9), (9, 10), (10, 11)])
    inputs = (x, edges, torch.zeros(edges.shape[1], 0), torch.tensor([12]))
    batch = Batch(inputs, torch.arange(12) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), independent=False)


def classifies_nodes(subject: Subject) -> bool:
    """Whether the model decides a class of every node of a graph that has an edge between two of them."""
    if not is_node_model(subject) or subject.task.classes is None:
        return False
    edges = subject.test[0].inputs[1]
    return bool((edges[0] != edges[1]).any())


def homophily(
    classes: Int[Tensor, " nodes"], edge_index: Int[Tensor, "2 edges"], among: Bool[Tensor, " nodes"]
) -> tuple[int, int]:
    """How many edges between two different nodes of a set join nodes of one class, and how many there are.

    Reference: Zhu et al. 2020, Definition 1.
    """
    source, target = edge_index
    kept = (source != target) & among[source] & among[target]
    alike = classes[source[kept]] == classes[target[kept]]
    return int(alike.sum()), len(alike)


@torch.no_grad()
def attention_of(found: CapturedLayers) -> tuple[Tensor, Tensor] | None:
    """Edges, and how much the target of each attends to its source, on average over heads.

    The last layer is asked that has a method ``attention``: of what the layer is called with it returns
    (edges (2, E), weights (E, heads)).
    """
    for call in reversed(found.calls):
        ask = getattr(call.layer, "attention", None)
        if callable(ask):
            edges, weights = ask(call.x, *call.given[1:], **call.options)
            return edges, weights.flatten(1).mean(1)
    return None


def share(subject: Subject) -> Finding:
    """How often an edge joins nodes of one class, as predicted and as labeled; the first graph is drawn.

    Labels are read of the held-out nodes alone. Edges are counted over all held-out batches.

    Args:
        subject: A classifier of nodes.
    """
    parts = [_of_batch(subject, batch) for batch in subject.test]
    finite, drawn = all(part.finite for part in parts), parts[0]
    names = [name for name in drawn.edges if sum(part.edges[name][1] for part in parts)]
    found = {name: tuple(map(sum, zip(*(p.edges[name] for p in parts), strict=True))) for name in names}
    batch = subject.test[0]
    x, edge_index, _, _ = batch.inputs
    drawn_edges, attention = attention_of(captured_layers(subject)) or (edge_index, None)
    curves = picture(drawn_edges, len(x), drawn.classes, batch.targets, drawn.counts, attention)
    return Finding(
        statement="How often an edge joins two nodes of one class: "
        + "; ".join(f"{name}: {count:,} edges" for name, (_, count) in found.items())
        + ".",
        value=torch.tensor([alike / count for alike, count in found.values()], dtype=torch.float64),
        range=(0.0, 1.0),
        labels=tuple(found),
        failure="" if finite else "an output is not finite",
        curves=curves,
    )


class Counted(NamedTuple):
    """Of a batch: edges that join one class and all, by name; the predicted classes; which nodes count."""

    edges: dict[str, tuple[int, int]]
    classes: Int[Tensor, " nodes"]
    counts: Bool[Tensor, " nodes"]
    finite: bool


def _of_batch(subject: Subject, batch: Batch) -> Counted:
    x, edge_index, _, _ = batch.inputs
    with torch.no_grad(), eval_mode(subject.model):
        outputs = subject.model(*batch.inputs)
    if subject.task.classes is None:
        raise ValueError(f"homophily is asked of a classifier: got the task {subject.task.name}")
    classes, edges = subject.task.classes(outputs).argmax(-1), edge_index.cpu()
    everywhere = torch.ones(len(x), dtype=torch.bool)
    counts = everywhere if batch.weight is None else batch.weight.cpu() > 0
    found = {"as predicted, of all edges": homophily(classes.cpu(), edges, everywhere)}
    if batch.targets is not None:
        found["as predicted, between held-out nodes"] = homophily(classes.cpu(), edges, counts)
        found["as labeled, between held-out nodes"] = homophily(batch.targets.cpu(), edges, counts)
    return Counted(found, classes, counts, bool(outputs.isfinite().all()))


def demo() -> Subject:
    """Two layers of graph convolution on a ring beside a path, half of whose nodes are held out."""
    subject = small_gcn()
    batch = subject.test[0]
    return replace(subject, test=[batch._replace(weight=(torch.arange(12) % 2).float())])


def homophilous_demo() -> Subject:
    """Graph convolution that has learned three groups of eight nodes, with some edges between groups."""
    g = Generator().manual_seed(0)
    classes = torch.arange(24) // 8
    odds = torch.where(classes[:, None] == classes, 0.45, 0.05)
    edges = (torch.rand(24, 24, generator=g) < odds).triu(1).nonzero()
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = GCN(4, 3, hidden=8, layers=2)
    x = torch.randn(24, 4, generator=g) + torch.eye(4)[classes]
    inputs = (
        x,
        both_ways([(int(i), int(j)) for i, j in edges]),
        torch.zeros(2 * len(edges), 0),
        torch.tensor([24]),
    )
    learned = (torch.rand(24, generator=g) < 0.4).float()
    learn(model, risk(CLASSES), Batch(inputs, classes, learned), steps=60, lr=0.02)
    test = Batch(inputs, classes, 1 - learned)
    return Subject(model=model, test=[test], task=CLASSES, objective=risk(CLASSES), independent=False)


def reach(found: CapturedLayers) -> int:
    """How many edges the layers that pass messages lead together."""
    return sum(map(steps_of, found.calls))


def beyond(found: CapturedLayers) -> tuple[list[int], Tensor]:
    """The nodes that are looked at, and for each which nodes are further away than the layers reach."""
    nodes = probed(len(found.inputs[0]))
    count = len(found.inputs[0])
    steps = steps_to(torch.tensor(nodes, dtype=torch.int64), found.inputs[1], count)
    return nodes, (steps > reach(found)).to(found.inputs[0].device)


def leaves_some_out(subject: Subject) -> bool:
    """Whether the model passes messages and some nodes of its graph are too far apart for its layers."""
    if not is_graph(subject):
        return False
    found = captured_layers(subject)
    return len(found.calls) > 0 and bool(beyond(found)[1].any())


def dependence(subject: Subject) -> Finding:
    """The largest derivative of a node's outputs by the features of one beyond the layers' reach.

    Of a model of graphs the outputs are those of the last layer, before nodes are pooled.

    Args:
        subject: A model of graphs; it is asked on the first held-out batch, in float64.
    """
    found = captured_layers(subject)
    nodes, far = beyond(found)
    x, edge_index = found.inputs[:2]
    outputs = found.output.reshape(len(x), -1) if is_node_model(subject) else found.calls[-1].gave
    v = torch.randn(outputs.shape[1], generator=Generator().manual_seed(0), dtype=outputs.dtype).to(outputs)
    rows = torch.stack(
        [
            torch.autograd.grad(outputs[node] @ v, x, retain_graph=True, materialize_grads=True)[0]
            .abs()
            .amax(1)
            for node in nodes
        ]
    )
    steps, near = reach(found), rows[~far]
    failure = "" if bool(far.any()) else f"no node is more than {steps} steps from one that was looked at"
    if not bool(rows.isfinite().all()):
        failure = "a derivative is not finite"
    value = rows[far].amax() if bool(far.any()) else rows.new_full((), math.nan)
    return Finding(
        statement=f"After {len(found.calls)} layers, {steps} steps in all, a node does not depend on one "
        f"further away: the largest derivative over {int(far.sum()):,} pairs; of nearer ones it is "
        f"{float(near.amax()):.3g}.",
        value=value.detach().cpu(),
        unit="output per input",
        range=(0.0, math.inf),
        equals=0.0,
        failure=failure,
        premises=tuple(reads_neighbors(call, edge_index) for call in found.calls),
        reference="Alon and Yahav 2021, Section 1 (under-reaching)",
    )
