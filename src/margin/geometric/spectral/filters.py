r"""Spectral graph filters (Bruna et al. 2014): a signal's coefficients in the eigenbasis are multiplied.

.. math:: g(L) x = U g(\Lambda) U^\top x

The eigenvectors cost O(M^3) operations and M^2 numbers, once a graph; so graphs are limited. A learned filter
is a smooth function of the eigenvalue, so that it has as many parameters on every graph, and decays with
distance.

Layers of graph filters one behind another, with ReLU between them.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.node_net import FeatureMap, given
from margin.geometric.spectral.graph_fourier import Spectrum, inverse, transform
from margin.geometric.spectral.operators import EdgeWeight, checked, spectrum_of


class FilterNetwork(nn.Module):
    r"""The composition :math:`F_L \circ \sigma \circ \dots \circ \sigma \circ F_1` of graph filters.

    Args:
        layer: Makes the filter from so many channels to so many.
        widths: Channels before the first layer, between layers, and after the last.
        layers: L, at least 1.
        edge_weight: Whether the filters read the first number of an edge as its weight.
        edge_features: Numbers of each edge.

    Raises:
        ValueError: There is no layer, a width is below 1, or edges have no number to be their weight.
    """

    def __init__(
        self,
        layer: Callable[[int, int], nn.Module],
        widths: tuple[int, int, int],
        *,
        layers: int,
        edge_weight: EdgeWeight,
        edge_features: int,
    ) -> None:
        super().__init__()
        if layers < 1 or min(widths) < 1:
            raise ValueError(
                f"layers and channels must be at least 1: got {layers} layers, {[*widths]} channels"
            )
        if edge_weight == "first" and not edge_features:
            raise ValueError("edge_weight first needs edges that carry a number: they carry none")
        before, between, after = widths
        sizes = [before, *[between] * (layers - 1), after]
        self.layers = nn.ModuleList(map(layer, sizes[:-1], sizes[1:]))

    def forward(
        self,
        x: Float[Tensor, "nodes features"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges width"],
        sizes: Int[Tensor, " graphs"],
    ) -> Float[Tensor, "nodes classes"]:
        """The outputs of every node; graphs without an edge between them do not mix.

        Args:
            x: Features of the nodes.
            edge_index: Sources and targets, each edge in both directions.
            edge_attr: Features of the edges.
            sizes: Nodes of each graph.
        """
        for i, layer in enumerate(self.layers):
            x = layer(x.relu() if i else x, edge_index, edge_attr)
        return x


Nodes = Float[Tensor, "nodes features"]

DEGREE, TOP = 3, 2.0
"""Of the splines, and where their interval ends: the normalized Laplacian's spectrum lies in [0, 2]."""


def spectral_filter(spectrum: Spectrum, x: Nodes, g: Callable[[Tensor], Tensor]) -> Nodes:
    r"""The filter :math:`U g(\Lambda) U^\top x`.

    Args:
        spectrum: Eigenvalues and eigenvectors of a Laplacian.
        x: Signals, a column each.
        g: The response to each eigenvalue; exp(-t lambda) is the diffusion of heat for a time t.
    """
    return inverse(spectrum.basis, g(spectrum.values)[:, None] * transform(spectrum.basis, x))


def splines(values: Float[Tensor, " frequencies"], count: int) -> Float[Tensor, "frequencies count"]:
    """Cubic B-splines on [0, 2], evenly spaced with clamped ends; at every point they sum to 1.

    A value outside, by rounding, is given what the end is given.

    Args:
        values: Where they are asked.
        count: How many, at least 4.

    Reference: de Boor 1978, A Practical Guide to Splines, Chapter IX (his recurrence, Equation 14).
    """
    inner = torch.linspace(0.0, TOP, count - DEGREE + 1, dtype=values.dtype, device=values.device)
    knots = torch.cat((inner.new_zeros(DEGREE), inner, inner.new_full((DEGREE,), TOP)))
    x = values.clamp(0.0, TOP)[:, None]
    piece = (torch.searchsorted(inner, x.contiguous(), right=True) - 1).clamp(0, len(inner) - 2) + DEGREE
    found = torch.zeros(len(x), len(knots) - 1, dtype=values.dtype, device=values.device)
    found.scatter_(1, piece, 1.0)
    for degree in range(1, DEGREE + 1):
        rise = knots[degree:-1] - knots[: -degree - 1]
        fall = knots[degree + 1 :] - knots[1:-degree]
        up = torch.where(rise > 0, (x - knots[: -degree - 1]) / rise, 0.0)
        down = torch.where(fall > 0, (knots[degree + 1 :] - x) / fall, 0.0)
        found = up * found[:, :-1] + down * found[:, 1:]
    return found


