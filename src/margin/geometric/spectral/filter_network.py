"""Layers of graph filters one behind another, with ReLU between them."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.spectral.operators import EdgeWeight


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
