r"""The graph attention network (Velickovic et al. 2018): each node weighs its neighbors by learned scores.

.. math:: x_i' = \sum_{j \in N(i) \cup \{i\}} q_{ij} V x_j, \quad q_{ij} = \mathrm{softmax}_j\,
    \mathrm{LeakyReLU}(u^\top [V x_i; V x_j; x_{ij}])

As the score is a sum of a number of i and one of j, the neighbor that weighs most is the same for all nodes
that share their neighbors and have no edge features (Brody et al. 2022).
"""

import torch
import torch.nn.functional as F
from torch import nn

from margin.geometric.graphs.attention import Attending, Heads, OnEntries, Vectors, attend, attention
from margin.geometric.graphs.attention_net import AttentionLayer, AttentionNet, Merge
from margin.geometric.graphs.features import FeatureMap, Rows
from margin.geometric.graphs.node_net import Carried


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


# a constructor's parameters: they are the model's options
def gat(
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
    """Class logits of every node, by layers of graph attention.

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

    def layer(features: int, count: int, width: int, merge: Merge) -> GATLayer:
        return GATLayer(
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
