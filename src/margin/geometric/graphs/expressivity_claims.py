"""Message passing tells apart no more than color refinement does (Xu et al. 2019; Morris et al. 2019)."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.engine.evaluation import eval_mode, in_double
from margin.geometric.graphs.claims import small_gcn
from margin.geometric.graphs.layers import captured_layers, first_inputs, is_node_model, reads_neighbors
from margin.geometric.graphs.weisfeiler_leman import Coloring, Twins, counts_of, path_and_star, refined, twins
from margin.theory.prediction.held_out import held_out_answers

ROUNDING = 1e-9
"""In float64, in parts of the largest output, or of 1."""

ONE = torch.ones((), dtype=torch.float64)


def colored(batches: Sequence[tuple[Tensor, ...]]) -> tuple[Coloring, Int[Tensor, " graphs"]]:
    """The stable coloring of the nodes of all graphs together, from equal features; and the graphs' sizes.

    Args:
        batches: Inputs (x, edge_index, edge_attr, sizes); those of a batch are set beside the others.
    """
    starts = [0]
    for x, *_ in batches:
        starts.append(starts[-1] + len(x))
    x, edge_attr = (torch.cat([each[k].cpu() for each in batches]) for k in (0, 2))
    edges = torch.cat([each[1].cpu() + start for each, start in zip(batches, starts, strict=False)], 1)
    sizes = torch.cat([each[3].cpu() for each in batches])
    labels = _rows_named(edge_attr) if edge_attr.shape[1] else None
    return refined(edges, len(x), colors=_rows_named(x), labels=labels), sizes


def classes_of(coloring: Coloring, sizes: Int[Tensor, " graphs"], *, nodes: bool) -> Int[Tensor, " rows"]:
    """The class of each node, or of each graph: graphs are alike that have as many nodes of each color."""
    return coloring.colors if nodes else _rows_named(counts_of(coloring, sizes))


def _rows_named(rows: Tensor) -> Int[Tensor, " rows"]:
    """A number for each row, equal where the rows are."""
    if not rows.shape[1]:
        return torch.zeros(len(rows), dtype=torch.int64)
    return torch.unique(rows, dim=0, return_inverse=True)[1]


def _local(subject: Subject) -> tuple[Premise, ...]:
    """That layers read neighbors alone, without which none of this is promised."""
    found = captured_layers(subject)
    return tuple(reads_neighbors(call, found.inputs[1]) for call in found.calls)


def apart(subject: Subject, pair: Twins) -> float:
    """How differently the model answers on two graphs whose nodes and edges have one feature each.

    Both are put into one batch; of a model of nodes, nodes of one color are compared. The features are those
    of the first node and the first edge of the first held-out batch.

    Returns:
        The largest difference, in parts of the largest output or of 1.
    """
    outputs = on_pair(subject, pair)
    classes = torch.zeros(2, dtype=torch.int64)
    if is_node_model(subject):
        classes = refined(pair.union, 2 * pair.nodes).colors
    return _spread(outputs, classes) / max(1.0, float(outputs.abs().max()))


def embedded_apart(subject: Subject, pair: Twins) -> float:
    """As :func:`apart`; the outputs of nodes are summed over each graph."""
    outputs = on_pair(subject, pair)
    if is_node_model(subject):
        outputs = outputs.unflatten(0, (2, pair.nodes)).sum(1)
    return float((outputs[0] - outputs[1]).abs().max()) / max(1.0, float(outputs.abs().max()))


@torch.no_grad()
def on_pair(subject: Subject, pair: Twins) -> Float[Tensor, "rows values"]:
    """The model's outputs on both graphs, in float64."""
    model, (x, _, edge_attr, _) = in_double(subject.model), first_inputs(subject)
    edges, count = pair.union.to(x.device), 2 * pair.nodes
    attr = edge_attr[:1] if len(edge_attr) else edge_attr.new_ones(1, edge_attr.shape[1])
    sizes = torch.tensor([pair.nodes] * 2, device=x.device)
    with eval_mode(model):
        outputs = model(x[:1].expand(count, -1), edges, attr.expand(edges.shape[1], -1), sizes)
    return outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None]


