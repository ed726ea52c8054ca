"""Homophily: how often an edge joins nodes of one class, as labeled and as predicted (Zhu et al. 2020)."""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.engine.evaluation import eval_mode
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
) -> tuple[float, int]:
    """The share of the edges between two different nodes of a set that join nodes of one class; their number.

    NaN where there is none.

    Reference: Zhu et al. 2020, Definition 1.
    """
    source, target = edge_index
    kept = (source != target) & among[source] & among[target]
    alike = classes[source[kept]] == classes[target[kept]]
    return (float(alike.double().mean()) if len(alike) else math.nan), len(alike)


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
    """How often an edge joins nodes of one class, as predicted and as labeled; the graph is drawn.

    Labels are read of the held-out nodes alone.

    Args:
        subject: A classifier of nodes.
    """
    batch, model = subject.test[0], subject.model
    x, edge_index, _, _ = batch.inputs
    with torch.no_grad(), eval_mode(model):
        outputs = model(*batch.inputs)
    if subject.task.classes is None:
        raise ValueError(f"homophily is asked of a classifier: got the task {subject.task.name}")
    classes, finite = subject.task.classes(outputs).argmax(-1), bool(outputs.isfinite().all())
    counts = torch.ones(len(x), dtype=torch.bool) if batch.weight is None else batch.weight.cpu() > 0
    everywhere, edges = torch.ones(len(x), dtype=torch.bool), edge_index.cpu()
    found = {"as predicted, of all edges": homophily(classes.cpu(), edges, everywhere)}
    if batch.targets is not None:
        found["as predicted, between held-out nodes"] = homophily(classes.cpu(), edges, counts)
        found["as labeled, between held-out nodes"] = homophily(batch.targets.cpu(), edges, counts)
    found = {name: pair for name, pair in found.items() if pair[1]}
    drawn_edges, attention = attention_of(listened(subject)) or (edge_index, None)
    drawn = picture(drawn_edges, len(x), classes, batch.targets, counts, attention)
    return Finding(
        statement="How often an edge joins two nodes of one class: "
        + "; ".join(f"{name}: {count:,} edges" for name, (_, count) in found.items())
        + ".",
        value=torch.tensor([value for value, _ in found.values()], dtype=torch.float64),
        unit="1",
        range=(0.0, 1.0),
        labels=tuple(found),
        failure="" if finite else "an output is not finite",
        premises=(),
        reference="Zhu et al. 2020, Definition 1",
        curves=drawn,
    )


def demo() -> Subject:
    """Two layers of graph convolution on a ring beside a path, half of whose nodes are held out."""
    subject = small_gcn()
    batch = subject.test[0]
    return replace(subject, test=[batch._replace(weight=(torch.arange(12) % 2).float())])
