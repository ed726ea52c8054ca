r"""Oversmoothing: propagated features forget all but the degree, one number a component (Li et al. 2018).

For an undirected graph of weights at least 0 :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}` has the eigenvalue 1
once a component c, with :math:`u_c = D^{1/2} 1_c`; every other lies in (-1, 1). So

.. math:: \hat A^k X \to \sum_c \frac{u_c u_c^\top}{\lVert u_c \rVert^2} X, \qquad
    \lVert \hat A^k X - \mathrm{limit} \rVert \le r^k \lVert X - \mathrm{limit} \rVert, \quad
    r = \max_{\lambda \ne 1} |\lambda|.

Nodes do not approach one value but one times the root of d_m = 1 + deg(m), in each component its own.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.geometric.graphs.coupling import coupling_matrix
from margin.geometric.graphs.hops import components
from margin.theory.curvature.eigenpairs import leading_eigenpairs
from margin.theory.curvature.lanczos import random_direction

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
