r"""Graph attention with dynamic scores (Brody, Alon and Yahav 2022): who weighs most depends on who asks.

.. math:: x_i' = \sum_{j \in N(i) \cup \{i\}} q_{ij} R x_j, \quad q_{ij} = \mathrm{softmax}_j\,
    u^\top \mathrm{LeakyReLU}(L x_i + R x_j + E x_{ij})
"""

import torch
import torch.nn.functional as F
from torch import nn

from margin.geometric.graphs.attention import Attending, OnEntries, Vectors, mixed, over_rows
from margin.geometric.graphs.attention_net import AttentionLayer, AttentionNet, Merge
from margin.geometric.graphs.features import FeatureMap, Rows
from margin.geometric.graphs.node_net import Carried


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


# a constructor's parameters: they are the model's options
def gatv2(
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
    """Class logits of every node, by layers of dynamic graph attention.

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

    def layer(features: int, count: int, width: int, merge: Merge) -> GATv2Layer:
        return GATv2Layer(
            features,
            count,
            width,
            edge_features=edge_features,
            merge=merge,
            dropout=dropout,
            attention_dropout=attention_dropout,
            slope=slope,
        )

    return AttentionNet(
        layer,
        node_features,
        num_classes,
        hidden=hidden,
        layers=layers,
        heads=heads,
        last_heads=last_heads,
    )
