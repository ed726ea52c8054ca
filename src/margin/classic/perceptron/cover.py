"""Cover's count (1965): of the 2^s ways to put s points on two sides, how many a hyperplane makes."""

import math
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor

from margin.classic.perceptron.separation import separate


def cover_count(points: int, dimension: int) -> int:
    r"""How many dichotomies of s points in general position in R^n hyperplanes through the origin make.

    .. math:: C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}

    2^s exactly if s <= n. For hyperplanes with an offset in R^d, n = d + 1.

    Args:
        points: s, at least 1.
        dimension: n, at least 1.

    Raises:
        ValueError: A number is below 1.

    Reference:
        Cover 1965, Theorem 1.
    """
    if points < 1 or dimension < 1:
        raise ValueError(f"points and dimension must be at least 1: got {points} and {dimension}")
    return 2 * sum(math.comb(points - 1, i) for i in range(min(points, dimension)))


def separable_share(points: int, dimension: int) -> Fraction:
    """The probability C(s, n) / 2^s that points in general position, labeled by coins, can be separated.

    Exactly 1/2 at s = 2n, the capacity of a threshold unit with n weights; as n grows, a step there.

    Reference: Cover 1965, Section III (the separating capacity of a surface).
    """
    return Fraction(cover_count(points, dimension), 2**points)


def dichotomy_counts(x: Float[Tensor, "points features"]) -> list[int]:
    """How many dichotomies of the first s points hyperplanes through the origin make, by trying all.

    Only what separates the first s - 1 points can separate s, so each that does is continued on both sides.
    The count is of separations proved one by one: it costs C(s, n) of them.

    Args:
        x: Points, one a row, in general position or not; computed in float64.

    Returns:
        The number for s = 1 .. all.

    Raises:
        ArithmeticError: A separation is neither proved nor refuted.
    """
    x = x.double()
    made, counts = [[1.0]], []  # w and -w give opposite signs: the first point's is fixed
    for points in range(1, len(x) + 1):
        made = [signs for signs in made if _separates(x[:points], signs)]
        counts.append(2 * len(made))
        made = [[*signs, side] for signs in made for side in (1.0, -1.0)]
    return counts


def _separates(x: Float[Tensor, "points features"], signs: list[float]) -> bool:
    found = separate(torch.tensor(signs, dtype=x.dtype)[:, None] * x)
    if not (found.separable or found.inseparable):
        raise ArithmeticError(
            f"whether {signs} is a dichotomy of a hyperplane stays open: {found.evidence()}"
        )
    return found.separable
