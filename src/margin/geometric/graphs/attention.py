r"""Attention over the edges of a graph (Velickovic et al. 2018), in memory edges x heads.

.. math:: e_{ij} = \mathrm{LeakyReLU}(l_i + r_j + s_{ij}), \quad
    q_{ij} = \frac{e^{e_{ij}}}{\sum_k e^{e_{ik}}}, \quad y_i = \sum_j q_{ij} v_j

for each head. The sums run over the entries of row i. The largest score of a row is subtracted before the
exponential, so scores of any size are safe. A row without entries gives 0.

The graph attention network (Velickovic et al. 2018): each node weighs its neighbors by learned scores.

.. math:: x_i' = \sum_{j \in N(i) \cup \{i\}} q_{ij} V x_j, \quad q_{ij} = \mathrm{softmax}_j\,
    \mathrm{LeakyReLU}(u^\top [V x_i; V x_j; x_{ij}])

As the score is a sum of a number of i and one of j, the neighbor that weighs most is the same for all nodes
that share their neighbors and have no edge features (Brody et al. 2022).

Graph attention with dynamic scores (Brody, Alon and Yahav 2022): who weighs most depends on who asks.

.. math:: x_i' = \sum_{j \in N(i) \cup \{i\}} q_{ij} R x_j, \quad q_{ij} = \mathrm{softmax}_j\,
    u^\top \mathrm{LeakyReLU}(L x_i + R x_j + E x_{ij})

What attention layers of graphs share: loops, heads joined or averaged, attention that is dropped.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd import Function, forward_ad

from margin.geometric.graphs.message_passing import aggregate, looped, softmax_over
from margin.geometric.graphs.node_net import (
    Carried,
    EdgeAttr,
    EdgeIndex,
    FeatureMap,
    GraphLayer,
    NodeNet,
    Rows,
)
from margin.geometric.graphs.sparsity import Pattern, bag, inner, product, turned_bag
from margin.nn.dropping import keeping

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


Merge = Literal["concat", "mean"]


class AttentionLayer(GraphLayer):
    r"""A row a node of what it attends to among :math:`N(i) \cup \{i\}`, by several heads.

    A node that has loops keeps one, with their mean features; the loop of another has the mean features of
    the edges that reach it, 0 where none does.

    Args:
        heads: h, each with attention of its own.
        width: c, numbers of a node a head.
        merge: Whether the heads are put side by side (h c numbers), or averaged (c).
        attention_dropout: Probability with which a weight is dropped in training, in [0, 1).
        slope: Of the LeakyReLU in the scores, below 0.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self, heads: int, width: int, *, merge: Merge, attention_dropout: float, slope: float
    ) -> None:
        super().__init__()
        if heads < 1 or width < 1:
            raise ValueError(f"heads and their width must be at least 1: got {heads}, {width}")
        if merge not in ("concat", "mean"):
            raise ValueError(f"merge must be concat or mean: got {merge!r}")
        if not 0 <= attention_dropout < 1:
            raise ValueError(f"attention_dropout must be in [0, 1): got {attention_dropout}")
        self.heads, self.width, self.slope, self.attention_dropout = heads, width, slope, attention_dropout
        self.merge: Merge = merge
        self.bias = nn.Parameter(torch.zeros(heads * width if merge == "concat" else width))

    @abstractmethod
    def mix(self, x: Rows, carried: Carried, how: Attending) -> Vectors:
        """What each head reads for each node."""

    @abstractmethod
    def weights(self, x: Rows, carried: Carried, how: Attending) -> OnEntries:
        """The attention weight of each entry and head, by row; those of a row sum to 1."""

    def edges(self, edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int) -> tuple[Pattern, Tensor]:
        """The edges with one loop at each node, by target, and their features."""
        return looped(edge_index, edge_attr, num_nodes)

    def spread(self, x: Rows, where: Pattern, carried: Carried) -> Float[Tensor, "nodes outputs"]:
        """The heads of each node, joined or averaged."""
        found = self.mix(x, carried, self._attending(where))
        return (found.flatten(1) if self.merge == "concat" else found.mean(1)) + self.bias

    def attention(
        self, x: Float[Tensor, "nodes features"], edge_index: EdgeIndex, edge_attr: EdgeAttr
    ) -> tuple[Int[Tensor, "2 entries"], OnEntries]:
        """The edges with their loops, ordered by target, and the weights of each head on them."""
        where, carried = self.edges(edge_index, edge_attr, len(x))
        weights = self.weights(x, carried, Attending(where, self.slope))
        return torch.stack((where.column, where.row)).long(), weights

    def _attending(self, where: Pattern) -> Attending:
        p = self.attention_dropout
        if not self.training or p == 0:
            return Attending(where, self.slope)
        shape = (len(where.column),)
        # head by head: random numbers for all at once would be the largest tensor of a step
        keep = torch.stack([keeping(shape, p, self.bias) for _ in range(self.heads)])
        return Attending(where, self.slope, keep, 1 / (1 - p))