def _spread(outputs: Float[Tensor, "rows values"], classes: Int[Tensor, " rows"]) -> float:
    """The largest difference between a row and the first of its class; NaN where an output is no number."""
    first = torch.full((int(classes.max()) + 1,), len(classes)).scatter_reduce(
        0, classes, torch.arange(len(classes)), "amin"
    )
    return float((outputs - outputs[first[classes]]).abs().max())


def bound(subject: Subject) -> Finding:
    """How differently the model answers on pairs of graphs that color refinement does not tell apart.

    Args:
        subject: A model of graphs with layers that pass messages.
    """
    pairs = twins()
    control = embedded_apart(subject, path_and_star())
    tells = "tells them" if control > ROUNDING else "does not tell them"
    return Finding(
        statement="On graphs that are not isomorphic but that color refinement does not tell apart, nodes "
        "all alike, the model answers alike: the largest difference, in parts of the largest output or of 1. "
        f"A path and a star, which refinement tells apart, the model {tells} apart: {control:.3g}.",
        value=torch.tensor([apart(subject, pair) for pair in pairs], dtype=torch.float64),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=ROUNDING,
        labels=tuple(pair.name for pair in pairs),
        premises=_local(subject),
    )


def classes(subject: Subject) -> Finding:
    """How many different answers the model gives, in parts of the classes that color refinement finds.

    Answers count as one where a random combination of them differs by rounding alone.

    Args:
        subject: A model of graphs with layers that pass messages.
    """
    inputs, nodes = first_inputs(subject), is_node_model(subject)
    coloring, sizes = colored([inputs])
    found = int(classes_of(coloring, sizes, nodes=nodes).max()) + 1
    model = in_double(subject.model)
    with torch.no_grad(), eval_mode(model):
        outputs = model(*inputs).cpu()
    outputs = outputs.flatten(1) if outputs.ndim > 1 else outputs[:, None]
    v = torch.randn(outputs.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = (outputs @ v).sort().values
    scale = max(1.0, float(outputs.abs().max())) * max(1.0, float(v.norm()))
    different = 1 + int((values.diff() > ROUNDING * scale).sum())
    finite = bool(outputs.isfinite().all())
    what = "nodes" if nodes else "graphs"
    return Finding(
        statement=f"Of {len(outputs):,} {what}, in {found:,} classes of color refinement, the model gives "
        f"{different:,} different answers: their share of the classes.",
        value=torch.tensor(different / found if finite else math.nan, dtype=torch.float64),
        range=(0.0, float(max(len(outputs), 1))),
        high=ONE,
        tolerance=ROUNDING,
        failure="" if finite else "an output is not finite",
        premises=_local(subject),
    )


def ceiling(subject: Subject) -> Finding:
    """The accuracy, against the highest that color refinement leaves: the most frequent label of each class.

    Args:
        subject: A classifier of nodes or graphs with layers that pass messages.
    """
    if subject.task.classes is None:
        raise ValueError(f"the ceiling is asked of a classifier: got the task {subject.task.name}")
    exactly = [batch.to(dtype=torch.float64, device=batch.inputs[0].device) for batch in subject.test]
    answered = held_out_answers(replace(subject, model=in_double(subject.model), test=exactly))
    coloring, sizes = colored([batch.inputs for batch in subject.test])
    found = classes_of(coloring, sizes, nodes=is_node_model(subject))[answered.example]
    labels, weight = answered.targets.long().cpu(), answered.weight.double().cpu()
    number = int(labels.max()) + 1
    counts = torch.zeros(int(found.max()) + 1, number, dtype=torch.float64)
    counts.view(-1).index_add_(0, found * number + labels, weight)
    right = (subject.task.classes(answered.outputs).argmax(-1).cpu() == labels).double()
    return Finding(
        statement=f"The accuracy, and the highest that any network that passes messages reaches on these "
        f"{int((weight > 0).sum()):,} examples, {len(counts):,} classes of color refinement.",
        value=(right * weight).sum() / weight.sum(),
        range=(0.0, 1.0),
        high=counts.amax(1).sum() / weight.sum(),
        tolerance=1e-12,
        premises=_local(subject),
    )


def demo() -> Subject:
    """Graph convolutions on a ring and a path of nodes all alike: three classes, with mixed labels."""
    subject = small_gcn()
    batch = subject.test[0]
    x, *rest = batch.inputs
    return replace(subject, test=[batch._replace(inputs=(torch.ones_like(x), *rest))])
