r"""ChebNet (Defferrard, Bresson and Vandergheynst 2016): filters by Chebyshev polynomials of a Laplacian.

.. math:: g(L) x = \sum_{k=0}^{K} \theta_k T_k(\hat L) x, \qquad \hat L = 2 \tilde L / \lambda_{\max} - I

No eigenvector is computed, and a node is reached by those at most K edges away. The spectrum of
:math:`\hat L` lies in [-1, 1], where :math:`|T_k| \le 1`; of :math:`\tilde L` itself they would grow.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.node_net import FeatureMap, given
from margin.geometric.spectral.filters import FilterNetwork
from margin.geometric.spectral.laplacian import Normalization, Symmetric
from margin.geometric.spectral.operators import EdgeWeight, Largest, checked, rescaled_of

Nodes = Float[Tensor, "nodes features"]


def chebyshev_filter(L_hat: Symmetric, x: Nodes, theta: Float[Tensor, " order_and_1"]) -> Nodes:
    r"""The filter :math:`\sum_k \theta_k T_k(\hat L) x`, by :math:`T_k = 2 \hat L T_{k-1} - T_{k-2}`.

    Args:
        L_hat: A rescaled Laplacian.
        x: Signals, a column each.
        theta: K + 1 coefficients, the same for each signal.
    """
    polynomials = chebyshev(L_hat, x, len(theta) - 1)
    return torch.einsum("k,kmd->md", theta, torch.stack(polynomials))


def chebyshev(L_hat: Symmetric, x: Nodes, order: int) -> list[Nodes]:
    """T_k(L^) x for k = 0 .. order."""
    found = [x]
    for k in range(1, order + 1):
        moved = L_hat @ found[-1]
        found.append(moved if k == 1 else 2 * moved - found[-2])
    return found


def clenshaw(
    L_hat: Symmetric, terms: Float[Tensor, "order_and_1 nodes features"]
) -> Float[Tensor, "nodes features"]:
    r"""The sum :math:`\sum_k T_k(\hat L) c_k` of signals c_k, by K products with the width of one.

    .. math:: b_k = c_k + 2 \hat L b_{k+1} - b_{k+2}, \qquad
        \sum_k T_k(\hat L) c_k = c_0 + \hat L b_1 - b_2

    Reference: Clenshaw 1955, Section 2.
    """
    if len(terms) == 1:
        return terms[0]
    *rest, b = terms.unbind(0)
    after = None
    for c in reversed(rest[1:]):
        moved = c + 2 * (L_hat @ b)
        b, after = (moved if after is None else moved - after), b
    summed = rest[0] + L_hat @ b
    return summed if after is None else summed - after


class ChebConv(nn.Module):
    r"""Chebyshev filters between channels: :math:`Y = \sum_{k=0}^{K} T_k(\hat L) X \Theta_k^\top + b`.

    Channels are mixed first and the polynomials summed by :func:`clenshaw`, so that the products with the
    graph have the width of Y, and a bag of words is read where it is not 0.

    The row of an isolated node of L is 0, so T_k is (-1)^k there. PyTorch Geometric and Kipf put a 1 in
    the normalized Laplacian's diagonal: 1, 0, -1, ... Elsewhere the layers are the same.

    Args:
        in_features: Channels of X.
        out_features: Channels of Y.
        order: K, edges that a node looks far; PyTorch Geometric counts K + 1.
        normalization: symmetric for the normalized Laplacian, none for D - A.
        largest: What lambda_max is taken as: a bound (2; twice the largest degree for D - A), or what the
            Lanczos process finds, with its error added.
        edge_weight: Whether the first number of an edge is its weight.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: The order is negative, the dropout no probability, or an option unknown.

    Reference:
        Defferrard et al. 2016, Section 2.1; Hammond, Vandergheynst and Gribonval 2011, Section 6.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        order: int = 2,
        normalization: Normalization = "symmetric",
        largest: Largest = "bound",
        edge_weight: EdgeWeight = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if order < 0:
            raise ValueError(f"order must be at least 0: got {order}")
        self.order = order
        self.normalization: Normalization = checked("normalization", normalization, Normalization)
        self.largest: Largest = checked("largest", largest, Largest)
        self.edge_weight: EdgeWeight = checked("edge_weight", edge_weight, EdgeWeight)
        self.linear = FeatureMap(in_features, (order + 1) * out_features, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(out_features))
        for theta in self.theta:
            nn.init.xavier_uniform_(theta)

    @property
    def theta(self) -> Float[Tensor, "order_and_1 out in"]:
        """The coefficients of each polynomial."""
        return self.linear.weight.unflatten(0, (self.order + 1, len(self.bias)))

    @property
    def hops(self) -> int:
        """Edges that an output looks far."""
        return self.order

    def operator(self, x: Nodes, edge_index: Int[Tensor, "2 edges"], edge_attr: Tensor) -> Symmetric:
        """L^ of a graph, in the type of its features."""
        return rescaled_of(
            edge_index,
            edge_attr,
            len(x),
            x.dtype,
            edge_weight=self.edge_weight,
            normalization=self.normalization,
            largest=self.largest,
        )

    def response(
        self, values: Float[Tensor, " frequencies"], largest: float
    ) -> Float[Tensor, "frequencies out in"]:
        """What the filters multiply signals of the given eigenvalues of the Laplacian by.

        Args:
            values: Eigenvalues.
            largest: lambda_max.
        """
        place = 2 * values / largest - 1
        order = torch.arange(self.order + 1, device=values.device)
        T_k = torch.special.chebyshev_polynomial_t(place[:, None], order)
        return torch.einsum("fk,koi->foi", T_k.to(self.theta), self.theta)

    def forward(
        self,
        x: Float[Tensor, "nodes in"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges width"],
    ) -> Float[Tensor, "nodes out"]:
        """The filtered signals of all nodes.

        Raises:
            ValueError: The graph is directed, or a weight is negative.
        """
        L_hat = self.operator(x, edge_index, edge_attr)
        mixed = self.linear(given(x)).unflatten(1, (self.order + 1, len(self.bias)))
        return clenshaw(L_hat, mixed.movedim(1, 0)) + self.bias

    def extra_repr(self) -> str:
        """The order, and which Laplacian."""
        return f"order={self.order}, normalization={self.normalization!r}, largest={self.largest!r}"


def chebnet(  # more than 7 parameters: they are the options of the model
    node_features: int,
    edge_features: int,
    num_classes: int,
    *,
    hidden: int = 16,
    layers: int = 2,
    order: int = 2,
    dropout: float = 0.5,
    normalization: Normalization = "symmetric",
    largest: Largest = "bound",
    edge_weight: EdgeWeight = "none",
) -> FilterNetwork:
    """Class logits of every node, from layers of Chebyshev filters with ReLU between them.

    Args:
        node_features: Numbers of each node.
        edge_features: Numbers of each edge.
        num_classes: Number of logits.
        hidden: Channels between layers.
        layers: Layers, at least 1: a node looks layers x order edges far.
        order: K of every filter.
        dropout: Probability with which an input of a layer is dropped in training, in [0, 1).
        normalization: symmetric for the normalized Laplacian, none for D - A.
        largest: lambda_max as a bound, or as the Lanczos process finds it.
        edge_weight: Whether the first number of an edge is its weight.

    Raises:
        ValueError: A size is out of range, or edges have no number to be their weight.
    """

    def layer(width: int, out: int) -> ChebConv:
        return ChebConv(
            width,
            out,
            order=order,
            normalization=normalization,
            largest=largest,
            edge_weight=edge_weight,
            dropout=dropout,
        )

    return FilterNetwork(
        layer,
        (node_features, hidden, num_classes),
        layers=layers,
        edge_weight=edge_weight,
        edge_features=edge_features,
    )
