"""From rows of nodes to an answer a graph: sums, means or largest values, and affine maps of them."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn

from margin.geometric.graphs.aggregation import How as Pool
from margin.geometric.graphs.aggregation import pooled
from margin.geometric.graphs.node_net import EdgeAttr, EdgeIndex, NodeNet
from margin.nn.dropping import Dropout

__all__ = ["GraphReadout", "LayerReadout", "LayerRegressor", "Pool"]

Nodes = Float[Tensor, "nodes features"]
Sizes = Int[Tensor, " graphs"]


class GraphReadout(nn.Module):
    r"""An affine map of each graph's pooled rows, :math:`W\,\mathrm{pool}_i(\mathrm{relu}(h_i)) + b`.

    A graph without nodes has the pooled row 0.

    Args:
        net: From features to the rows h, of ``width`` numbers.
        width: Numbers of a row.
        outputs: Numbers of an answer, as the logits of classes.
        pool: How the rows of a graph become one; the sum alone knows how many nodes there are.
        dropout: Probability with which a number of a pooled row is dropped in training, in [0, 1).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Xu, Hu, Leskovec and Jegelka 2019, Equation 2.4 and Section 5.2.
    """

    def __init__(self, net: NodeNet, width: int, outputs: int, *, pool: Pool, dropout: float) -> None:
        super().__init__()
        self.net, self.pool = net, _checked(pool)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(width, outputs)

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, "graphs outputs"]:
        """The answer of each graph."""
        rows = self.net(x, edge_index, edge_attr, sizes).relu()
        return self.head(self.dropout(pooled(rows, sizes, self.pool)))


class LayerReadout(nn.Module):
    r"""The sum over the layers of a linear map of each graph's pooled rows; the features are layer 0.

    .. math:: f(G) = \sum_{k=0}^{L} W_k\, \mathrm{pool}_i\, h_i^{(k)} + b

    Args:
        net: The layers.
        sizes: Numbers of a node before the first layer and after each.
        outputs: Numbers of an answer, as the logits of classes.
        pool: How the rows of a graph become one.
        dropout: Probability with which a number of a pooled row is dropped in training, in [0, 1).

    Raises:
        ValueError: An option is out of range.

    Reference:
        Xu, Hu, Leskovec and Jegelka 2019, Equation 4.2; a map a layer, which are added, instead of one of the
        pooled rows side by side: the same set of functions.
    """

    def __init__(
        self, net: NodeNet, sizes: Sequence[int], outputs: int, *, pool: Pool, dropout: float
    ) -> None:
        super().__init__()
        self.net, self.pool = net, _checked(pool)
        self.dropout = Dropout(dropout)
        self.heads = nn.ModuleList(nn.Linear(size, outputs, bias=k == 0) for k, size in enumerate(sizes))

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, "graphs outputs"]:
        """The answer of each graph."""
        rows = [x, *self.net.embeddings(x, edge_index, edge_attr)]
        found = [
            head(self.dropout(pooled(each, sizes, self.pool)))
            for head, each in zip(self.heads, rows, strict=True)
        ]
        total: Tensor = sum(found[1:], found[0])
        return total


class LayerRegressor(nn.Module):
    """One real number of every graph, the one output of a readout.

    Args:
        readout: A readout of one output.
    """

    def __init__(self, readout: LayerReadout) -> None:
        super().__init__()
        self.readout = readout

    def forward(
        self, x: Nodes, edge_index: EdgeIndex, edge_attr: EdgeAttr, sizes: Sizes
    ) -> Float[Tensor, " graphs"]:
        """The number of each graph."""
        found: Tensor = self.readout(x, edge_index, edge_attr, sizes)
        return found.squeeze(1)


def _checked(pool: Pool) -> Pool:
    if pool not in ("sum", "mean", "max"):
        raise ValueError(f"pool must be sum, mean or max: got {pool!r}")
    return pool
