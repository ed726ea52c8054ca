r"""The graph Fourier transform (Shuman et al. 2013): a signal in the eigenvectors of a graph's Laplacian.

.. math:: L = U \Lambda U^\top, \qquad \hat x = U^\top x, \qquad
    x * y = U \bigl( (U^\top x) \odot (U^\top y) \bigr)

A filter :math:`U g(\Lambda) U^\top` is the same whatever eigenvectors are chosen. The convolution is not: it
depends on the sign of each, and on the basis of each eigenspace of more dimensions. On a cycle, Fourier's
basis makes it the circular convolution, divided by the root of M.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from margin.geometric.spectral.laplacian import Symmetric

MOST_NODES = 4000
"""Nodes of graphs whose eigenvectors are computed: M^2 numbers are held, M^3 operations done."""

Basis = Inexact[Tensor, "nodes nodes"]
Signals = Inexact[Tensor, "nodes *features"]


class Spectrum(NamedTuple):
    """Eigenvalues of a Laplacian, ascending, and an orthonormal basis of eigenvectors, its columns."""

    values: Float[Tensor, " nodes"]
    basis: Float[Tensor, "nodes nodes"]


def check_size(num_nodes: int) -> None:
    """Refuse a graph of more than :data:`MOST_NODES` nodes.

    Raises:
        ValueError: As said above.
    """
    if num_nodes > MOST_NODES:
        raise ValueError(
            f"eigenvectors are computed of graphs of at most {MOST_NODES:,} nodes: got {num_nodes:,}; "
            "a polynomial filter or ChebNet needs none"
        )


def spectrum(L: Symmetric) -> Spectrum:
    """The eigenvalues and eigenvectors of a Laplacian, computed in float64, in its own type.

    Of each eigenvector the first entry of at least half the largest magnitude is positive, which leaves the
    basis of eigenspaces of more dimensions free.

    Args:
        L: Of at most :data:`MOST_NODES` nodes.

    Raises:
        ValueError: There are more.
    """
    check_size(L.num_nodes)
    values, U = torch.linalg.eigh(L.dense().double())
    if len(values):
        large = U.abs() >= 0.5 * U.abs().amax(0)
        U = U * U.gather(0, large.int().argmax(0)[None]).sign()
    return Spectrum(values.to(L.values), U.to(L.values))


def transform(U: Basis, x: Signals) -> Signals:
    """The coefficients U^H x of signals in an orthonormal basis, the columns of U."""
    return U.mH @ x


def inverse(U: Basis, x_hat: Signals) -> Signals:
    """The signals U x^ of coefficients in an orthonormal basis."""
    return U @ x_hat


def convolution(U: Basis, x: Signals, y: Signals) -> Signals:
    r"""The convolution :math:`x * y = U((U^H x) \odot (U^H y))` of two signals on a graph."""
    return inverse(U, transform(U, x) * transform(U, y))


def fourier_basis(size: int, *, dtype: torch.dtype = torch.complex128) -> Basis:
    r"""Fourier's basis of a cycle, :math:`U_{nk} = e^{2 \pi i n k / M} / \sqrt{M}`.

    Its column k is an eigenvector of the cycle's Laplacian with the eigenvalue 2 - 2 cos(2 pi k / M).
    """
    places = torch.arange(size)
    turns = (places[:, None] * places % max(size, 1)).double() / max(size, 1)
    return torch.polar(torch.full_like(turns, size**-0.5 if size else 1.0), 2 * math.pi * turns).to(dtype)


def eigenspaces(values: Float[Tensor, " nodes"], tolerance: float = 1e-9) -> Int[Tensor, " spaces"]:
    """The dimension of each eigenspace: eigenvalues apart by at most the tolerance, relative to the largest.

    Args:
        values: Ascending.
        tolerance: At least 0.
    """
    if not len(values):
        return torch.zeros(0, dtype=torch.int64)
    apart = values.diff() > tolerance * float(values.abs().max().clamp(min=1.0))
    space = torch.cat((apart.new_zeros(1), apart)).cumsum(0)
    return space.bincount()
