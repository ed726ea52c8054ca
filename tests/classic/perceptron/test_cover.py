"""Cover's count: hand values, the recurrence, brute force by linear programs, the transition at s = 2n."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from margin.classic.perceptron.cover import cover_count, dichotomy_counts, separable_share


def feasible(z: np.ndarray) -> bool:
    """Whether a w has w . z >= 1 for every row."""
    bounds = [(None, None)] * z.shape[1]
    return linprog([0.0] * z.shape[1], A_ub=-z, b_ub=-np.ones(len(z)), bounds=bounds).status == 0


def test_counts_known_by_hand() -> None:
    assert [cover_count(3, 3), cover_count(4, 3), cover_count(4, 2)] == [8, 14, 8]


@pytest.mark.parametrize("n", range(1, 8))
def test_the_recurrence(n: int) -> None:
    assert cover_count(1, n) == 2
    for s in range(1, 20):
        assert cover_count(s, 1) == 2
        assert cover_count(s + 1, n + 1) == cover_count(s, n + 1) + cover_count(s, n)


def test_every_labeling_up_to_n_points_and_not_the_printed_2s() -> None:
    """Many notes print C(s, n) = 2s for s <= n; it is 2^s, and exactly there."""
    for n in range(1, 12):
        for s in range(1, 30):
            assert (cover_count(s, n) == 2**s) == (s <= n)
    assert cover_count(4, 5) != 2 * 4


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_count_is_that_of_all_labelings_tried(n: int) -> None:
    x = torch.randn(8, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    assert dichotomy_counts(x) == [cover_count(s, n) for s in range(1, 9)]
    # brute force apart from ours: every labeling by a linear program of its own, the first sign by symmetry
    for s in (2, 5, 8):
        labelings = (np.array((1.0, *signs)) for signs in product([-1.0, 1.0], repeat=s - 1))
        assert 2 * sum(feasible(signs[:, None] * x[:s].numpy()) for signs in labelings) == cover_count(s, n)


def test_points_out_of_general_position_are_separated_in_fewer_ways() -> None:
    # the four corners, homogeneous in space: 14 dichotomies; a fifth in their middle is 0.5 of two diagonals
    square = torch.tensor([[0.0, 0, 1], [1, 1, 1], [0, 1, 1], [1, 0, 1], [0.5, 0.5, 1]])
    counts = dichotomy_counts(square)
    assert counts[:4] == [2, 4, 8, 14]
    assert counts[4] < cover_count(5, 3) == 22
    assert dichotomy_counts(torch.zeros(1, 2)) == [0]


@pytest.mark.parametrize("n", range(1, 51))
def test_half_of_the_labelings_at_twice_the_weights(n: int) -> None:
    assert separable_share(2 * n, n) == Fraction(1, 2)
    assert separable_share(2 * n - 1, n) > Fraction(1, 2) > separable_share(2 * n + 1, n)


def test_the_share_falls_and_the_number_does_not() -> None:
    """Many notes say that the number of classifications decreases after s = 2n; the share does."""
    assert separable_share(150, 50) < Fraction(1, 100)
    assert separable_share(75, 50) > Fraction(99, 100)
    numbers = [cover_count(s, 50) for s in range(1, 400)]
    assert all(one < other for one, other in pairwise(numbers))
    assert math.isclose(float(separable_share(4, 2)), 0.5)


@pytest.mark.parametrize(("points", "dimension"), [(0, 1), (1, 0), (-1, 3)])
def test_no_points_and_no_dimension_are_refused(points: int, dimension: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1: got {points} and {dimension}"):
        cover_count(points, dimension)
