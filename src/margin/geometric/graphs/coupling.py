r"""The coupling matrix of graph convolutions (Kipf and Welling 2017).

.. math:: \hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad d_i = 1 + \textstyle\sum_j a_{ij}

Its rows do not sum to 1 unless all degrees are equal, so it does not average; its spectral norm is 1 for
undirected graphs of non-negative weights.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.kept import kept
from margin.geometric.graphs.sparsity import Pattern, pattern

EdgeIndex = Int[Tensor, "2 edges"]
EdgeWeight = Literal["none", "first"]


def coupling(
    edge_index: EdgeIndex, num_nodes: int, weight: Float[Tensor, " edges"]
) -> tuple[Int[Tensor, "2 joined"], Float[Tensor, " joined"]]:
    r"""The entries :math:`(a_{ij} + \delta_{ij}) / \sqrt{d_i d_j}`, of the edges, then a loop a node.

    a_ij is the summed weight of the edges from j to i, and d_i = 1 + sum_j a_ij. A loop of weight w that is
    already there makes the diagonal w + 1, as A + I says (PyTorch Geometric leaves it at w). A node without
    edges has the diagonal 1. Of a directed graph d_i counts the edges that reach i.

    Args:
        edge_index: Row 0 is j, row 1 is i.
        num_nodes: M.
        weight: Of each edge, at least 0; differentiable.

    Returns:
        The edges with the loops appended, and the entry of each.

    Raises:
        ValueError: A weight is negative or NaN.

    Reference: Kipf and Welling 2017, Equation 2 with the renormalization of Section 2.2.
    """
    weight = _checked(weight)
    nodes = torch.arange(num_nodes, device=edge_index.device)
    both = torch.cat((edge_index, nodes.expand(2, -1)), 1)
    a = torch.cat((weight, weight.new_ones(num_nodes)))
    root = a.new_zeros(num_nodes).index_add(0, both[1], a).rsqrt()
    return both, root[both[0]] * a * root[both[1]]


def coupling_matrix(edge_index: EdgeIndex, num_nodes: int, weight: Float[Tensor, " edges"]) -> Tensor:
    """A_hat (M, M) as torch's sparse COO tensor, the entry (i, j) in row i."""
    both, values = coupling(edge_index, num_nodes, weight)
    found = torch.sparse_coo_tensor(both.flip(0), values, (num_nodes, num_nodes), check_invariants=False)
    return found.coalesce()


def weights_of(
    edge_attr: Float[Tensor, "edges edge_width"], edge_weight: EdgeWeight
) -> Float[Tensor, " edges"]:
    """What each edge weighs: 1, or its first feature.

    Raises:
        ValueError: The first feature is wanted and there is none.
    """
    if edge_weight == "none":
        return edge_attr.new_ones(len(edge_attr))
    if edge_attr.shape[1] == 0:
        raise ValueError("edge_weight=first needs edges that carry a feature: these carry none")
    return edge_attr[:, 0]


def coupled(
    edge_index: EdgeIndex,
    edge_attr: Float[Tensor, "edges edge_width"],
    num_nodes: int,
    edge_weight: EdgeWeight,
) -> tuple[Pattern, Float[Tensor, " joined"]]:
    """Where A_hat has entries, and which, by row; computed once for the same tensors of edges.

    Raises:
        ValueError: As :func:`coupling` and :func:`weights_of`.
    """
    return kept(_coupled, (edge_index, edge_attr), num_nodes, edge_weight)


def _coupled(
    edge_index: Tensor, edge_attr: Tensor, num_nodes: int, edge_weight: EdgeWeight
) -> tuple[Pattern, Tensor]:
    both, values = coupling(edge_index, num_nodes, weights_of(edge_attr, edge_weight))
    where = pattern(both[1], both[0], (num_nodes, num_nodes))
    return where, values.index_select(0, where.order)


def shares(
    edge_index: EdgeIndex,
    edge_attr: Float[Tensor, "edges edge_width"],
    num_nodes: int,
    edge_weight: EdgeWeight,
) -> tuple[Pattern, Float[Tensor, " edges"]]:
    r"""The entries :math:`a_{ij} / \sum_k a_{ik}` that average what reaches a node, by row; computed once.

    The row of a node that no weight reaches is 0.

    Raises:
        ValueError: A weight is negative or NaN, or the first feature is wanted and there is none.
    """
    return kept(_shares, (edge_index, edge_attr), num_nodes, edge_weight)


def _shares(
    edge_index: Tensor, edge_attr: Tensor, num_nodes: int, edge_weight: EdgeWeight
) -> tuple[Pattern, Tensor]:
    weight = _checked(weights_of(edge_attr, edge_weight))
    where = pattern(edge_index[1], edge_index[0], (num_nodes, num_nodes))
    total = weight.new_zeros(num_nodes).index_add(0, edge_index[1], weight)
    share = weight / total.masked_fill(total == 0, 1.0)[edge_index[1]]
    return where, share.index_select(0, where.order)


def _checked(weight: Float[Tensor, " edges"]) -> Float[Tensor, " edges"]:
    if not bool((weight >= 0).all()):
        edge = int((~(weight >= 0)).nonzero()[0])
        raise ValueError(f"edge weights must be at least 0: edge {edge} has {weight[edge].item():g}")
    return weight
