"""Power sums (Newton 1707, Girard 1629): M sums from which the multiset of M numbers is read back.

They are the phi of the proof that a sum over elements loses nothing where its width d is at least M (Zaheer
et al. 2017, Theorem 7): x -> (x, x^2, ..., x^M), summed, is injective on multisets of M numbers.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Number = TypeVar("Number", Fraction, float, Tensor)


def power_sums(x: Float[Tensor, "*batch elements"], degree: int) -> Float[Tensor, "*batch degree"]:
    r"""The sums :math:`p_j = \sum_m x_m^j` for j = 1 .. degree.

    Raises:
        ValueError: The degree is below 1.
    """
    if degree < 1:
        raise ValueError(f"the degree must be at least 1: got {degree}")
    powers = torch.arange(1, degree + 1, device=x.device)
    return (x[..., None] ** powers).sum(-2)


def elementary(p: Sequence[Number]) -> list[Number]:
    r"""The elementary symmetric polynomials e_1 .. e_M of numbers whose power sums are p_1 .. p_M.

    .. math:: k e_k = \sum_{j=1}^{k} (-1)^{j-1} e_{k-j}\, p_j, \qquad e_0 = 1

    Args:
        p: p_1 .. p_M; of fractions the result is exact. Of tensors, p_j of many multisets at once.

    Reference: Macdonald 1995, Symmetric Functions and Hall Polynomials, Section I.2, Equation 2.11'.
    """
    e: list[Number] = []
    for k in range(1, len(p) + 1):
        total = p[k - 1] * (-1) ** (k - 1)
        for j in range(1, k):
            total = total + e[k - j - 1] * p[j - 1] * (-1) ** (j - 1)
        e.append(total / k)
    return e


def from_power_sums(p: Float[Tensor, "*batch elements"]) -> Float[Tensor, "*batch elements"]:
    r"""The M real numbers, in ascending order, whose first M power sums are p, in float64.

    They are the roots of :math:`t^M - e_1 t^{M-1} + e_2 t^{M-2} - \dots`, the eigenvalues of its companion
    matrix. Numbers that are apart by g are read back to about (unit of rounding) / g^(M-1): a few numbers.

    Args:
        p: p_1 .. p_M of each multiset; the real parts of the roots are returned where these are complex.
    """
    columns = p.double().unbind(-1)
    e = torch.stack(elementary(columns), -1)
    size = p.shape[-1]
    signs = torch.tensor([(-1.0) ** k for k in range(size)], dtype=torch.float64, device=p.device)
    companion = torch.diag_embed(torch.ones(size - 1, dtype=torch.float64, device=p.device), -1)
    companion = companion.expand(*p.shape[:-1], size, size).clone()
    companion[..., 0, :] = signs * e
    return torch.linalg.eigvals(companion).real.sort(-1).values


def recovered(p: Sequence[int]) -> list[int]:
    r"""The M whole numbers, in ascending order, whose first M power sums are p, exactly.

    The largest root of the polynomial is found by Newton's method from above, in whole numbers, which on a
    polynomial of real roots never passes it; it is divided out, and so on.

    Args:
        p: p_1 .. p_M of M whole numbers.

    Raises:
        ValueError: No M whole numbers have these power sums.
    """
    e = elementary([Fraction(one) for one in p])
    coefficients = [Fraction(1), *((-1) ** (k + 1) * Fraction(one) for k, one in enumerate(e))]
    if any(one.denominator != 1 for one in coefficients):
        raise ValueError(f"no {len(p)} whole numbers have these power sums: {[str(one) for one in p]}")
    polynomial, found = [int(one) for one in coefficients], []
    while len(polynomial) > 1:
        polynomial, root = _divided(polynomial)
        found.append(root)
    return found[::-1]


def _divided(polynomial: list[int]) -> tuple[list[int], int]:
    """A monic polynomial, highest power first, divided by t - (its largest root); and the root."""
    bound = 1 + max(abs(one) for one in polynomial[1:])  # Cauchy's: no root is larger
    t = bound
    while t >= -bound:
        quotient, value = _horner(polynomial, t)
        if value == 0:
            return quotient, t
        _, slope = _horner(quotient, t)
        if value < 0 or slope <= 0:
            break  # t has passed the largest root: it was no whole number, or there is none
        t -= max(value // slope, 1)
    raise ValueError("no whole numbers have these power sums: their polynomial has another root")


def _horner(polynomial: list[int], t: int) -> tuple[list[int], int]:
    """The quotient and the remainder of a polynomial, highest power first, by (variable - t)."""
    values = [0]
    for one in polynomial:
        values.append(values[-1] * t + one)
    return values[1:-1], values[-1]
