r"""GraphSAGE (Hamilton, Ying and Leskovec 2017): a node's own row beside an aggregate of its neighbors'.

.. math:: x_i' = W [x_i; \mathrm{AGG}_{j \in N(i)}\, x_j] + b
"""

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.geometric.graphs.message_passing import aggregate
from margin.geometric.graphs.node_net import (
    EdgeAttr,
    EdgeIndex,
    FeatureMap,
    GraphLayer,
    NodeNet,
    Rows,
    arriving,
    dense,
)
from margin.geometric.graphs.sparsity import Pattern, product

How = Literal["mean", "max", "pool"]


class SAGELayer(GraphLayer):
    r"""One layer :math:`x_i' = W_0 x_i + W_1 \mathrm{AGG}_j x_j + b`, without its activation.

    AGG is the mean, the largest value of each coordinate, or that of relu(P x_j + p); of no neighbor it is 0.

    Args:
        in_features: d, numbers of a node.
        out_features: d', numbers of a node after it.
        how: The aggregate.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Hamilton, Ying and Leskovec 2017, Algorithm 1, line 4 and 5, and Equation 3 (pool). With "mean" a
        node's own row stays apart, as there in Algorithm 1, not as in Equation 2.
    """

    def __init__(
        self, in_features: int, out_features: int, *, how: How = "mean", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if how not in ("mean", "max", "pool"):
            raise ValueError(f"how must be mean, max or pool: got {how!r}")
        self.how: How = how
        # W_0, then W_1
        self.linear = FeatureMap(in_features, 2 * out_features, dropout=dropout)
        self.pool = nn.Linear(in_features, in_features) if how == "pool" else None
        self.bias = nn.Parameter(torch.zeros(out_features))

    def edges(self, edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int) -> tuple[Pattern, Tensor]:
        """The edges by target, each with one over their number at its target."""
        return arriving(edge_index, edge_attr, num_nodes, "mean")

    def spread(
        self, x: Rows, where: Pattern, carried: Float[Tensor, " entries"]
    ) -> Float[Tensor, "nodes outputs"]:
        """The row of each node."""
        if self.how == "mean":  # what is linear comes first: the rows are shorter then
            own, other = self.linear(x).chunk(2, 1)
            return own + product(where, carried.to(other.dtype), other) + self.bias
        rows = self.linear.dropout(dense(x))
        sent = rows if self.pool is None else self.pool(rows).relu()
        seen = aggregate(sent.index_select(0, where.column), where.row, where.shape[0], "max")
        own, other = self.linear.weight.chunk(2)
        return F.linear(rows, own, self.bias) + F.linear(seen, other)


class GraphSAGE(NodeNet):
    """Class logits of every node by layers of sampling and aggregation, ReLU between them.

    Args:
        node_features: Numbers of a node.
        num_classes: Number of logits.
        hidden: Numbers of a node between the layers.
        layers: L, at least 1: a node's logits read the nodes so many edges away.
        how: The aggregate of a node's neighbors.
        dropout: Probability with which a number is dropped before each layer in training, in [0, 1).
        normalize: Whether the row of a node is divided by its length after each layer but the last.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Hamilton, Ying and Leskovec 2017, Algorithm 1 (line 7: normalize unit).
    """

    def __init__(
        self,
        node_features: int,
        num_classes: int,
        *,
        hidden: int = 64,
        layers: int = 2,
        how: How = "mean",
        dropout: float = 0.5,
        normalize: Literal["none", "unit"] = "none",
    ) -> None:
        super().__init__()
        if layers < 1 or hidden < 1:
            raise ValueError(f"layers and hidden must be at least 1: got {layers}, {hidden}")
        if normalize not in ("none", "unit"):
            raise ValueError(f"normalize must be none or unit: got {normalize!r}")
        self.normalize = normalize
        self.sizes = (node_features, *[hidden] * (layers - 1), num_classes)
        pairs = pairwise(self.sizes)
        self.layers = nn.ModuleList(SAGELayer(n, m, how=how, dropout=dropout) for n, m in pairs)

    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes width"]:
        """ReLU and the length 1 where it is wanted, but for the last layer."""
        if k + 1 == len(self.layers):
            return z
        return F.normalize(z.relu(), dim=1) if self.normalize == "unit" else z.relu()
