"""Steps along edges: how far a message must go from one node to another, and the parts that none leaves.

A message goes from the source of an edge to its target, so the distance of j to i counts directed edges.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra
from torch import Tensor

Edges = Int[Tensor, "2 edges"]


def steps_to(
    targets: Int[Tensor, " targets"], edge_index: Edges, num_nodes: int
) -> Float[Tensor, "targets nodes"]:
    """The least number of edges from each node to each target, infinite where no way leads there.

    Args:
        targets: Nodes i; row i of the answer holds the distance of every node j to it.
        edge_index: Sources and targets of messages.
        num_nodes: M.
    """
    source, target = edge_index.cpu().numpy()
    backward = coo_array((np.ones(len(source)), (target, source)), shape=(num_nodes, num_nodes)).tocsr()
    found = dijkstra(backward, indices=targets.cpu().numpy(), unweighted=True)
    return torch.from_numpy(np.asarray(found)).reshape(len(targets), num_nodes)


def components(edge_index: Edges, num_nodes: int) -> Int[Tensor, " nodes"]:
    """The number of the connected component of each node, 0 .. C-1, whichever way the edges point."""
    source, target = edge_index.cpu().numpy()
    graph = coo_array((np.ones(len(source)), (source, target)), shape=(num_nodes, num_nodes))
    _, labels = connected_components(graph, directed=False)
    return torch.from_numpy(labels.astype(np.int64))
