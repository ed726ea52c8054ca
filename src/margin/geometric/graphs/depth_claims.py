"""Depth and diameter: a node does not depend on what lies beyond the layers' reach (Alon and Yahav 2021)."""

import math

import torch
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.geometric.graphs.hops import steps_to
from margin.geometric.graphs.layers import Listened, listened, probed, reads_neighbors, steps_of
from margin.geometric.graphs.subjects import is_graph, is_node_model

ZERO = torch.zeros((), dtype=torch.float64)


def reach(found: Listened) -> int:
    """How many edges the layers that pass messages lead together."""
    return sum(map(steps_of, found.calls))


def beyond(found: Listened) -> tuple[list[int], Tensor]:
    """The nodes that are looked at, and for each which nodes are further away than the layers reach."""
    nodes = probed(len(found.inputs[0]))
    count = len(found.inputs[0])
    steps = steps_to(torch.tensor(nodes, dtype=torch.int64), found.inputs[1], count)
    return nodes, (steps > reach(found)).to(found.inputs[0].device)


def leaves_some_out(subject: Subject) -> bool:
    """Whether the model passes messages and some nodes of its graph are too far apart for its layers."""
    if not is_graph(subject):
        return False
    found = listened(subject)
    return len(found.calls) > 0 and bool(beyond(found)[1].any())


def dependence(subject: Subject) -> Finding:
    """The largest derivative of a node's outputs by the features of one beyond the layers' reach.

    Of a model of graphs the outputs are those of the last layer, before nodes are pooled.

    Args:
        subject: A model of graphs; it is asked on the first held-out batch, in float64.
    """
    found = listened(subject)
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
        low=ZERO,
        high=ZERO,
        failure=failure,
        premises=tuple(reads_neighbors(call, edge_index) for call in found.calls),
        reference="Alon and Yahav 2021, Section 1 (under-reaching)",
    )
