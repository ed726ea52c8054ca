"""The part of a graph that is drawn: whole where it is small, else the nodes around one, by breadth first."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from margin.geometric.graphs.hops import components, steps_to

MOST = 120
"""Nodes that are drawn at most."""


def shown_nodes(
    edge_index: Int[Tensor, "2 edges"], num_nodes: int, counts: Bool[Tensor, " nodes"]
) -> Int[Tensor, " shown"]:
    """All nodes of a small graph, whole components of a middling one, else the nearest to a node that counts.

    The node in the middle is in the largest component and has as many edges as nine in ten there at most, so
    it is not the hub.
    """
    if num_nodes <= MOST:
        return torch.arange(num_nodes)
    component = components(edge_index, num_nodes)
    sizes = component.bincount()
    if int(sizes.max()) <= MOST:
        whole = component[component.argsort(stable=True)]
        kept = sizes.cumsum(0)[whole] <= MOST
        return component.argsort(stable=True)[kept]
    degree = edge_index[1].bincount(minlength=num_nodes)
    inside = component == int(sizes.argmax())
    inside = inside & counts if bool((inside & counts).any()) else inside
    order = torch.where(inside, degree, -1).argsort(stable=True)[-int(inside.sum()) :]
    middle = order[int(0.9 * (len(order) - 1))]
    steps = steps_to(middle[None], edge_index, num_nodes)[0]
    near = steps.argsort(stable=True)[:MOST]
    return near[steps[near].isfinite()].sort().values


def picture(  # one parameter a curve
    edge_index: Int[Tensor, "2 edges"],
    num_nodes: int,
    classes: Int[Tensor, " nodes"],
    labels: Int[Tensor, " nodes"] | None = None,
    counts: Bool[Tensor, " nodes"] | None = None,
    attention: Float[Tensor, " edges"] | None = None,
) -> dict[str, Tensor]:
    """The curves from which a report draws a graph.

    Args:
        edge_index: Sources and targets.
        num_nodes: M.
        classes: What is predicted of each node.
        labels: What each node is; -1 where it is not known.
        counts: Which nodes are judged: those are drawn with an edge where they are wrong.
        attention: How much each edge's target attends to its source, in [0, 1].
    """
    edge_index = edge_index.cpu()
    judged = torch.ones(num_nodes, dtype=torch.bool) if counts is None else counts.cpu()
    nodes = shown_nodes(edge_index, num_nodes, judged)
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    ends = place[edge_index]
    kept = (ends >= 0).all(0) & (ends[0] != ends[1])
    known = torch.full((num_nodes,), -1) if labels is None else torch.where(judged, labels.cpu(), -1)
    curves = {
        "graph edges": ends[:, kept],
        "graph classes": classes.cpu()[nodes],
        "graph labels": known[nodes],
        "graph whole": torch.tensor(num_nodes),
    }
    return curves if attention is None else curves | {"graph attention": attention.cpu()[kept]}
