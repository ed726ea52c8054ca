r"""Oversmoothing: propagated features forget all but the degree, one number a component (Li et al. 2018).

For an undirected graph of weights at least 0 :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}` has the eigenvalue 1
once a component c, with :math:`u_c = D^{1/2} 1_c`; every other lies in (-1, 1). So

.. math:: \hat A^k X \to \sum_c \frac{u_c u_c^\top}{\lVert u_c \rVert^2} X, \qquad
    \lVert \hat A^k X - \mathrm{limit} \rVert \le r^k \lVert X - \mathrm{limit} \rVert, \quad
    r = \max_{\lambda \ne 1} |\lambda|.

Nodes do not approach one value but one times the root of d_m = 1 + deg(m), in each component its own.

The coupling matrix of graph convolutions (Kipf and Welling 2017).

.. math:: \hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad d_i = 1 + \textstyle\sum_j a_{ij}

Its rows do not sum to 1 unless all degrees are equal, so it does not average; its spectral norm is 1 for
undirected graphs of non-negative weights.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.message_passing import cached_by_tensor, components
from margin.geometric.graphs.sparsity import Pattern, pattern
from margin.theory.curvature.eigenpairs import leading_eigenpairs
from margin.theory.curvature.lanczos import random_direction

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
    return cached_by_tensor(_coupled, (edge_index, edge_attr), num_nodes, edge_weight)


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
    return cached_by_tensor(_shares, (edge_index, edge_attr), num_nodes, edge_weight)


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


Features = Float[Tensor, "nodes features"]

DENSE = 512
"""Nodes of graphs whose whole spectrum is computed."""

TOLERANCE = 1e-6
"""Residual of the eigenvalue that Lanczos finds on larger ones."""


class Smoothing(NamedTuple):
    """A coupling matrix with what its powers tend to.

    Args:
        matrix: A_hat (M, M), sparse, float64.
        root: sqrt(d_m) of each node, the eigenvectors of 1 put together.
        component: The component of each node, 0 .. C-1.
    """

    matrix: Tensor
    root: Float[Tensor, " nodes"]
    component: Int[Tensor, " nodes"]


def smoothing_of(
    edge_index: Int[Tensor, "2 edges"], num_nodes: int, weight: Float[Tensor, " edges"] | None = None
) -> Smoothing:
    """A_hat = D^{-1/2} (A + I) D^{-1/2} of an undirected graph, d_m = 1 + the weights that lead to m.

    A loop of weight w becomes one of w + 1, and several edges between two nodes add up.

    Args:
        edge_index: Sources and targets; every edge in both directions.
        num_nodes: M.
        weight: Of each edge, at least 0; None: 1.

    Raises:
        ValueError: A weight is negative, or an edge has no like in the other direction.
    """
    edges = edge_index.cpu()
    own = (
        torch.ones(edges.shape[1], dtype=torch.float64) if weight is None else weight.detach().cpu().double()
    )
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # else torch warns that it does not
        matrix = coupling_matrix(edges, num_nodes, own)
    back = matrix.t().coalesce()
    alike = torch.equal(back.indices(), matrix.indices())
    if not alike or not torch.allclose(back.values(), matrix.values(), rtol=1e-6, atol=0):
        raise ValueError("the graph must be undirected: an edge has no like in the other direction")
    root = own.new_ones(num_nodes).index_add_(0, edges[1], own).sqrt()
    return Smoothing(matrix, root, components(edges, num_nodes))


def limit(smoothing: Smoothing, x: Features) -> Features:
    """What A_hat^k X tends to: in each component the projection of X on the root of the degrees."""
    _, root, component = smoothing
    count = int(component.max()) + 1 if len(component) else 0
    length = root.new_zeros(count).index_add_(0, component, root.square())
    along = x.new_zeros(count, x.shape[1]).index_add_(0, component, root[:, None] * x)
    return root[:, None] * (along / length[:, None])[component]


def dirichlet_energy(smoothing: Smoothing, x: Features) -> float:
    r"""How unlike neighbors are, each divided by the root of its degree.

    .. math:: E(X) = \frac12 \sum_{mn} a_{mn} \lVert x_m / \sqrt{d_m} - x_n / \sqrt{d_n} \rVert^2

    That is tr X^T (I - A_hat) X with d_m = 1 + deg(m); it is computed so. 0 exactly at the limit.

    Reference: Cai and Wang 2020, Section 3.
    """
    return float((x * (x - smoothing.matrix @ x)).sum())


class Rate(NamedTuple):
    """The largest magnitude of an eigenvalue that is no component's 1, with its error.

    ``signed`` is that eigenvalue; ``error`` its residual, 0 where the whole spectrum was computed.
    """

    value: float
    signed: float
    error: float
    converged: bool


def rate(smoothing: Smoothing) -> Rate:
    """The rate r = max |lambda| over the eigenvalues of A_hat but one 1 for each component.

    The eigenvectors of those ones are known, and projected away. Up to :data:`DENSE` nodes the whole spectrum
    is computed, beyond by Lanczos with restarts. 0 where no other eigenvalue is: all nodes are isolated.
    """
    count = len(smoothing.root)

    def product(v: Tensor) -> Tensor:
        return (smoothing.matrix @ v[:, None] - limit(smoothing, v[:, None]))[:, 0]

    if count <= DENSE:
        eye = torch.eye(count, dtype=torch.float64)
        values = torch.linalg.eigvalsh(smoothing.matrix @ eye - limit(smoothing, eye))
        signed = float(values[values.abs().argmax()])
        return Rate(abs(signed), signed, 0.0, True)
    start = random_direction(count)
    found = leading_eigenpairs(product, start, 1, by="magnitude", tol=TOLERANCE, max_products=3000)
    signed = float(found.values[0])
    return Rate(abs(signed), signed, float(found.residuals[0]), found.converged)


def distances(smoothing: Smoothing, x: Features, depth: int) -> Float[Tensor, " depths"]:
    """|A_hat^k X - limit| in the Frobenius norm for k = 0 .. depth."""
    end = limit(smoothing, x)
    gap, norms = x - end, []
    for _ in range(depth + 1):
        norms.append(gap.norm())
        # the limit is kept by A_hat: what rounding puts back along it is taken away again
        gap = smoothing.matrix @ gap
        gap = gap - limit(smoothing, gap)
    return torch.stack(norms)