class SpectralConv(nn.Module):
    r"""Smooth filters between channels: :math:`Y = U \sum_j B_j(\Lambda) U^\top X \Theta_j^\top + b`.

    B_j are cubic splines of the normalized Laplacian's eigenvalue. The output does not depend on the choice
    of eigenvectors. Every node of a component looks at every other.

    Args:
        in_features: Channels of X.
        out_features: Channels of Y.
        knots: Splines, at least 4.
        edge_weight: Whether the first number of an edge is its weight.
        dropout: Probability with which a number of X is dropped in training, in [0, 1).

    Raises:
        ValueError: There are fewer than 4 splines, the dropout is no probability, or an option unknown.

    Reference:
        Bruna et al. 2014, Section 3; Henaff, Bruna and LeCun 2015, Section 3 (smooth multipliers).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        knots: int = 6,
        edge_weight: EdgeWeight = "none",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if knots <= DEGREE:
            raise ValueError(f"knots must be at least {DEGREE + 1}: got {knots}")
        self.knots = knots
        self.edge_weight: EdgeWeight = checked("edge_weight", edge_weight, EdgeWeight)
        self.linear = FeatureMap(in_features, knots * out_features, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(out_features))
        for theta in self.theta:
            nn.init.xavier_uniform_(theta)

    @property
    def theta(self) -> Float[Tensor, "knots out in"]:
        """The coefficients of each spline."""
        return self.linear.weight.unflatten(0, (self.knots, len(self.bias)))

    def response(self, values: Float[Tensor, " frequencies"]) -> Float[Tensor, "frequencies out in"]:
        """What the filters multiply signals of the given eigenvalues of the Laplacian by."""
        B = splines(values.to(self.theta), self.knots)
        return torch.einsum("fj,joi->foi", B, self.theta)

    def forward(
        self,
        x: Float[Tensor, "nodes in"],
        edge_index: Int[Tensor, "2 edges"],
        edge_attr: Float[Tensor, "edges width"],
    ) -> Float[Tensor, "nodes out"]:
        """The filtered signals of all nodes.

        Raises:
            ValueError: The graph is directed, a weight is negative, or there are more nodes than eigenvectors
                are computed of.
        """
        values, U = spectrum_of(edge_index, edge_attr, len(x), x.dtype, edge_weight=self.edge_weight)
        mixed = transform(U, self.linear(given(x))).unflatten(1, (self.knots, len(self.bias)))
        return inverse(U, torch.einsum("fj,fjo->fo", splines(values, self.knots), mixed)) + self.bias

    def extra_repr(self) -> str:
        """The number of splines."""
        return f"knots={self.knots}"


def spectral_network(  # more than 7 parameters: they are the options of the model
    node_features: int,
    edge_features: int,
    num_classes: int,
    *,
    hidden: int = 16,
    layers: int = 2,
    knots: int = 6,
    dropout: float = 0.5,
    edge_weight: EdgeWeight = "none",
) -> FilterNetwork:
    """Class logits of every node, from layers of smooth spectral filters with ReLU between them.

    Args:
        node_features: Numbers of each node.
        edge_features: Numbers of each edge.
        num_classes: Number of logits.
        hidden: Channels between layers.
        layers: Layers, at least 1.
        knots: Splines of every filter, at least 4.
        dropout: Probability with which an input of a layer is dropped in training, in [0, 1).
        edge_weight: Whether the first number of an edge is its weight.

    Raises:
        ValueError: A size is out of range, or edges have no number to be their weight.
    """

    def layer(width: int, out: int) -> SpectralConv:
        return SpectralConv(width, out, knots=knots, edge_weight=edge_weight, dropout=dropout)

    return FilterNetwork(
        layer,
        (node_features, hidden, num_classes),
        layers=layers,
        edge_weight=edge_weight,
        edge_features=edge_features,
    )
