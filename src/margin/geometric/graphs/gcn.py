r"""The graph convolutional network (Kipf and Welling 2017): :math:`X' = \sigma(\hat A X W)`.

Graph convolutions (Kipf and Welling 2017) whose rows are pooled: one answer a graph.
"""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.geometric.graphs.message_passing import How as Pool
from margin.geometric.graphs.node_net import (
    EdgeAttr,
    EdgeIndex,
    FeatureMap,
    GraphLayer,
    GraphReadout,
    NodeNet,
    Rows,
)
from margin.geometric.graphs.sparsity import EdgeWeight, Pattern, coupled, product
from margin.nn.dropping import Dropout


class GCNLayer(GraphLayer):
    r"""One graph convolution :math:`X' = \hat A X W^\top + b`, without its activation.

    Args:
        in_features: d, numbers of a node.
        out_features: d', numbers of a node after it.
        edge_weight: Whether every edge weighs 1, or as much as its first feature, at least 0.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: The dropout is no probability, or the option is unknown.

    Reference:
        Kipf and Welling 2017, Equation 2; b, which it leaves out, is in the authors' code.
    """

    def __init__(
        self, in_features: int, out_features: int, *, edge_weight: EdgeWeight = "none", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if edge_weight not in ("none", "first"):
            raise ValueError(f"edge_weight must be none or first: got {edge_weight!r}")
        self.edge_weight: EdgeWeight = edge_weight
        self.linear = FeatureMap(in_features, out_features, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(out_features))

    def edges(self, edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int) -> tuple[Pattern, Tensor]:
        """Where A_hat has entries, and which."""
        return coupled(edge_index, edge_attr, num_nodes, self.edge_weight)

    def spread(
        self, x: Rows, where: Pattern, carried: Float[Tensor, " entries"]
    ) -> Float[Tensor, "nodes outputs"]:
        """The rows A_hat X W^T + b."""
        z = self.linear(x)
        return product(where, carried.to(z.dtype), z) + self.bias


class GCN(NodeNet):
    r"""Class logits of every node by graph convolutions, :math:`\hat A \sigma(\hat A X W_0) W_1` for two.

    Args:
        node_features: Numbers of a node.
        num_classes: Number of logits.
        hidden: Numbers of a node between the layers.
        layers: Number of convolutions, at least 1: a node's logits read the nodes so many edges away.
        edge_weight: Whether every edge weighs 1, or as much as its first feature.
        dropout: Probability with which a number is dropped before each convolution in training, in [0, 1).

    Raises:
        ValueError: There is no layer, or an option is out of range.

    Reference:
        Kipf and Welling 2017, Equation 9 and Section 5.2.
    """

    def __init__(
        self,
        node_features: int,
        num_classes: int,
        *,
        hidden: int = 16,
        layers: int = 2,
        edge_weight: EdgeWeight = "none",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if layers < 1 or hidden < 1:
            raise ValueError(f"layers and hidden must be at least 1: got {layers}, {hidden}")
        self.sizes = (node_features, *[hidden] * (layers - 1), num_classes)
        self.layers = nn.ModuleList(
            GCNLayer(n, m, edge_weight=edge_weight, dropout=dropout if k == 0 else 0.0)
            for k, (n, m) in enumerate(pairwise(self.sizes))
        )
        self.dropout = Dropout(dropout)

    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes width"]:
        """ReLU, but for the last layer; what the next convolution reads is dropped before, which is the same.

        So what the next layer keeps for its derivative serves the ReLU's too.
        """
        return self.dropout(z).relu() if k + 1 < len(self.layers) else z


def classifier(
    node_features: int,
    num_classes: int,
    *,
    hidden: int = 64,
    layers: int = 3,
    edge_weight: EdgeWeight = "none",
    pool: Pool = "mean",
    dropout: float = 0.5,
) -> GraphReadout:
    """Class logits of every graph, an affine map of its pooled rows after the last convolution.

    Args:
        node_features: Numbers of a node.
        num_classes: Number of logits.
        hidden: Numbers of a node after each convolution.
        layers: Number of convolutions.
        edge_weight: Whether every edge weighs 1, or as much as its first feature.
        pool: How the rows of a graph become one.
        dropout: Probability with which a number of a pooled row is dropped in training.
    """
    net = GCN(node_features, hidden, hidden=hidden, layers=layers, edge_weight=edge_weight, dropout=0.0)
    return GraphReadout(net, num_classes, pool=pool, dropout=dropout)
