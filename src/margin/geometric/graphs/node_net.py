"""Networks of graph layers: each layer looks one edge further, and one row comes out for every node.

Features of nodes that are mostly 0, as bags of words are: a layer reads the others alone.

Dropping 0 leaves 0, so dropout draws a number for each entry that is not; the law is the same.

Exact answers of a network on a large graph, layer by layer and part by part.

A part of the nodes is computed at a time with all of its neighbors, from the rows of the layer before. Every
node is computed once a layer, as in a pass over the whole graph, but what a layer forms on its edges is only
as large as a part's.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.message_passing import How as Pool
from margin.geometric.graphs.message_passing import pooled
from margin.geometric.graphs.sparsity import Pattern, cached_by_tensor, pattern, product
from margin.nn.dropping import Dropout

FEW = 0.1
"""Features are read sparsely where at most this share of them is not 0; beyond, a dense product is fast."""


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """The features that are not 0: where they are, node by node, and what they are."""

    where: Pattern
    values: Float[Tensor, " entries"]


Rows = Tensor | Sparse
"""Features of nodes (nodes, features), or those of them that are not 0."""


def given(x: Float[Tensor, "nodes features"]) -> Rows:
    """Features as a model's first layer reads them: sparsely where few are not 0 and none needs a gradient.

    What is found is kept as long as ``x`` lives and stays as it is.
    """
    if x.requires_grad or torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x):
        return x
    found = cached_by_tensor(_sparse, (x,))
    return x if found is None else found


def _sparse(x: Tensor) -> Sparse | None:
    if x.numel() == 0 or int(torch.count_nonzero(x)) > FEW * x.numel():
        return None
    row, column = x.nonzero(as_tuple=True)  # by row, and in the order of the columns
    return Sparse(pattern(row, column, (x.shape[0], x.shape[1])), x[row, column])


def dense(x: Rows) -> Float[Tensor, "nodes features"]:
    """The features with their zeros."""
    if isinstance(x, Tensor):
        return x
    found = x.values.new_zeros(x.where.shape)
    return found.index_put((x.where.row.long(), x.where.column.long()), x.values)


class FeatureMap(nn.Module):
    r"""The linear map :math:`X W^\top` of features, sparse or not, some of which are dropped in training.

    Args:
        in_features: Numbers of a node.
        out_features: Numbers of a node after it.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: The dropout is not in [0, 1).

    Reference:
        Glorot and Bengio 2010, Equation 16 (how W begins).
    """

    def __init__(self, in_features: int, out_features: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(out_features, in_features)))
        self.dropout = Dropout(dropout)

    def forward(self, x: Rows) -> Float[Tensor, "nodes outputs"]:
        """The rows times the transposed weight."""
        if isinstance(x, Tensor):
            return F.linear(self.dropout(x), self.weight)
        values = self.dropout(x.values).to(self.weight.dtype)
        # stacked rows: the gradient of a transpose would not be contiguous, as fused optimizers want it
        return product(x.where, values, torch.stack(self.weight.unbind(0), 1))

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


EdgeIndex = Int[Tensor, "2 edges"]
EdgeAttr = Float[Tensor, "edges edge_width"]
Carried = Float[Tensor, "entries edge_width"]


class GraphLayer(nn.Module, ABC):
    """A layer that gives every node a row computed from its own and those of the nodes with an edge to it.

    What depends on the edges alone (their order, loops, weights) is found first, by :meth:`edges`; then
    :meth:`spread` reads, for row i, row i of ``x`` and the rows at the entries of row i, nothing else. So a
    part of the rows can be computed with the entries of these rows alone.
    """

    @abstractmethod
    def edges(self, edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int) -> tuple[Pattern, Tensor]:
        """The messages by the node that they reach, and what each carries (entries, ...)."""

    @abstractmethod
    def spread(self, x: Rows, where: Pattern, carried: Tensor) -> Float[Tensor, "nodes outputs"]:
        """The row of each node."""

    def forward(self, x: Rows, edge_index: EdgeIndex, edge_attr: EdgeAttr) -> Float[Tensor, "nodes outputs"]:
        """The row of each node, of the features of nodes and edges."""
        nodes = len(x) if isinstance(x, Tensor) else x.where.shape[0]
        return self.spread(x, *self.edges(edge_index, edge_attr, nodes))


class NodeNet(nn.Module, ABC):
    """Graph layers one after another: from features of nodes to logits, or whatever the last layer gives.

    ``sizes`` are the numbers of a node before the first layer and after each.
    """

    layers: nn.ModuleList
    sizes: tuple[int, ...]

    @abstractmethod
    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes outputs"]:
        """What follows layer k = 0 .. L-1, row by row in evaluation: an activation, a normalization."""

    def embeddings(
        self, x: Float[Tensor, "nodes features"], edge_index: EdgeIndex, edge_attr: EdgeAttr
    ) -> list[Float[Tensor, "nodes _"]]:
        """The rows of all nodes after each layer; the last are the outputs."""
        found, rows = [], given(x)
        for k, layer in enumerate(self.layers):
            rows = self.after(k, layer(rows, edge_index, edge_attr))
            found.append(rows)
        return found

    def forward(
        self,
        x: Float[Tensor, "nodes features"],
        edge_index: EdgeIndex,
        edge_attr: EdgeAttr,
        sizes: Int[Tensor, " graphs"],
    ) -> Float[Tensor, "nodes outputs"]:
        """The outputs of every node; nodes of several graphs do not read each other."""
        return self.embeddings(x, edge_index, edge_attr)[-1]


def arriving(
    edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int, how: Literal["sum", "mean"]
) -> tuple[Pattern, Float[Tensor, " entries"]]:
    """The edges by target, and what each counts: 1, or one over their number; made once for the same tensors.

    Args:
        edge_index: The edges.
        edge_attr: Their features, which give the type.
        num_nodes: M.
        how: Whether the rows at the sources are added or averaged.
    """
    return cached_by_tensor(_arriving, (edge_index, edge_attr), num_nodes, how)


def _arriving(edge_index: Tensor, edge_attr: Tensor, num_nodes: int, how: str) -> tuple[Pattern, Tensor]:
    where = pattern(edge_index[1], edge_index[0], (num_nodes, num_nodes))
    counts = edge_attr.new_ones(edge_index.shape[1])
    if how == "mean":
        counts = counts / where.starts.diff()[where.row.long()]
    return where, counts


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


Nodes = Float[Tensor, "nodes features"]


Sizes = Int[Tensor, " graphs"]


class GraphReadout(nn.Module):
    r"""An affine map of each graph's pooled rows, :math:`W\,\mathrm{pool}_i(\mathrm{relu}(h_i)) + b`.

    A graph without nodes has the pooled row 0.

    Args:
        net: From features to the rows h.
        num_classes: Number of logits.
        pool: How the rows of a graph become one; the sum alone knows how many nodes there are.
        dropout: Probability with which a number of a pooled row is dropped in training, in [0, 1).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Xu, Hu, Leskovec and Jegelka 2019, Equation 2.4 and Section 5.2.
    """

    def __init__(self, net: NodeNet, num_classes: int, *, pool: Pool = "mean", dropout: float = 0.5) -> None:
        super().__init__()
        self.net, self.pool = net, _checked(pool)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(net.sizes[-1], num_classes)

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, "graphs outputs"]:
        """The answer of each graph."""
        rows = self.net(x, edge_index, edge_attr, sizes).relu()
        return self.head(self.dropout(pooled(rows, sizes, self.pool)))


class LayerReadout(nn.Module):
    r"""The sum over the layers of a linear map of each graph's pooled rows; the features are layer 0.

    .. math:: f(G) = \sum_{k=0}^{L} W_k\, \mathrm{pool}_i\, h_i^{(k)} + b

    Args:
        net: The layers.
        num_classes: Number of logits.
        pool: How the rows of a graph become one.
        dropout: Probability with which a number of a pooled row is dropped in training, in [0, 1).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Xu, Hu, Leskovec and Jegelka 2019, Equation 4.2; a map a layer, which are added, instead of one of the
        pooled rows side by side: the same set of functions.
    """

    def __init__(self, net: NodeNet, num_classes: int, *, pool: Pool = "sum", dropout: float = 0.5) -> None:
        super().__init__()
        self.net, self.pool = net, _checked(pool)
        self.dropout = Dropout(dropout)
        maps = (nn.Linear(size, num_classes, bias=k == 0) for k, size in enumerate(net.sizes))
        self.heads = nn.ModuleList(maps)

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, "graphs outputs"]:
        """The answer of each graph."""
        rows = [x, *self.net.embeddings(x, edge_index, edge_attr)]
        found = [
            head(self.dropout(pooled(each, sizes, self.pool)))
            for head, each in zip(self.heads, rows, strict=True)
        ]
        total: Tensor = sum(found[1:], found[0])
        return total


class LayerRegressor(nn.Module):
    """One real number of every graph, the one output of a :class:`LayerReadout`.

    Args:
        net: The layers.
        pool: How the rows of a graph become one.
        dropout: Probability with which a number of a pooled row is dropped in training, in [0, 1).
    """

    def __init__(self, net: NodeNet, *, pool: Pool = "sum", dropout: float = 0.0) -> None:
        super().__init__()
        self.readout = LayerReadout(net, 1, pool=pool, dropout=dropout)

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, " graphs"]:
        """The number of each graph."""
        found: Tensor = self.readout(x, edge_index, edge_attr, sizes)
        return found.squeeze(1)


def _checked(pool: Pool) -> Pool:
    if pool not in ("sum", "mean", "max"):
        raise ValueError(f"pool must be sum, mean or max: got {pool!r}")
    return pool
