r"""The graph Laplacian L = D - A (Chung 1997): how much each node differs from its neighbors.

.. math:: (L x)_n = \sum_m a_{nm} (x_n - x_m), \qquad x^\top L x = \tfrac12 \sum_{nm} a_{nm} (x_n - x_m)^2

Its sign is opposite to that of the Laplacian of calculus. It is kept sparse, as a symmetric matrix by rows.

Graphs whose spectra are known: paths, cycles, and random ones, as lists of edges in both directions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.geometric.graphs.sparsity import Pattern, pattern, product
from margin.theory.curvature.lanczos import extreme_eigenvalues, random_direction

Normalization = Literal["symmetric", "none"]
Signals = Float[Tensor, "nodes features"]

DENSE = 512
"""Nodes of graphs whose largest eigenvalue is taken from the whole spectrum."""

UNDIRECTED = "a Laplacian needs an undirected graph"

TOLERANCE = 1e-4
"""Residual, relative, at which the largest eigenvalue of larger graphs is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class Symmetric:
    """A real symmetric matrix (M, M), those entries alone that are not 0.

    Args:
        where: Where they are; columns ascend in a row.
        values: The entries, by row.
    """

    where: Pattern
    values: Float[Tensor, " entries"]

    @property
    def num_nodes(self) -> int:
        """M."""
        return self.where.shape[0]

    def row_sums(self) -> Float[Tensor, " nodes"]:
        """The sum of each row."""
        return self.values.new_zeros(self.num_nodes).index_add(0, self.where.row, self.values)

    def dense(self) -> Float[Tensor, "nodes nodes"]:
        """The matrix with its zeros: M^2 numbers."""
        matrix = self.values.new_zeros(self.num_nodes, self.num_nodes)
        matrix[self.where.row.long(), self.where.column.long()] = self.values
        return matrix

    def double(self) -> "Symmetric":
        """The matrix in float64."""
        return Symmetric(self.where, self.values.double())

    def __matmul__(self, x: Signals) -> Signals:
        """The product with each column of x, in O(entries x features)."""
        return product(self.where, self.values, x)


