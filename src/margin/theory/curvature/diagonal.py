"""The diagonal of a matrix, and the matrix itself, from products with it alone.

Bekas, Kokiopoulou and Saad (2007): for random signs z, E[z * A z] is the diagonal of A, and coordinate i
has variance sum over j != i of A_ij^2 for symmetric A: that of a diagonal matrix comes out exactly.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.theory.curvature.lanczos import Product
from margin.theory.curvature.trace import random_signs

FEW = 256
"""Orders up to which a matrix is written down rather than sampled."""


def as_matrix(
    matvec: Product, dim: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Float[Tensor, "dim dim"]:
    """The matrix of a linear map, column by column, in float64: ``dim`` products."""
    A = torch.empty(dim, dim, dtype=torch.float64)
    for i in range(dim):
        unit = torch.zeros(dim, dtype=dtype, device=device)
        unit[i] = 1
        A[:, i] = matvec(unit).double().cpu()
    return A


def as_symmetric(
    matvec: Product, dim: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Float[Tensor, "dim dim"]:
    """The matrix of a symmetric linear map, its rounding's antisymmetric part taken away."""
    A = as_matrix(matvec, dim, dtype=dtype, device=device)
    return (A + A.T) / 2


def estimated_diagonal(
    matvec: Product,
    dim: int,
    generator: Generator,
    *,
    probes: int = 20,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> tuple[Float[Tensor, " dim"], Float[Tensor, " dim"]]:
    r"""An unbiased estimate of a diagonal, :math:`\frac1m \sum_i z_i \odot A z_i`, with its errors.

    Args:
        matvec: Product with the square matrix.
        dim: Its order.
        generator: Source of the signs, on the CPU.
        probes: m, at least 2.
        dtype: Of the vectors; sums are float64.
        device: Of the vectors.

    Returns:
        The estimate and the standard error of each coordinate. Where ``probes`` is ``dim`` or more the
        diagonal is exact, from unit vectors, and the errors are 0.

    Raises:
        ValueError: There are fewer than two probes.

    Reference: Bekas, Kokiopoulou and Saad 2007, Section 2 (without the division, which is 1 for signs).
    """
    if probes < 2:
        raise ValueError(f"a standard error needs two probes: got {probes}")
    if probes >= dim:
        exact = as_matrix(matvec, dim, dtype=dtype, device=device).diagonal().clone()
        return exact, torch.zeros_like(exact)
    mean = torch.zeros(dim, dtype=torch.float64)
    square = torch.zeros(dim, dtype=torch.float64)
    for i in range(probes):
        z = random_signs(dim, generator, dtype=dtype, device=device)
        draw = (z * matvec(z)).double().cpu()
        off = draw - mean
        mean += off / (i + 1)
        square += off * (draw - mean)  # Welford 1962: no difference of large numbers
    return mean, (square / (probes - 1)).sqrt() / math.sqrt(probes)
