"""Homophily: how often an edge joins nodes of one class, as labeled and as predicted (Zhu et al. 2020)."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.core.types import Batch
from margin.engine.asking import asking
from margin.geometric.graphs.coupling_claims import small_gcn
from margin.geometric.graphs.drawn_graph import picture
from margin.geometric.graphs.layers import Listened, listened
from margin.geometric.graphs.subjects import is_node_model


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
def attention_of(found: Listened) -> tuple[Tensor, Tensor] | None:
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
    drawn_edges, attention = attention_of(listened(subject)) or (edge_index, None)
    curves = picture(drawn_edges, len(x), drawn.classes, batch.targets, drawn.counts, attention)
    return Finding(
        statement="How often an edge joins two nodes of one class: "
        + "; ".join(f"{name}: {count:,} edges" for name, (_, count) in found.items())
        + ".",
        value=torch.tensor([alike / count for alike, count in found.values()], dtype=torch.float64),
        unit="1",
        range=(0.0, 1.0),
        labels=tuple(found),
        failure="" if finite else "an output is not finite",
        premises=(),
        reference="Zhu et al. 2020, Definition 1",
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
    with torch.no_grad(), asking(subject.model):
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
