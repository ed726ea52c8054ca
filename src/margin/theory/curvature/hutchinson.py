"""Hutchinson's estimators: trace and diagonal of a matrix from its products with random signs.

Hutchinson (1990): for independent signs z, E[z' A z] = tr A, with variance 2 (|A|_F^2 - sum of A_ii^2) for
symmetric A: the trace of a diagonal matrix comes out exactly. Meyer et al. (2021): where a few
eigenvalues are large, their part is taken exactly and the signs estimate what remains.

Bekas, Kokiopoulou and Saad (2007): for random signs z, E[z * A z] is the diagonal of A, and coordinate i
has variance sum over j != i of A_ij^2 for symmetric A: that of a diagonal matrix comes out exactly.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.theory.curvature.lanczos import Product
from margin.theory.prediction.held_out import student


def random_signs(
    dim: int, generator: Generator, *, dtype: torch.dtype, device: torch.device | str
) -> Float[Tensor, " dim"]:
    """Independent signs, -1 or 1 with equal chance."""
    signs = torch.randint(2, (dim,), generator=generator, dtype=torch.int8)
    return (2 * signs - 1).to(device, dtype)


def hutchinson_trace(
    matvec: Callable[[Tensor], Tensor],
    dim: int,
    generator: Generator,
    *,
    probes: int = 20,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, " probes"]]:
    r"""An unbiased estimate of a trace, :math:`\frac1m \sum_i z_i^\top A z_i`, with z_i of random signs.

    Args:
        matvec: Product with the square matrix.
        dim: Its order.
        generator: Source of the signs, on the CPU.
        probes: m, at least 2.
        dtype: Of the vectors; sums are float64.
        device: Of the vectors.

    Returns:
        The estimate, its standard error, and the m quadratic forms.

    Raises:
        ValueError: There are fewer than two probes.

    Reference: Hutchinson 1990, Proposition 1; Avron and Toledo 2011, Lemma 1 (the variance).
    """
    if probes < 2:
        raise ValueError(f"a standard error needs two probes: got {probes}")
    forms = torch.empty(probes, dtype=torch.float64)
    for i in range(probes):
        z = random_signs(dim, generator, dtype=dtype, device=device)
        forms[i] = (z * matvec(z)).sum(dtype=torch.float64)
    return forms.mean(), forms.std() / math.sqrt(probes), forms


def deflated_trace(
    matvec: Callable[[Tensor], Tensor],
    dim: int,
    generator: Generator,
    *,
    rank: int = 12,
    probes: int = 16,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, " probes"]]:
    r"""The unbiased Hutch++ estimate of a symmetric matrix's trace, from ``2 * rank + probes`` products.

    .. math:: \operatorname{tr}(Q^\top A Q) + \frac1m \sum_i z_i^\top P A P z_i, \quad P = I - Q Q^\top

    with Q an orthonormal basis of A times ``rank`` random vectors, which holds the directions of the largest
    eigenvalues. Its error is that of the eigenvalues that remain: a spectrum of a few large ones over
    a small bulk, which is a network's, costs few products.

    Args:
        matvec: Product with the symmetric matrix.
        dim: Its order.
        generator: Source of the signs, on the CPU.
        rank: Columns of Q, at least 1, at most ``dim``; three vectors of each are held.
        probes: m, at least 2.
        dtype: Of the vectors; sums are float64.
        device: Of the vectors.

    Returns:
        The estimate, its standard error given Q, and the m estimates of which it is the mean: they are
        independent given Q.

    Raises:
        ValueError: ``rank`` or ``probes`` is out of range.

    Reference: Meyer, Musco, Musco and Woodruff 2021, Algorithm 1 (Hutch++).
    """
    if probes < 2 or not 1 <= rank <= dim:
        raise ValueError(
            f"probes must be at least 2, rank in 1 .. the order {dim}: got probes={probes}, rank={rank}"
        )
    images = [matvec(random_signs(dim, generator, dtype=dtype, device=device)) for _ in range(rank)]
    Y = torch.stack(images)
    if not bool(Y.isfinite().all()):
        nan = torch.full((probes,), math.nan, dtype=torch.float64)
        return nan[0], nan[0], nan
    Q = torch.linalg.qr(Y.T).Q.T
    found = torch.stack([(q * matvec(q)).sum(dtype=torch.float64) for q in Q]).sum().cpu()

    def remainder(z: Tensor) -> Tensor:
        z = z - (Q @ z) @ Q
        image = matvec(z)
        return image - (Q @ image) @ Q

    _, stderr, forms = hutchinson_trace(remainder, dim, generator, probes=probes, dtype=dtype, device=device)
    return found + forms.mean(), stderr, found + forms


VERDICT_MISS = 6.334e-5
"""How often a normal error exceeds 4 standard errors: what the verdict's interval may miss."""

PRINTED_MISS = 0.05
"""What a printed interval may miss."""


def half_width(draws: Tensor, miss: float = VERDICT_MISS) -> Tensor:
    """Half of an interval about the mean of draws that misses it with probability ``miss``.

    An error estimated from few draws, or from draws with long tails, asks for Student's quantile: where 4
    standard errors would do if they were known, 6.2 of them for 10 normal draws, 5.1 for 20.

    Args:
        draws: Independent draws along the first axis.
        miss: The probability.
    """
    off = draws - draws.mean(0)
    each = off.reshape(len(off), -1).unbind(1)
    q = torch.tensor([student(one, miss) if bool(one.any()) else 0.0 for one in each], dtype=torch.float64)
    return draws.double().std(0) / math.sqrt(len(draws)) * q.reshape(draws.shape[1:])


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
