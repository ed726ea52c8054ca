"""What attention layers of graphs share: loops, heads joined or averaged, attention that is dropped."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.attention import Attending, OnEntries, Vectors
from margin.geometric.graphs.edges import looped
from margin.geometric.graphs.features import Rows
from margin.geometric.graphs.node_net import Carried, EdgeAttr, EdgeIndex, GraphLayer, NodeNet
from margin.geometric.graphs.sparsity import Pattern
from margin.nn.dropping import keeping

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
        layer: ``(features, heads, width, merge) -> AttentionLayer``.
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
        layer: Callable[[int, int, int, Merge], AttentionLayer],
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
        sizes = [node_features, *[heads * hidden] * (layers - 1)]
        self.layers = nn.ModuleList(
            [
                *(layer(size, heads, hidden, "concat") for size in sizes[:-1]),
                layer(sizes[-1], last_heads, outputs, "mean"),
            ]
        )

    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes width"]:
        """ELU, but for the last layer."""
        return nn.functional.elu(z) if k + 1 < len(self.layers) else z
