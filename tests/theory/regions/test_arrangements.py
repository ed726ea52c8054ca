"""Regions of arrangements: hand cases, the formula, the polynomial and linear programs against each other."""

import itertools
import math

import pytest
import torch

from margin.theory.regions.arrangements import cells, characteristic_polynomial, count_regions, most_regions


def random_arrangement(hyperplanes, dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(hyperplanes, dim, generator=generator, dtype=torch.float64)
    return W, torch.randn(hyperplanes, generator=generator, dtype=torch.float64)


def arrangement(*rows):
    table = torch.tensor(rows, dtype=torch.float64)
    return table[:, :-1], table[:, -1]


@pytest.mark.parametrize(
    ("dim", "hyperplanes", "regions"),
    [
        (2, 3, 7),
        (2, 4, 11),
        (2, 8, 37),
        (2, 16, 137),
        (3, 10, 176),
        (1, 5, 6),
        (5, 3, 8),
        (0, 4, 1),
        (3, 0, 1),
    ],
)
def test_the_formula_has_the_known_values(dim, hyperplanes, regions):
    assert most_regions(hyperplanes, dim) == regions


@pytest.mark.parametrize(("dim", "hyperplanes"), [(1, 4), (2, 3), (2, 4), (2, 8), (3, 6), (4, 3)])
def test_random_hyperplanes_attain_the_formula_in_all_three_counts(dim, hyperplanes):
    # Random hyperplanes are in general position with probability 1.
    W, b = random_arrangement(hyperplanes, dim)
    found = cells(W, b)
    assert len(found.signs) == count_regions(W, b) == most_regions(hyperplanes, dim)
    assert len(found.signs.unique(dim=0)) == len(found.signs) <= 2**hyperplanes
    # The formula's own recursion: a hyperplane adds as many regions as it is cut into.
    assert most_regions(hyperplanes, dim) == most_regions(hyperplanes - 1, dim) + most_regions(
        hyperplanes - 1, dim - 1
    )


@pytest.mark.parametrize(("dim", "hyperplanes", "regions"), [(2, 16, 137), (3, 10, 176)])
def test_linear_programs_find_the_known_counts(dim, hyperplanes, regions):
    assert len(cells(*random_arrangement(hyperplanes, dim, seed=1)).signs) == regions


def test_points_lie_on_the_sides_that_the_signs_say():
    W, b = random_arrangement(7, 3)
    found = cells(W, b)
    # The offsets were divided by the largest in units of their normals.
    scale = (b / W.norm(dim=1)).abs().max()
    sides = (scale * found.points) @ W.T + b
    assert torch.equal(sides.sign().long(), found.signs)


@pytest.mark.parametrize(
    ("rows", "regions"),
    [
        (((1, 0, 0), (1, 0, -1), (0, 1, 0)), 6),  # two parallels and a line across
        (((1, 0, 0), (1, 0, -1), (1, 0, -2)), 4),  # parallels
        (((1, 0, 0), (0, 1, 0), (1, 1, 0)), 6),  # through a point
        (((1, 0, 0), (2, 0, 0), (0, 1, 0)), 4),  # the same line twice
        (((1, 0, 0), (0, 1, 0), (1, 1, -1)), 7),
    ],
)
def test_lines_in_special_position_give_fewer(rows, regions):
    W, b = arrangement(*rows)
    assert count_regions(W, b) == len(cells(W, b).signs) == regions <= most_regions(3, 2)


def test_the_polynomial_is_that_of_known_arrangements():
    # m lines in general position: t^2 - m t + C(m, 2); the coordinate planes: (t - 1)^n.
    assert characteristic_polynomial(*random_arrangement(5, 2)) == [10, -5, 1]
    boolean = characteristic_polynomial(torch.eye(3, dtype=torch.float64), torch.zeros(3).double())
    assert boolean == [-1, 3, -3, 1]
    # The braid arrangement x_i = x_j: t (t - 1) ... (t - n + 1), n! regions (Stanley 2004, Section 1.3).
    pairs = list(itertools.combinations(range(4), 2))
    W = torch.zeros(len(pairs), 4, dtype=torch.float64)
    for row, (i, j) in enumerate(pairs):
        W[row, i], W[row, j] = 1, -1
    assert characteristic_polynomial(W, torch.zeros(6).double()) == [0, -6, 11, -6, 1]
    assert count_regions(W, torch.zeros(6).double()) == len(cells(W, torch.zeros(6).double()).signs) == 24


def test_scaling_a_hyperplane_changes_nothing():
    W, b = random_arrangement(6, 2)
    factor = torch.tensor([1e-6, 1.0, -3.0, 1e6, 0.1, 7.0]).double()
    assert len(cells(W * factor[:, None], b * factor).signs) == count_regions(W * factor[:, None], b * factor)
    assert len(cells(1e-8 * W, 1e-3 * b).signs) == most_regions(6, 2)


def test_no_hyperplane_leaves_one_region():
    nothing = torch.zeros(0, 2).double(), torch.zeros(0).double()
    assert count_regions(*nothing) == len(cells(*nothing).signs) == 1


def test_bad_arrangements_are_refused():
    with pytest.raises(ValueError, match="at least 0: got -1 and 2"):
        most_regions(-1, 2)
    for W in (torch.zeros(2, 2), torch.full((2, 2), math.nan)):
        with pytest.raises(ValueError, match="finite and not 0"):
            cells(W, torch.zeros(2))
    with pytest.raises(ValueError, match="m at most 14: got m=15"):
        characteristic_polynomial(*random_arrangement(15, 2))
