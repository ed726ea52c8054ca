"""Separation: both certificates against a linear program and a machine, XOR, scales, general position."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from sklearn.svm import SVC

from margin.classic.perceptron import separation
from margin.classic.perceptron.separation import (
    by_linear_program,
    by_mistakes,
    certified,
    dependent_subset,
    equality_network,
    homogeneous,
    nearest_point,
    separate,
    sphere,
    version_space_counts,
    xor,
)


def feasible(z: torch.Tensor) -> bool:
    """The plain linear program y (w . x + b) >= 1, apart from ours."""
    bounds = [(None, None)] * z.shape[1]
    program = linprog([0.0] * z.shape[1], A_ub=-z.numpy(), b_ub=-np.ones(len(z)), bounds=bounds)
    assert program.status in (0, 2)
    return program.status == 0


def gaussian(seed: int, rows: int, features: int, flipped: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    sign = torch.where(x @ torch.randn(features, generator=generator, dtype=torch.float64) > 0.2, 1.0, -1.0)
    sign[:flipped] *= -1
    return homogeneous(x, sign.double())


def check_certificates(found: separation.Separation, z: torch.Tensor) -> None:
    """The two bounds, in exact terms of the points alone."""
    assert float(found.combination.min()) >= 0
    assert abs(float(found.combination.sum()) - 1) <= 1e-12
    assert found.margin <= found.bound + 1e-12 * found.radius
    if found.separable:
        assert bool((z @ found.weight > 0).all())
        assert abs(float(found.weight.norm()) - 1) <= 1e-12


@pytest.mark.parametrize("corners", list(product([-1.0, 1.0], repeat=4)))
def test_the_verdict_on_all_labelings_of_four_points_is_the_linear_programs(
    corners: tuple[float, ...],
) -> None:
    x, _ = xor()
    z = homogeneous(x, torch.tensor(corners, dtype=torch.float64))
    found = separate(z)
    assert found.separable == feasible(z)
    assert found.separable != found.inseparable
    check_certificates(found, z)
    # 14 of 16: only equal against unequal corners cannot be separated
    assert found.separable == (
        corners[0] != corners[1] or corners[2] != corners[3] or corners[0] == corners[2]
    )


@pytest.mark.parametrize("solve", [separate, by_linear_program])
@pytest.mark.parametrize("seed", range(12))
def test_the_verdict_on_random_labels_is_the_linear_programs(solve, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # 12 points in 6 weights: Cover's even chance, so both verdicts come
    x = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    z = homogeneous(x, 2.0 * torch.randint(0, 2, (12,), generator=generator).double() - 1)
    found = solve(z)
    assert (found.separable, found.inseparable) == (feasible(z), not feasible(z))
    check_certificates(found, z)


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_margin_is_that_of_a_machine_through_the_origin(seed: int) -> None:
    z = gaussian(seed, 60, 3)
    found = separate(z)
    both, labels = torch.cat((z, -z)).numpy(), np.repeat([1, -1], len(z))
    w = torch.tensor(SVC(kernel="linear", C=1e8, tol=1e-9).fit(both, labels).coef_[0])
    machine = float((z @ w).min() / w.norm())
    assert math.isclose(found.margin, machine, rel_tol=1e-3)
    assert found.bound / found.margin <= 1 + 1e-9  # proved the largest: the machine cannot exceed it
    assert machine <= found.bound * (1 + 1e-9)


def test_a_known_margin() -> None:
    # w = (3, 4) / 5 separates (3, 4) and -(-3, -4) by 5; the third point's w . z is 5 too, off the normal
    z = torch.tensor([[3.0, 4.0], [7.0, 1.0], [-1.0, 7.0]], dtype=torch.float64)
    found = separate(z)
    assert found.weight.tolist() == pytest.approx([0.6, 0.8], abs=1e-12)
    assert (found.margin, found.bound) == pytest.approx((5, 5), abs=1e-12)


@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-8])
def test_points_barely_apart_are_separated(apart: float) -> None:
    x = torch.tensor([[1.0], [1.0 + apart]], dtype=torch.float64)
    assert separate(homogeneous(x, torch.tensor([1.0, -1.0]).double())).separable


def test_separability_does_not_depend_on_the_unit_of_a_feature() -> None:
    # only the second feature tells the classes apart, in a unit 1e9 times that of the first
    generator = torch.Generator().manual_seed(0)
    first = 1e5 * torch.randn(20, generator=generator, dtype=torch.float64)
    sign = torch.where(torch.arange(20) % 2 == 0, 1.0, -1.0).double()
    z = homogeneous(torch.stack((first, 1e-4 * sign), 1), sign)
    found = separate(z)
    assert found.separable
    check_certificates(found, z)


@pytest.mark.parametrize("column", ["constant", "double"])
def test_constant_and_duplicate_features_change_no_verdict(column: str) -> None:
    for flipped in (0, 8):
        z = gaussian(3, 40, 3, flipped)
        more = z[:, -1:] * 5 if column == "constant" else z[:, :1]
        assert separate(torch.cat((z, more), 1)).separable == separate(z).separable == (flipped == 0)


def test_one_point_on_both_sides_is_separated_by_nothing() -> None:
    x = torch.tensor([[0.3, -0.7], [0.3, -0.7], [1.0, 2.0]], dtype=torch.float64)
    found = separate(homogeneous(x, torch.tensor([1.0, -1.0, 1.0]).double()))
    assert found.inseparable
    assert "infeasible" in found.evidence()
    assert found.premise.status == "refuted"


def test_a_point_at_the_origin_is_separated_by_nothing() -> None:
    assert separate(torch.tensor([[1.0, 0.0], [0.0, 0.0]])).inseparable


def test_a_set_too_large_gets_a_lower_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    z = gaussian(1, 200, 2)
    exact = separate(z)
    monkeypatch.setattr(separation, "MOST_ROWS", 100)
    found = separate(z)
    assert found.separable
    assert found.margin <= exact.margin * (1 + 1e-12)
    assert found.bound >= exact.margin * (1 - 1e-12)
    assert "lower bound" in found.evidence()
    assert "lower bound" not in exact.evidence()
    flipped = gaussian(1, 200, 2, flipped=20)
    assert separate(flipped).inseparable  # the linear program decides what the rule cannot
    monkeypatch.setattr(separation, "MOST_ENTRIES", 200)
    hardest = separate(flipped)
    assert hardest.inseparable  # so do the 66 rows at which it erred most
    assert int((hardest.combination > 0).sum()) <= 66
    check_certificates(hardest, flipped)
    monkeypatch.setattr(separation, "MOST_ENTRIES", 6)
    undecided = separate(flipped)
    assert not (undecided.separable or undecided.inseparable)
    assert undecided.premise.status == "assumed"
    assert undecided.evidence().startswith("undecided")


@pytest.mark.parametrize("seed", range(4))
def test_the_average_step_of_the_mistake_rule_bounds_every_margin(seed: int) -> None:
    z = gaussian(seed, 50, 3)
    found = by_mistakes(z)
    check_certificates(found, z)
    assert found.bound >= nearest_point(z).margin
    # w is the sum of the steps: the combination weighs each point by its mistakes
    step = found.combination @ z
    assert torch.allclose(step / step.norm(), found.weight, rtol=0, atol=1e-12)


def test_a_point_on_the_hyperplane_is_not_separated_from_it() -> None:
    z = torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    even = torch.full((2,), 0.5, dtype=torch.float64)
    assert certified(torch.tensor([2.0, -1.0]).double(), even, z).separable
    on = certified(torch.tensor([1.0, -1.0]).double(), even, z)
    assert on.margin == 0
    assert not on.separable
    barely = torch.tensor([[1.0, 1.0 - 1e-16]]).double()  # 1 - 1e-16 rounds: the product is rounding alone
    assert not certified(torch.tensor([1.0, -1.0 + 2e-16]).double(), even[:1], barely).separable


def test_the_program_does_not_depend_on_the_unit_of_a_feature() -> None:
    sign = torch.where(torch.arange(20) % 2 == 0, 1.0, -1.0).double()
    noise = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = by_linear_program(homogeneous(torch.stack((noise, 1e-12 * sign), 1), sign))
    assert found.separable


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_point_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=rf"points must be finite: got {value} in row 1, column 0"):
        separate(torch.tensor([[1.0, 1.0], [value, 1.0]]))
    with pytest.raises(ValueError, match="separation needs a point"):
        separate(torch.zeros(0, 2))


# xor


def test_no_unit_separates_xor_and_three_do() -> None:
    x, sign = xor()
    z = homogeneous(x, sign)
    assert not feasible(z)
    found = separate(z)
    assert found.inseparable
    # the four inequalities sum to 0 > 0: the proof weighs them equally
    assert found.combination.tolist() == pytest.approx([0.25] * 4, abs=1e-12)
    assert equality_network(x).tolist() == sign.tolist()


# general position


def test_gaussian_points_are_in_general_position_and_collinear_ones_are_not() -> None:
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    assert dependent_subset(x) == ()
    x[5] = -2 * x[2]
    subset = dependent_subset(x)
    assert {2, 5} <= set(subset)
    assert len(subset) == 3


def test_at_most_n_points_must_be_independent_not_fewer_than_n() -> None:
    # three points of the plane through 0 in space: every pair is independent, the triple is not
    x = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    assert dependent_subset(x) == (0, 1, 2)
    assert dependent_subset(x[:2]) == ()
    assert dependent_subset(torch.tensor([[1.0, 0, 0], [2, 0, 0]])) == (0, 1)


def test_three_points_on_a_line_are_dependent_once_a_1_is_appended() -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [0.0, 0.0]])
    assert dependent_subset(torch.cat((x, torch.ones(4, 1)), 1)) == (0, 1, 2)


def test_too_many_subsets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"200,000 subsets at most: got 75,287,520"):
        dependent_subset(torch.randn(100, 5))


# version space


def test_more_examples_leave_fewer_directions() -> None:
    z = gaussian(0, 30, 2)
    directions = sphere(3, 2000, torch.Generator().manual_seed(0))
    counts = version_space_counts(z, directions)
    expected = [int(((directions @ z[:m].T) > 0).all(1).sum()) for m in range(1, 31)]
    assert counts.tolist() == expected
    assert (counts.diff() <= 0).all()


def test_one_point_leaves_half_the_sphere() -> None:
    directions = sphere(4, 40_000, torch.Generator().manual_seed(1))
    assert directions.norm(dim=1).sub(1).abs().max() <= 1e-12
    share = int(version_space_counts(torch.randn(1, 4).double(), directions)[0]) / 40_000
    assert abs(share - 0.5) <= 4.0 * 0.5 / 200  # 4 standard errors: 6e-5


def test_the_version_space_is_an_open_convex_cone() -> None:
    z = gaussian(0, 10, 2)
    directions = sphere(3, 4000, torch.Generator().manual_seed(0))
    inside = directions[(z @ directions.T > 0).all(0)]
    assert len(inside) > 10
    share = torch.rand(len(inside), 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mixed = 3 * share * inside + 7 * (1 - share) * inside.flip(0)
    assert int(version_space_counts(z, mixed)[-1]) == len(inside)
    # open: a margin of 0 is outside
    edge = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert version_space_counts(torch.tensor([[2.0, 0.0]]).double(), edge).tolist() == [1]
