r"""Message passing (Gilmer et al. 2017): every layer of a graph network that looks at neighbors is one.

.. math:: x_i' = \phi\Bigl(x_i, \bigoplus_{j \in N(i)} \psi(x_i, x_j, e_{ij})\Bigr)

Sums, means and largest values over groups of rows: messages by the node they reach, nodes by their graph.

A group without rows has sum 0, mean 0 and largest value 0, so a node without edges and a graph without nodes
get numbers, not NaN.

The edges of a graph with one loop at each node: what a node attends to is its neighbors and itself.

Steps along edges: how far a message must go from one node to another, and the parts that none leaves.

A message goes from the source of an edge to its target, so the distance of j to i counts directed edges.

What follows from tensors that stay the same from step to step, computed once: memory keyed by identity.

A graph's edges are sorted once, not at every step. What is kept lives as long as the tensors from which it
was computed, and is computed anew once torch has written into one of them.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra
from torch import Tensor, nn

from margin.geometric.graphs.sparsity import Pattern, cached_by_tensor, pattern

How = Literal["sum", "mean", "max"]


def aggregate(
    messages: Float[Tensor, " edges *width"], target: Int[Tensor, " edges"], num_nodes: int, how: How
) -> Float[Tensor, " nodes *width"]:
    r"""One row a node of what reaches it, :math:`\bigoplus_{e: t_e = i} m_e`; 0 where nothing does.

    Args:
        messages: A row an edge.
        target: The node that each message reaches.
        num_nodes: M.
        how: The sum, the mean, or the largest value of each coordinate, whose gradient rows that tie share.

    Raises:
        ValueError: ``how`` is none of these.
    """
    if how == "max":
        index = target.reshape(-1, *(1 for _ in messages.shape[1:])).expand_as(messages).long()
        empty = messages.new_zeros(num_nodes, *messages.shape[1:])
        return empty.scatter_reduce(0, index, messages, "amax", include_self=False)
    if how not in ("sum", "mean"):
        raise ValueError(f"how must be sum, mean or max: got {how!r}")
    total = messages.new_zeros(num_nodes, *messages.shape[1:]).index_add(0, target, messages)
    if how == "sum":
        return total
    count = target.bincount(minlength=num_nodes).clamp_min(1).to(messages)
    return total / count.reshape(-1, *(1 for _ in messages.shape[1:]))


def softmax_over(
    scores: Float[Tensor, " edges *heads"], target: Int[Tensor, " edges"], num_nodes: int
) -> Float[Tensor, " edges *heads"]:
    r"""The softmax of scores over the edges that reach each node, :math:`e^{s_e} / \sum_{t_f = t_e} e^{s_f}`.

    The largest score of each node is subtracted first, so none overflows and each node's largest counts 1.
    """
    largest = aggregate(scores.detach(), target, num_nodes, "max")
    powers = (scores - largest.index_select(0, target)).exp()
    return powers / aggregate(powers, target, num_nodes, "sum").index_select(0, target)


def pooled(
    x: Float[Tensor, "nodes width"], sizes: Int[Tensor, " graphs"], how: How
) -> Float[Tensor, "graphs width"]:
    """One row a graph of its nodes' rows, which are consecutive; 0 for a graph without nodes."""
    graph = torch.repeat_interleave(sizes, output_size=len(x))
    return aggregate(x, graph, len(sizes), how)


Psi = Callable[[Tensor, Tensor, Tensor], Tensor]
Phi = Callable[[Tensor, Tensor], Tensor]


class MessagePassing(nn.Module):
    """A layer of message passing with functions of one's own.

    A node without incoming edges aggregates 0. k layers make a node's row a function of the nodes from which
    it is reached in at most k edges, and of no other.

    Args:
        psi: ``(x_i, x_j, e_ij) -> message``, for all edges at once, a row each: the row of the target, of the
            source, and of the edge, of width 0 where edges carry nothing.
        phi: ``(x_i, aggregate) -> new row``, for all nodes at once.
        how: The sum, the mean, or the largest value of each coordinate of the messages.

    Raises:
        ValueError: ``how`` is none of these.

    Reference:
        Gilmer, Schoenholz, Riley, Vinyals and Dahl 2017, Equations 1 and 2 (sum); Bronstein et al. 2021,
        Section 5.3.
    """

    def __init__(self, psi: Psi, phi: Phi, *, how: How = "sum") -> None:
        super().__init__()
        if how not in ("sum", "mean", "max"):
            raise ValueError(f"how must be sum, mean or max: got {how!r}")
        self.psi, self.phi, self.how = psi, phi, how

    def forward(
        self,
        x: Float[Tensor, "nodes features"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges width"],
    ) -> Float[Tensor, "nodes outputs"]:
        """The new row of each node."""
        source, target = edge_index
        messages = self.psi(x.index_select(0, target), x.index_select(0, source), edge_attr)
        return self.phi(x, aggregate(messages, target, len(x), self.how))


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
    return cached_by_tensor(_looped, (edge_index, edge_attr), num_nodes)


def _looped(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> tuple[Pattern, Tensor]:
    both, attr = with_self_loops(edge_index, edge_attr, num_nodes)
    where = pattern(both[1], both[0], (num_nodes, num_nodes))
    return where, attr.index_select(0, where.order)


Edges = Int[Tensor, "2 edges"]


def steps_to(
    targets: Int[Tensor, " targets"], edge_index: Edges, num_nodes: int
) -> Float[Tensor, "targets nodes"]:
    """The least number of edges from each node to each target, infinite where no way leads there.

    Args:
        targets: Nodes i; row i of the answer holds the distance of every node j to it.
        edge_index: Sources and targets of messages.
        num_nodes: M.
    """
    source, target = edge_index.cpu().numpy()
    backward = coo_array((np.ones(len(source)), (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    found = dijkstra(backward, indices=targets.cpu().numpy(), unweighted=True)
    return torch.from_numpy(np.asarray(found)).reshape(len(targets), num_nodes)


def components(edge_index: Edges, num_nodes: int) -> Int[Tensor, " nodes"]:
    """The number of the connected component of each node, 0 .. C-1, whichever way the edges point."""
    source, target = edge_index.cpu().numpy()
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes))
    _, labels = connected_components(graph, directed=False)
    return torch.from_numpy(labels.astype(np.int64))