def adjacency(
    edge_index: Int[Tensor, "2 edges"],
    num_nodes: int,
    weight: Float[Tensor, " edges"] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Symmetric:
    """The adjacency matrix A of an undirected graph without its loops, which no Laplacian sees.

    A loop adds as much to D as to A. It is left out of the degrees of the normalized Laplacian too, as scipy
    and PyTorch Geometric do. Edges that join the same two nodes add up; an edge of weight 0 is none.

    Args:
        edge_index: Sources and targets, each edge in both directions.
        num_nodes: M.
        weight: a_nm of each edge, at least 0; None is 1 for all.
        dtype: Type of the entries where there is no weight.

    Raises:
        ValueError: An edge's node does not exist, a weight is negative or not finite, or an edge has no
            counterpart of the same weight; the message names the first.
    """
    if weight is None:
        weight = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    _check(edge_index, num_nodes, weight)
    kept = ((edge_index[0] != edge_index[1]) & (weight != 0)).nonzero()[:, 0]
    source, target = edge_index[:, kept]
    keys, place = (target * num_nodes + source).unique(return_inverse=True)
    values = weight.new_zeros(len(keys)).index_add(0, place, weight[kept])
    row, column = keys // max(num_nodes, 1), keys % max(num_nodes, 1)
    turned = (column * max(num_nodes, 1) + row).sort()
    wrong = (keys != turned.values).nonzero()[:, 0]
    if len(wrong):
        _refuse(keys, turned.values, int(wrong[0]), num_nodes)
    unlike = (~values.isclose(values[turned.indices], rtol=1e-6, atol=0.0)).nonzero()[:, 0]
    if len(unlike):
        ends, other = unlike[0], turned.indices[unlike[0]]
        raise ValueError(
            f"{UNDIRECTED}: {column[ends]} -> {row[ends]} weighs {values[ends]:.6g}, "
            f"{row[ends]} -> {column[ends]} weighs {values[other]:.6g}"
        )
    return Symmetric(pattern(row, column, (num_nodes, num_nodes)), values)


def laplacian(A: Symmetric, *, normalization: Normalization = "none") -> Symmetric:
    r"""The Laplacian D - A, or the normalized one :math:`D^{-1/2} (D - A) D^{-1/2}`.

    The row of an isolated node is 0 in both (PyTorch Geometric puts a 1 in the normalized one's diagonal).

    Args:
        A: An adjacency matrix without loops.
        normalization: none for D - A, symmetric for the normalized one.

    Reference: Chung 1997, Section 1.2.
    """
    degree = A.row_sums()
    if normalization == "none":
        return _shifted(A, -1.0, degree)
    root = degree.rsqrt().masked_fill(degree == 0, 0.0)
    coupling = Symmetric(A.where, root[A.where.row] * A.values * root[A.where.column])
    return _shifted(coupling, -1.0, (degree > 0).to(degree))


def rescaled(L: Symmetric, largest: float) -> Symmetric:
    r"""L^ = 2 L / lambda_max - I, whose spectrum lies in [-1, 1]; -I where there is no edge.

    Args:
        L: A Laplacian.
        largest: lambda_max, at least the largest eigenvalue.

    Raises:
        ValueError: ``largest`` is negative, not finite, or 0 where L is not.

    Reference: Defferrard, Bresson and Vandergheynst 2016, Section 2.1.
    """
    if not (math.isfinite(largest) and largest >= 0 and (largest > 0 or not len(L.values))):
        raise ValueError(f"the largest eigenvalue must be finite and positive: got {largest:g}")
    return _shifted(L, 2.0 / largest if largest else 0.0, -torch.ones_like(L.row_sums()))


def largest_bound(L: Symmetric) -> float:
    """No eigenvalue of a Laplacian is larger: twice its largest entry, which is on the diagonal.

    That is 2 for the normalized one, twice the largest degree for D - A (Gershgorin).
    """
    return 2.0 * float(L.values.max()) if len(L.values) else 0.0


def largest_eigenvalue(L: Symmetric) -> tuple[float, float]:
    """The largest eigenvalue of a Laplacian, and how far an eigenvalue may lie from what is returned.

    Of graphs of at most :data:`DENSE` nodes the whole spectrum is computed, in float64; of larger ones the
    Lanczos process finds an eigenvalue, which is the largest with probability 1 over its start.

    Returns:
        The eigenvalue, and its error.

    Raises:
        ArithmeticError: The process has not converged.
    """
    wide = Symmetric(L.where, L.values.detach().double())
    if not len(L.values):
        return 0.0, 0.0
    if L.num_nodes <= DENSE:
        value = float(torch.linalg.eigvalsh(wide.dense())[-1])
        return value, L.num_nodes * torch.finfo(torch.float64).eps * value
    found = extreme_eigenvalues(
        lambda v: (wide @ v[:, None])[:, 0],
        random_direction(L.num_nodes, device=L.values.device),
        ends=("largest",),
        tol=TOLERANCE,
        max_iterations=300,
    )
    if not found.converged:
        raise ArithmeticError(f"the largest eigenvalue has not converged in {found.iterations} steps")
    return float(found.values[0]), float(found.residuals[0])


def dirichlet_energy(A: Symmetric, x: Signals) -> Float[Tensor, " features"]:
    r"""How much each signal differs along edges: :math:`\tfrac12 \sum_{nm} a_{nm} (x_n - x_m)^2`, x^T L x.

    It is computed edge by edge, not by a Laplacian.
    """
    along = (x[A.where.row] - x[A.where.column]).square()
    return 0.5 * (A.values[:, None] * along).sum(0)


def _shifted(S: Symmetric, factor: float, diagonal: Tensor) -> Symmetric:
    """The matrix factor S + diag(diagonal), of which zeros are left out."""
    size, place = S.num_nodes, torch.arange(S.num_nodes, device=S.values.device)
    row, column = torch.cat((S.where.row, place)), torch.cat((S.where.column, place))
    keys, entry = (row * max(size, 1) + column).unique(return_inverse=True)
    values = S.values.new_zeros(len(keys)).index_add(0, entry, torch.cat((factor * S.values, diagonal)))
    kept = (values != 0).nonzero()[:, 0]
    row, column = keys[kept] // max(size, 1), keys[kept] % max(size, 1)
    return Symmetric(pattern(row, column, (size, size)), values[kept])


def _check(edge_index: Tensor, num_nodes: int, weight: Tensor) -> None:
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        low, high = int(edge_index.min()), int(edge_index.max())
        raise ValueError(f"an edge joins nodes 0 .. {num_nodes - 1}: got {low} .. {high}")
    if len(weight) != edge_index.shape[1]:
        raise ValueError(f"each edge has a weight: got {edge_index.shape[1]} edges, {len(weight)} weights")
    wrong = (~(weight.isfinite() & (weight >= 0))).nonzero()[:, 0]
    if len(wrong):
        raise ValueError(
            f"the weights of a Laplacian must be finite and at least 0: edge {int(wrong[0])} "
            f"has {float(weight[wrong[0]]):g}"
        )


def _refuse(keys: Tensor, turned: Tensor, place: int, num_nodes: int) -> None:
    """Both lists ascend and differ first at ``place``: the smaller key is missing from the other list."""
    here, there = int(keys[place]), int(turned[place])
    target, source = divmod(here, num_nodes) if here < there else divmod(there, num_nodes)[::-1]
    raise ValueError(f"{UNDIRECTED}: there is an edge {source} -> {target}, but none {target} -> {source}")


Edges = Int[Tensor, "2 edges"]


def undirected(pairs: Sequence[tuple[int, int]]) -> Edges:
    """Each of some pairs of nodes as an edge in both directions, all first ones before the second."""
    edges = torch.tensor([*pairs], dtype=torch.int64).reshape(-1, 2).T
    return torch.cat((edges, edges.flip(0)), 1)


def path(size: int) -> Edges:
    """Nodes in a row; the eigenvalues of D - A are 2 - 2 cos(pi k / M) for k = 0 .. M - 1."""
    return undirected([(i, i + 1) for i in range(size - 1)])


def cycle(size: int) -> Edges:
    """Nodes in a circle, at least 3; the eigenvalues of D - A are 2 - 2 cos(2 pi k / M), k = 0 .. M - 1."""
    if size < 3:
        raise ValueError(f"a cycle has at least 3 nodes: got {size}")
    return undirected([(i, (i + 1) % size) for i in range(size)])


def weighted_random(size: int, share: float, seed: int) -> tuple[Edges, Float[Tensor, " edges"]]:
    """Each pair of nodes but the last, which has no edge, joined with a probability, weighing 0.1 to 1.1.

    Args:
        size: Nodes.
        share: The probability.
        seed: Of what is drawn.
    """
    generator = Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(size - 1))
    pairs = pairs[torch.rand(len(pairs), generator=generator) < share].T
    weight = torch.rand(pairs.shape[1], generator=generator, dtype=torch.float64) + 0.1
    return torch.cat((pairs, pairs.flip(0)), 1), torch.cat((weight, weight))
