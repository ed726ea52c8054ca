"""Graph convolutions (Kipf and Welling 2017) whose rows are pooled: one answer a graph."""

from margin.geometric.graphs.coupling import EdgeWeight
from margin.geometric.graphs.gcn import GCN
from margin.geometric.graphs.readouts import GraphReadout, Pool


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
    return GraphReadout(net, hidden, num_classes, pool=pool, dropout=dropout)
