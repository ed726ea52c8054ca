r"""Sums, means and largest values over groups of rows: messages by the node they reach, nodes by their graph.

A group without rows has sum 0, mean 0 and largest value 0, so a node without edges and a graph without nodes
get numbers, not NaN.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