class AttentionNet(NodeNet):
    """Attention layers one after another: heads joined, then ELU; those of the last layer are averaged.

    Args:
        layer: ``(features, heads, width, merge=...) -> AttentionLayer``.
        node_features: Numbers of a node.
        outputs: Numbers of each output.
        hidden: c, numbers a head of every layer but the last.
        layers: L, at least 1.
        heads: Heads of every layer but the last.
        last_heads: Heads of the last layer.

    Reference:
        Velickovic et al. 2018, Section 3.3.
    """

    def __init__(
        self,
        layer: Callable[..., AttentionLayer],
        node_features: int,
        outputs: int,
        *,
        hidden: int,
        layers: int,
        heads: int,
        last_heads: int,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be at least 1: got {layers}")
        self.sizes = (node_features, *[heads * hidden] * (layers - 1), outputs)
        self.layers = nn.ModuleList(
            [
                *(layer(size, heads, hidden, merge="concat") for size in self.sizes[:-2]),
                layer(self.sizes[-2], last_heads, outputs, merge="mean"),
            ]
        )

    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes width"]:
        """ELU, but for the last layer."""
        return nn.functional.elu(z) if k + 1 < len(self.layers) else z


class GATLayer(AttentionLayer):
    r"""One layer of graph attention, h heads of width c, without its activation.

    Args:
        in_features: d, numbers of a node.
        heads: h.
        width: c.
        edge_features: Numbers of an edge that enter its score, at least 0.
        merge: Whether the heads are put side by side or averaged.
        dropout: Probability with which a number of a node is dropped in training, in [0, 1).
        attention_dropout: Probability with which an attention weight is dropped in training, in [0, 1).
        slope: Of the LeakyReLU below 0.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Velickovic et al. 2018, Equations 1 to 6; x_ij stands in the score as it is, by a vector a head.
    """

    def __init__(
        self,
        in_features: int,
        heads: int,
        width: int,
        *,
        edge_features: int = 0,
        merge: Merge = "concat",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
    ) -> None:
        super().__init__(heads, width, merge=merge, attention_dropout=attention_dropout, slope=slope)
        self.linear = FeatureMap(in_features, heads * width, dropout=dropout)
        self.left, self.right = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width))) for _ in range(2)
        )
        self.edge = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, edge_features)))
            if edge_features
            else None
        )

    def mix(self, x: Rows, carried: Carried, how: Attending) -> Vectors:
        """The attended sum of V x_j of each head."""
        v = self.linear(x).unflatten(1, (self.heads, self.width))
        return attend(v, *self._scores(v, carried), how)

    def weights(self, x: Rows, carried: Carried, how: Attending) -> OnEntries:
        """The attention weights q_ij."""
        v = self.linear(x).unflatten(1, (self.heads, self.width))
        return attention(*self._scores(v, carried), how)

    def _scores(self, v: Vectors, carried: Carried) -> tuple[Heads, Heads, OnEntries | None]:
        edge = None if self.edge is None else F.linear(carried.to(v.dtype), self.edge)
        # both products of every head at once, by a matrix whose row k is 0 outside head k
        own = torch.eye(self.heads, dtype=v.dtype, device=v.device)[:, :, None]
        maps = torch.cat((own * self.left, own * self.right)).flatten(1)
        left, right = F.linear(v.flatten(1), maps).chunk(2, 1)
        return left, right, edge


