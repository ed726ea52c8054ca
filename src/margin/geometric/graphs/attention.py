r"""Attention over the edges of a graph (Velickovic et al. 2018), in memory edges x heads.

.. math:: e_{ij} = \mathrm{LeakyReLU}(l_i + r_j + s_{ij}), \quad
    q_{ij} = \frac{e^{e_{ij}}}{\sum_k e^{e_{ik}}}, \quad y_i = \sum_j q_{ij} v_j

for each head. The sums run over the entries of row i. The largest score of a row is subtracted before the
exponential, so scores of any size are safe. A row without entries gives 0.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function, forward_ad

from margin.geometric.graphs.aggregation import aggregate, softmax_over
from margin.geometric.graphs.sparsity import Pattern, bag, inner, product, turned_bag

Heads = Float[Tensor, "nodes heads"]
Vectors = Float[Tensor, "nodes heads width"]
OnEntries = Float[Tensor, "entries heads"]


@dataclass(frozen=True, slots=True, eq=False)
class Attending:
    """What attention is computed with besides numbers.

    Args:
        where: Row i holds the nodes to which node i attends.
        slope: Of the LeakyReLU below 0.
        keep: Which attention weights stay, head by head, entries by row; None: all.
        scale: By what those that stay are multiplied.
    """

    where: Pattern
    slope: float = 0.2
    keep: Bool[Tensor, "heads entries"] | None = None
    scale: float = 1.0

    def dropping(self, k: int, q: Float[Tensor, " entries"]) -> Float[Tensor, " entries"]:
        """Weights of head k, those that stay scaled, the others 0."""
        return q if self.keep is None else (q * self.keep[k]).mul_(self.scale)

    def plainly(self, v: Vectors, left: Heads, right: Heads, *edge: OnEntries) -> Vectors:
        """As :func:`attend`, by operations of torch that have all derivatives."""
        return mixed(attention(left, right, edge[0] if edge else None, self), v, self)


def attend(v: Vectors, left: Heads, right: Heads, edge: OnEntries | None, how: Attending) -> Vectors:
    """The sum of the vectors to which each node attends, by their attention weights.

    Nothing of size entries x heads x width is formed, unless a second derivative is asked for.

    Args:
        v: A vector a head of each node.
        left: l_i, the part of the score that the attending node gives.
        right: r_j, that of the node it attends to.
        edge: s_ij, that of the edge, entries by row; None: 0.
        how: The entries, the slope, and which weights are dropped.
    """
    if torch.compiler.is_compiling():
        return how.plainly(v, left, right, *(() if edge is None else (edge,)))
    found: Tensor = _Attend.apply(v, left, right, edge, how)[0]
    return found


def attention(left: Heads, right: Heads, edge: OnEntries | None, how: Attending) -> OnEntries:
    """The weights q_ij of each head, entries by row; nothing is dropped."""
    where = how.where
    scores = left.index_select(0, where.row) + right.index_select(0, where.column)
    return over_rows(F.leaky_relu(scores if edge is None else scores + edge, how.slope), where)


def over_rows(scores: OnEntries, where: Pattern) -> OnEntries:
    """The softmax of scores over the entries of each row."""
    return softmax_over(scores, where.row, where.shape[0])


def mixed(q: OnEntries, v: Vectors, how: Attending) -> Vectors:
    """The sum of the vectors at the entries of each row, by given weights, some of which are dropped."""
    if how.keep is not None:
        q = q * (how.keep.T.to(q.dtype) * how.scale)
    heads = zip(q.unbind(1), v.unbind(1), strict=True)
    return torch.stack([product(how.where, one, vectors) for one, vectors in heads], 1)


class _Attend(Function):
    @staticmethod
    def forward(
        v: Tensor, left: Tensor, right: Tensor, edge: Tensor | None, how: Attending
    ) -> tuple[Tensor, Tensor, Tensor]:
        row, where = how.where.row, how.where
        out, top, total = torch.empty_like(v), torch.empty_like(left), torch.empty_like(left)
        for k in range(v.shape[1]):
            weights = F.leaky_relu_(_scores(left, right, edge, how, row, k), how.slope)
            top[:, k] = _segments(weights, where, "max")
            weights.sub_(top[:, k].index_select(0, row)).exp_()
            total[:, k] = _segments(weights, where, "sum")
            weights.div_(total[:, k].index_select(0, row))
            out[:, k] = bag(where, how.dropping(k, weights), v[:, k])
        return out, top, total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        *tensors, ctx.how = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*tensors, *output[1:])
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g, how, (v, left, right, edge, top, total) = grads[0], ctx.how, ctx.saved_tensors
        if torch.is_grad_enabled():
            given = [tensor for tensor in (v, left, right, edge) if tensor is not None]
            found = torch.func.vjp(how.plainly, *given)[1](g)
            return (*found, *(None,) * (5 - len(found)))
        where, row, turned = how.where, how.where.row, how.where.turned_starts.long()
        of_v, of_left, of_right = (torch.empty_like(tensor) for tensor in (v, left, right))
        of_edge = None if edge is None or not ctx.needs_input_grad[3] else torch.empty_like(edge)
        for k in range(v.shape[1]):
            # the weights are computed again: kept for every head they would be the largest tensor
            slopes = _scores(left, right, edge, how, row, k)
            weights = F.leaky_relu(slopes, how.slope).sub_(top[:, k].index_select(0, row)).exp_()
            weights.div_(total[:, k].index_select(0, row))
            of_head = g[:, k].contiguous()
            of_v[:, k] = turned_bag(where, how.dropping(k, weights), of_head)
            d = how.dropping(k, inner(where, of_head, v[:, k].contiguous())).mul_(weights)
            d.sub_(weights.mul_(_segments(d, where, "sum").index_select(0, row)))
            d = torch.where(slopes > 0, d, d * how.slope)
            of_left[:, k] = _segments(d, where, "sum")
            of_right[:, k] = torch.segment_reduce(
                d.index_select(0, where.turn), "sum", offsets=turned, initial=0
            )
            if of_edge is not None:
                of_edge[:, k] = d
        return of_v, of_left, of_right, of_edge, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None, None]:
        (v, left, right, edge), how, where = ctx.saved_tensors[:4], ctx.how, ctx.how.where
        zero = v.new_zeros(len(where.column), v.shape[1])
        to_v, to_left, to_right, to_edge, _ = tangents
        moved = zero if to_edge is None else to_edge
        moved = moved if to_left is None else moved + to_left.index_select(0, where.row)
        moved = moved if to_right is None else moved + to_right.index_select(0, where.column)
        scores = left.index_select(0, where.row) + right.index_select(0, where.column)
        scores = scores if edge is None else scores + edge
        q = attention(left, right, edge, how)
        moved = q * moved * torch.where(scores > 0, 1.0, how.slope).to(q.dtype)
        total = aggregate(moved, where.row, where.shape[0], "sum").index_select(0, where.row)
        found = mixed(moved - q * total, v, how)
        return found if to_v is None else found + mixed(q, to_v, how), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        *tensors, how = inputs
        axes = tuple(axis for axis, tensor in zip(in_dims, tensors, strict=False) if tensor is not None)
        given = [tensor for tensor in tensors if tensor is not None]
        out = torch.vmap(how.plainly, axes)(*given)
        return (out, *out.new_zeros(2, len(out))), (0, 0, 0)


def _scores(
    left: Tensor, right: Tensor, edge: Tensor | None, how: Attending, row: Tensor, k: int
) -> Float[Tensor, " entries"]:
    found = left[:, k].index_select(0, row).add_(right[:, k].index_select(0, how.where.column))
    return found if edge is None else found.add_(edge[:, k])


def _segments(values: Tensor, where: Pattern, how: str) -> Float[Tensor, " rows"]:
    initial = 0.0 if how == "sum" else -torch.inf
    return torch.segment_reduce(values, how, offsets=where.starts.long(), initial=initial)
