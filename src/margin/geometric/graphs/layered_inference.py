"""Exact answers of a network on a large graph, layer by layer and part by part.

A part of the nodes is computed at a time with all of its neighbors, from the rows of the layer before. Every
node is computed once a layer, as in a pass over the whole graph, but what a layer forms on its edges is only
as large as a part's.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.node_net import EdgeAttr, EdgeIndex, GraphLayer, NodeNet
from margin.geometric.graphs.sparsity import Pattern, pattern


@torch.no_grad()
def layered(
    net: NodeNet,
    x: Float[Tensor, "nodes features"],
    edge_index: EdgeIndex,
    edge_attr: EdgeAttr,
    *,
    part: int = 65_536,
) -> Float[Tensor, "nodes outputs"]:
    """The outputs of every node, equal to the network's on the whole graph up to rounding.

    Args:
        net: In evaluation mode.
        x: Features of the nodes.
        edge_index: The edges.
        edge_attr: Their features.
        part: Nodes computed at a time, at least 1.

    Raises:
        ValueError: The network is in training mode, or ``part`` is below 1.
    """
    if net.training:
        raise ValueError("layered inference needs a network in evaluation mode: call eval() first")
    if part < 1:
        raise ValueError(f"part must be at least 1: got {part}")
    layers = [layer for layer in net.layers if isinstance(layer, GraphLayer)]
    for k, layer in enumerate(layers):
        where, carried = layer.edges(edge_index, edge_attr, len(x))
        pieces = []
        for first in range(0, len(x), part):
            last = min(first + part, len(x))
            nodes, sub, entries = _within(where, first, last)
            rows = layer.spread(x.index_select(0, nodes), sub, carried[entries])[: last - first]
            pieces.append(net.after(k, rows))
        x = torch.cat(pieces) if pieces else net.after(k, layer.spread(x, where, carried))
    return x


def _within(where: Pattern, first: int, last: int) -> tuple[Int[Tensor, " nodes"], Pattern, slice]:
    """The nodes that rows ``first .. last - 1`` read, those first; and the entries of these rows."""
    start, end = int(where.starts[first]), int(where.starts[last])
    column = where.column[start:end].long()
    own = torch.arange(first, last, device=column.device)
    others = column[(column < first) | (column >= last)].unique()
    nodes = torch.cat((own, others))
    inside = (column >= first) & (column < last)
    place = torch.where(inside, column - first, len(own) + torch.searchsorted(others, column))
    row = torch.repeat_interleave(own - first, where.starts[first : last + 1].diff())
    return nodes, pattern(row, place, (len(nodes), len(nodes))), slice(start, end)