class GATv2Layer(AttentionLayer):
    r"""One layer of dynamic graph attention, h heads of width c, without its activation.

    Its scores form a tensor of size entries x heads x width.

    Args:
        in_features: d, numbers of a node.
        heads: h.
        width: c.
        edge_features: Numbers of an edge that enter its score, at least 0.
        merge: Whether the heads are put side by side or averaged.
        dropout: Probability with which a number of a node is dropped in training, in [0, 1).
        attention_dropout: Probability with which an attention weight is dropped in training, in [0, 1).
        slope: Of the LeakyReLU below 0.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Brody, Alon and Yahav 2022, Equation 7; W = [L, R], edge features as in the authors' code.
    """

    def __init__(
        self,
        in_features: int,
        heads: int,
        width: int,
        *,
        edge_features: int = 0,
        merge: Merge = "concat",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
    ) -> None:
        super().__init__(heads, width, merge=merge, attention_dropout=attention_dropout, slope=slope)
        # both maps as one, so that they read the same dropped features: L, then R
        self.linear = FeatureMap(in_features, 2 * heads * width, dropout=dropout)
        nn.init.xavier_uniform_(self.linear.weight[: heads * width])
        nn.init.xavier_uniform_(self.linear.weight[heads * width :])
        self.score = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, width)))
        self.edge = nn.Linear(edge_features, heads * width, bias=False) if edge_features else None

    def mix(self, x: Rows, carried: Carried, how: Attending) -> Vectors:
        """The attended sum of R x_j of each head."""
        left, right = self._parts(x)
        return mixed(self._weights(left, right, carried, how), right, how)

    def weights(self, x: Rows, carried: Carried, how: Attending) -> OnEntries:
        """The attention weights q_ij."""
        return self._weights(*self._parts(x), carried, how)

    def _parts(self, x: Rows) -> tuple[Vectors, Vectors]:
        both = self.linear(x).unflatten(1, (2, self.heads, self.width))
        return both[:, 0], both[:, 1]

    def _weights(self, left: Vectors, right: Vectors, carried: Carried, how: Attending) -> OnEntries:
        where = how.where
        z = left.index_select(0, where.row) + right.index_select(0, where.column)
        if self.edge is not None:
            z = z + self.edge(carried.to(z.dtype)).unflatten(1, (self.heads, self.width))
        scores = (F.leaky_relu(z, how.slope) * self.score).sum(-1)
        return over_rows(scores, where)


def _network(layer: Callable[..., AttentionLayer], summary: str) -> Callable[..., AttentionNet]:
    """The constructor of a network of these layers."""

    # a constructor's parameters: they are the model's options
    def build(
        node_features: int,
        edge_features: int,
        num_classes: int,
        *,
        hidden: int = 8,
        layers: int = 2,
        heads: int = 8,
        last_heads: int = 1,
        dropout: float = 0.6,
        attention_dropout: float = 0.6,
        slope: float = 0.2,
    ) -> AttentionNet:
        drops = {"dropout": dropout, "attention_dropout": attention_dropout}
        each = partial(layer, edge_features=edge_features, slope=slope, **drops)
        sizes = {"hidden": hidden, "layers": layers, "heads": heads, "last_heads": last_heads}
        return AttentionNet(each, node_features, num_classes, **sizes)

    build.__doc__ = f"""{summary}

    Args:
        node_features: Numbers of a node.
        edge_features: Numbers of an edge, which enter its scores.
        num_classes: Number of logits.
        hidden: Numbers a head of every layer but the last.
        layers: Number of layers: a node's logits read the nodes so many edges away.
        heads: Heads of every layer but the last, put side by side.
        last_heads: Heads of the last layer, averaged.
        dropout: Probability with which a number is dropped before each layer in training.
        attention_dropout: Probability with which an attention weight is dropped in training.
        slope: Of the LeakyReLU in the scores, below 0.
    """
    return build


gat = _network(GATLayer, "Class logits of every node, by layers of graph attention.")
gatv2 = _network(GATv2Layer, "Class logits of every node, by layers of dynamic graph attention.")
