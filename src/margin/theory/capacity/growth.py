r"""How many ways a class of classifiers labels points: growth, shattering and the VC dimension.

A finite class on finitely many points is a table of labels, a function a row; what it does is counted by
exhaustive search. Of the infinite classes here the table on given points is finite, and made exactly.
Vapnik and Chervonenkis (1971); Sauer (1972).
"""

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Labelings = Bool[Tensor, "functions points"]

MOST_SUBSETS = 2_000_000
"""Subsets of points that an exhaustive search looks at, at most."""


def distinct(labels: Labelings) -> int:
    """How many different labelings a table holds: the size of the class, restricted to the points."""
    return len(labels.unique(dim=0)) if labels.shape[1] else min(len(labels), 1)


def is_shattered(labels: Labelings) -> bool:
    """Whether every labeling of the points is in the table."""
    return distinct(labels) == 2 ** labels.shape[1]


def growth(labels: Labelings, n: int) -> int:
    r"""The growth function on the points of a table: the most labelings of any n of them.

    .. math:: F(n) = \max_{|S| = n} |\{(f(x))_{x \in S} : f \in F\}|

    Args:
        labels: The class on a set of points.
        n: From 0 to the number of points.

    Raises:
        ValueError: n is out of range, or there are more than two million subsets of that size.

    Reference: Vapnik and Chervonenkis 1971, Section 1.
    """
    points = labels.shape[1]
    if not 0 <= n <= points:
        raise ValueError(f"n must lie in 0 .. {points}, the number of points: got {n}")
    _check_subsets(math.comb(points, n), n)
    return max(distinct(labels[:, subset]) for subset in map(list, combinations(range(points), n)))


def vc_dimension(labels: Labelings) -> int:
    """The largest number of points of a table that the class shatters, -1 of an empty class.

    Every subset of a shattered set is shattered, so sets grow by a point from those of one less.

    Args:
        labels: The class on a set of points.

    Raises:
        ValueError: More than two million sets would have to be looked at.

    Reference: Vapnik and Chervonenkis 1971; Shalev-Shwartz and Ben-David 2014, Definition 6.5.
    """
    if not len(labels):
        return -1
    sets: list[tuple[int, ...]] = [()]
    for size in range(1, labels.shape[1] + 1):
        grown = [(*one, k) for one in sets for k in range(one[-1] + 1 if one else 0, labels.shape[1])]
        _check_subsets(len(grown), size)
        sets = [one for one in grown if is_shattered(labels[:, list(one)])]
        if not sets:
            return size - 1
    return labels.shape[1]


def sauer(n: int, dimension: int) -> int:
    r"""Sauer's bound of the growth function of a class of VC dimension d: the sum of binomials up to d.

    Args:
        n: Points.
        dimension: d, at least 0.

    Raises:
        ValueError: A number is negative.

    Reference: Sauer 1972, Theorem 1.
    """
    if min(n, dimension) < 0:
        raise ValueError(f"n and dimension must be at least 0: got {n} and {dimension}")
    return sum(math.comb(n, i) for i in range(min(n, dimension) + 1))


def thresholds(x: Float[Tensor, " points"]) -> Labelings:
    """All labelings of points on a line by x >= a: VC dimension 1."""
    return x >= torch.cat((x, torch.full_like(x[:1], math.inf))).unique()[:, None]


def intervals(x: Float[Tensor, " points"]) -> Labelings:
    """All labelings of points on a line by a <= x <= b: VC dimension 2."""
    return boxes(x[:, None])


def boxes(x: Float[Tensor, "points dim"]) -> Labelings:
    """All labelings of points by boxes with sides along the axes: VC dimension 2 d.

    The smallest box around the points that a box holds labels them as that box does; so along each axis it
    is enough to try the points' own coordinates.
    """
    inside = torch.ones(1, len(x), dtype=torch.bool)
    for axis in x.unbind(1):
        ends = axis.unique()
        slabs = torch.stack([(axis >= a) & (axis <= b) for a in ends for b in ends if b >= a])
        inside = (inside[:, None] & slabs).flatten(0, 1).unique(dim=0)
    return torch.cat((inside, torch.zeros_like(inside[:1]))).unique(dim=0)


def network_dimension_bound(widths: Sequence[int], weights: Sequence[int], *, pieces: int = 2) -> float:
    r"""An upper bound of the VC dimension of the sign of a network of piecewise linear units.

    .. math:: L + \bar L\, W \log_2\big(4 e\, p\, R \log_2(2 e\, p\, R)\big), \quad R = \sum_i i\, k_i, \quad
        \bar L\, W = \sum_i W_i

    with k_i the units of layer i and W_i the weights up to it, of L layers, the output's included, and p the
    breakpoints of a unit.

    Args:
        widths: k_1 .. k_L, the last is 1.
        weights: Weights and biases of each layer, shared ones counted once.
        pieces: Linear pieces of a unit, one more than its breakpoints: 2 for ReLU.

    Raises:
        ValueError: The lists disagree, a number is below 1, or the last layer has several outputs.

    Reference: Bartlett, Harvey, Liaw and Mehrabian 2019, Theorem 7.
    """
    if len(widths) != len(weights) or min(*widths, *weights, pieces - 1) < 1 or widths[-1] != 1:
        raise ValueError(
            "a network has a width and a number of weights a layer, one output and units of two pieces or "
            f"more: got widths {list(widths)}, weights {list(weights)}, pieces {pieces}"
        )
    R = sum(i * k for i, k in enumerate(widths, 1))
    up_to = sum(sum(weights[:i]) for i in range(1, len(weights) + 1))
    inner = 2 * math.e * (pieces - 1) * R
    return len(widths) + up_to * math.log2(2 * inner * math.log2(inner))


def log_growth_bound(n: int, dimension: float) -> float:
    """The logarithm of the growth function at n by Sauer: d ln(e n / d) from n >= d on, n ln 2 below.

    Args:
        n: Points.
        dimension: The VC dimension, or a bound of it, above 0.

    Reference: Shalev-Shwartz and Ben-David 2014, Lemma 6.10.
    """
    if n <= dimension:
        return n * math.log(2)
    return dimension * math.log(math.e * n / dimension)


def _check_subsets(count: int, size: int) -> None:
    if count > MOST_SUBSETS:
        raise ValueError(
            f"an exhaustive search looks at {MOST_SUBSETS:,} sets of points at most: there are {count:,} of "
            f"size {size}"
        )
