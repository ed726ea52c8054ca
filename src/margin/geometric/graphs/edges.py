"""The edges of a graph with one loop at each node: what a node attends to is its neighbors and itself."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.kept import kept
from margin.geometric.graphs.sparsity import Pattern, pattern

EdgeIndex = Int[Tensor, "2 edges"]
EdgeAttr = Float[Tensor, "edges edge_width"]


def with_self_loops(
    edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int
) -> tuple[Int[Tensor, "2 joined"], Float[Tensor, "joined edge_width"]]:
    r"""The edges of :math:`N(i) \cup \{i\}`: those between two nodes as they are, then one loop at each node.

    A node that has loops keeps their mean features at its one loop; the loop of another gets the mean
    features of the edges that reach the node, 0 where none does.

    Args:
        edge_index: The edges.
        edge_attr: Their features, maybe of width 0.
        num_nodes: M.
    """
    loop = edge_index[0] == edge_index[1]
    between = ~loop
    own = _mean(edge_attr[loop], edge_index[1, loop], num_nodes)
    around = _mean(edge_attr[between], edge_index[1, between], num_nodes)
    has = edge_index[1, loop].bincount(minlength=num_nodes) > 0
    nodes = torch.arange(num_nodes, device=edge_index.device)
    return (
        torch.cat((edge_index[:, between], nodes.expand(2, -1)), 1),
        torch.cat((edge_attr[between], torch.where(has[:, None], own, around))),
    )


def _mean(features: Tensor, node: Tensor, num_nodes: int) -> Tensor:
    count = node.bincount(minlength=num_nodes).clamp_min(1).to(features)
    total = features.new_zeros(num_nodes, features.shape[1]).index_add(0, node, features)
    return total / count[:, None]


def looped(
    edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int
) -> tuple[Pattern, Float[Tensor, "joined edge_width"]]:
    """The edges with one loop at each node, by target, and their features in that order; made once."""
    return kept(_looped, (edge_index, edge_attr), num_nodes)


def _looped(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Pattern, Tensor]:
    both, attr = with_self_loops(edge_index, edge_attr, num_nodes)
    where = pattern(both[1], both[0], (num_nodes, num_nodes))
    return where, attr.index_select(0, where.order)
