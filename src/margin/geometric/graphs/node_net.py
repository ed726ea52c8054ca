"""Networks of graph layers: each layer looks one edge further, and one row comes out for every node."""

from abc import ABC, abstractmethod
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.features import Rows, given
from margin.geometric.graphs.kept import kept
from margin.geometric.graphs.sparsity import Pattern, pattern

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
    """Graph layers one after another: from features of nodes to logits, or whatever the last layer gives."""

    layers: nn.ModuleList

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
    return kept(_arriving, (edge_index, edge_attr), num_nodes, how)


def _arriving(edge_index: Tensor, edge_attr: Tensor, num_nodes: int, how: str) -> tuple[Pattern, Tensor]:
    where = pattern(edge_index[1], edge_index[0], (num_nodes, num_nodes))
    counts = edge_attr.new_ones(edge_index.shape[1])
    if how == "mean":
        counts = counts / where.starts.diff()[where.row.long()]
    return where, counts
