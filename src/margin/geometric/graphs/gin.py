r"""The graph isomorphism network (Xu et al. 2019): sums of neighbors, which tell multisets apart.

.. math:: x_i' = \mathrm{MLP}\bigl((1 + \epsilon)\, x_i + \textstyle\sum_{j \in N(i)} x_j\bigr)

From rows of nodes to an answer a graph: sums, means or largest values, and affine maps of them.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.composition import headed
from margin.geometric.graphs.node_net import (
    EdgeAttr,
    EdgeIndex,
    FeatureMap,
    GraphLayer,
    LayerReadout,
    LayerRegressor,
    NodeNet,
    Rows,
    arriving,
)
from margin.geometric.graphs.sparsity import Pattern, product

Eps = Literal["learned", "zero"]


class GINLayer(GraphLayer):
    r"""One layer: an MLP of the sum of a node's neighbors and, :math:`1 + \epsilon` times, its own row.

    .. math:: x_i' = W_2\, \mathrm{relu}(\mathrm{BN}(W_1 s_i)) + b_2, \quad
        s_i = (1 + \epsilon) x_i + \textstyle\sum_j x_j

    Args:
        in_features: d, numbers of a node.
        hidden: Numbers inside the MLP, and of a node after it.
        eps: Whether epsilon, which begins at 0, is learned.

    Raises:
        ValueError: The option is unknown.

    Reference:
        Xu, Hu, Leskovec and Jegelka 2019, Equation 4.1; the batch normalization is in the authors' code.
    """

    def __init__(self, in_features: int, hidden: int, *, eps: Eps = "learned") -> None:
        super().__init__()
        if eps not in ("learned", "zero"):
            raise ValueError(f"eps must be learned or zero: got {eps!r}")
        self.eps = nn.Parameter(torch.zeros(())) if eps == "learned" else None
        self.linear = FeatureMap(in_features, hidden)
        # W_1 has no bias: the normalization would take it away again
        self.norm = nn.BatchNorm1d(hidden)
        self.last = nn.Linear(hidden, hidden)

    def edges(self, edge_index: EdgeIndex, edge_attr: EdgeAttr, num_nodes: int) -> tuple[Pattern, Tensor]:
        """The edges by target, each with 1."""
        return arriving(edge_index, edge_attr, num_nodes, "sum")

    def spread(
        self, x: Rows, where: Pattern, carried: Float[Tensor, " entries"]
    ) -> Float[Tensor, "nodes outputs"]:
        """The row of each node."""
        z = self.linear(x)  # W_1 comes before the sum, which is linear: the rows are shorter then
        z = (z if self.eps is None else (1 + self.eps) * z) + product(where, carried.to(z.dtype), z)
        return self.last(self.norm(z).relu())


class GINStack(NodeNet):
    """GIN layers, each followed by batch normalization and ReLU, and a map of the last rows.

    Args:
        node_features: Numbers of a node.
        hidden: Numbers of a node after each layer.
        layers: Number of layers, at least 1.
        eps: Whether epsilon is learned.
        head: What follows the last layer's ReLU, each row by itself.

    Raises:
        ValueError: There is no layer, or an option is unknown.
    """

    def __init__(
        self,
        node_features: int,
        *,
        hidden: int = 64,
        layers: int = 4,
        eps: Eps = "learned",
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if layers < 1 or hidden < 1:
            raise ValueError(f"layers and hidden must be at least 1: got {layers}, {hidden}")
        self.sizes = (node_features, *[hidden] * layers)
        self.layers = nn.ModuleList(GINLayer(size, hidden, eps=eps) for size in self.sizes[:-1])
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.head = nn.Identity() if head is None else head

    def after(self, k: int, z: Float[Tensor, "nodes width"]) -> Float[Tensor, "nodes outputs"]:
        """Batch normalization and ReLU, and the head at the end."""
        z = self.norms[k](z).relu()
        return self.head(z) if k + 1 == len(self.layers) else z


def gin(
    node_features: int,
    num_classes: int,
    *,
    hidden: int = 64,
    layers: int = 2,
    eps: Eps = "learned",
    dropout: float = 0.5,
) -> GINStack:
    """Class logits of every node, an affine map of its row after the last GIN layer.

    Args:
        node_features: Numbers of a node.
        num_classes: Number of logits.
        hidden: Numbers of a node after each layer.
        layers: Number of layers: a node's logits read the nodes so many edges away.
        eps: Whether epsilon is learned.
        dropout: Probability with which a number of the last row is dropped in training.
    """
    head = nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, num_classes))
    return GINStack(node_features, hidden=hidden, layers=layers, eps=eps, head=head)


classifier = headed(
    GINStack,
    LayerReadout,
    "Class logits of every graph, affine maps of its pooled rows after each GIN layer and before the first.",
    without=("head",),
)
regressor = headed(
    GINStack,
    LayerRegressor,
    "One real number of every graph, by affine maps of its pooled rows after each GIN layer.",
    without=("head",),
)
