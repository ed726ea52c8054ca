r"""Polynomial graph filters (Sandryhaila and Moura 2013): sums of powers of a Laplacian, local in K edges.

.. math:: p(L) x = \sum_{k=0}^{K} \alpha_k L^k x = U p(\Lambda) U^\top x

With channels m of the output and n of the input, :math:`\xi_m = \sum_n p_{mn}(L) x_n + b_m`, where each x_n
holds one number a node and each :math:`p_{mn}` has its own K + 1 coefficients.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.node_net import FeatureMap, given
from margin.geometric.spectral.filters import FilterNetwork
from margin.geometric.spectral.laplacian import Normalization, Symmetric
from margin.geometric.spectral.operators import EdgeWeight, checked, laplacian_of

Nodes = Float[Tensor, "nodes features"]


def polynomial_filter(L: Symmetric, x: Nodes, alpha: Float[Tensor, " degree_and_1"]) -> Nodes:
    r"""The filter :math:`\sum_{k=0}^{K} \alpha_k L^k x`, the same for each signal, by Horner's rule.

    Args:
        L: A Laplacian.
        x: Signals, a column each.
        alpha: K + 1 coefficients, that of the identity first.
    """
    return horner(L, alpha[:, None, None] * x)


def horner(L: Symmetric, terms: Float[Tensor, "degree_and_1 nodes features"]) -> Nodes:
    r"""The sum :math:`\sum_k L^k c_k` of signals c_k, by K products."""
    *rest, y = terms.unbind(0)
    for c in reversed(rest):
        y = c + L @ y
    return y


def interpolating(
    values: Float[Tensor, " nodes"], response: Float[Tensor, " nodes"]
) -> Float[Tensor, " nodes"]:
    """The coefficients of the polynomial of degree M - 1 that gives each of M eigenvalues a response.

    So a polynomial reproduces any filter of a graph whose eigenvalues are distinct. Their Vandermonde matrix
    is solved in float64; its condition grows exponentially with M.

    Args:
        values: Distinct eigenvalues.
        response: What each is to be multiplied by.

    Raises:
        ValueError: Two eigenvalues are equal: a polynomial gives them one response.
    """
    if len(values.unique()) < len(values):
        raise ValueError("a polynomial gives equal eigenvalues one response: got eigenvalues that repeat")
    powers = torch.linalg.vander(values.double())
    return torch.linalg.solve(powers, response.double()[:, None])[:, 0].to(response)


class PolynomialConv(nn.Module):
    r"""Polynomial filters between channels: :math:`Y = \sum_{k=0}^{K} L^k X A_k^\top + b`.

    Args:
        in_features: Channels of X.
        out_features: Channels of Y.
        degree: K, edges that a node looks far.
        normalization: symmetric for the normalized Laplacian; none for D - A, whose powers grow as the
            largest degree's do.
        edge_weight: Whether the first number of an edge is its weight.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: The degree is negative, the dropout no probability, or an option unknown.

    Reference:
        Sandryhaila and Moura 2013, Section III, with a Laplacian for the shift.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        degree: int = 2,
        normalization: Normalization = "symmetric",
        edge_weight: EdgeWeight = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if degree < 0:
            raise ValueError(f"degree must be at least 0: got {degree}")
        self.degree = degree
        self.normalization: Normalization = checked("normalization", normalization, Normalization)
        self.edge_weight: EdgeWeight = checked("edge_weight", edge_weight, EdgeWeight)
        self.linear = FeatureMap(in_features, (degree + 1) * out_features, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(out_features))
        for alpha in self.alpha:
            nn.init.xavier_uniform_(alpha)

    @property
    def alpha(self) -> Float[Tensor, "degree_and_1 out in"]:
        """The coefficients of each polynomial."""
        return self.linear.weight.unflatten(0, (self.degree + 1, len(self.bias)))

    @property
    def hops(self) -> int:
        """Edges that an output looks far."""
        return self.degree

    def response(self, values: Float[Tensor, " frequencies"]) -> Float[Tensor, "frequencies out in"]:
        """What the filters multiply signals of the given eigenvalues of the Laplacian by."""
        powers = values[:, None] ** torch.arange(self.degree + 1, device=values.device)
        return torch.einsum("fk,koi->foi", powers.to(self.alpha), self.alpha)

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
        L = laplacian_of(
            edge_index,
            edge_attr,
            len(x),
            x.dtype,
            edge_weight=self.edge_weight,
            normalization=self.normalization,
        )
        mixed = self.linear(given(x)).unflatten(1, (self.degree + 1, len(self.bias)))
        return horner(L, mixed.movedim(1, 0)) + self.bias

    def extra_repr(self) -> str:
        """The degree, and which Laplacian."""
        return f"degree={self.degree}, normalization={self.normalization!r}"


def polynomial_network(  # more than 7 parameters: they are the options of the model
    node_features: int,
    edge_features: int,
    num_classes: int,
    *,
    hidden: int = 16,
    layers: int = 2,
    degree: int = 2,
    dropout: float = 0.5,
    normalization: Normalization = "symmetric",
    edge_weight: EdgeWeight = "none",
) -> FilterNetwork:
    """Class logits of every node, from layers of polynomial filters with ReLU between them.

    Every power of L favors what differs between neighbors, so training in these coefficients finds rough
    functions first. Where neighbors are alike, as papers that cite each other, it generalizes badly; ChebNet
    of the same order has the same functions in another basis, and does not.

    Args:
        node_features: Numbers of each node.
        edge_features: Numbers of each edge.
        num_classes: Number of logits.
        hidden: Channels between layers.
        layers: Layers, at least 1: a node looks layers x degree edges far.
        degree: K of every filter.
        dropout: Probability with which an input of a layer is dropped in training, in [0, 1).
        normalization: symmetric for the normalized Laplacian, none for D - A.
        edge_weight: Whether the first number of an edge is its weight.

    Raises:
        ValueError: A size is out of range, or edges have no number to be their weight.
    """

    def layer(width: int, out: int) -> PolynomialConv:
        return PolynomialConv(width, out, degree=degree, normalization=normalization, edge_weight=edge_weight)

    return FilterNetwork(
        layer,
        (node_features, hidden, num_classes),
        layers=layers,
        edge_weight=edge_weight,
        edge_features=edge_features,
    )
