"""Wilson's limits against scipy's, and the limits of means against hand cases."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binomtest, expon, kurtosis, lognorm, norm, sem, skew, t, ttest_1samp

from margin.theory.prediction.held_out import (
    Limited,
    Terms,
    _unskewed,
    mean_limits,
    mean_of,
    share_of,
    trials_of,
    wilson,
)


def unit(i, n=3):
    return torch.eye(n, dtype=torch.float64)[i]


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 10), (10, 10), (9, 10), (437, 450), (5, 10_000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_score_interval_is_scipys(k, n, level):
    exact = binomtest(k, n).proportion_ci(confidence_level=level, method="wilson")
    assert wilson(k / n, n, level=level) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize(
    ("share", "n", "level"), [(-0.1, 3, 0.95), (1.1, 3, 0.95), (0, 0, 0.95), (1, 3, 1.0), (1, 3, 0.0)]
)
def test_what_is_out_of_range_is_refused(share, n, level):
    with pytest.raises(ValueError, match=r"lies? in"):
        wilson(share, n, level=level)


def test_limits_of_a_mean_add_in_squares_in_a_line_or_cancel():
    parts = [Limited(0.5, 0.2, 0.7, unit(0)), Limited(0.9, 0.5, 1.0, 3 * unit(1))]
    apart = mean_of(parts)
    assert apart[:3] == pytest.approx((0.7, 0.7 - 0.25, 0.7 + math.sqrt(0.05) / 2))
    along = mean_of([parts[0], parts[1]._replace(direction=unit(0))])
    assert along[:3] == pytest.approx((0.7, 0.7 - 0.35, 0.7 + 0.15))
    against = mean_of([parts[0], parts[1]._replace(direction=-unit(0))])
    assert against[:3] == pytest.approx((0.7, 0.7 - 0.05, 0.7 + 0.05))
    assert mean_of(parts[:1])[:3] == pytest.approx(parts[0][:3])


def kurtosis_about_0(off):
    off = np.asarray(off, dtype=float)
    return (off**4).mean() / (off**2).mean() ** 2


def test_a_share_without_spread_points_to_what_it_weighs():
    weight = torch.tensor([1.0, 2, 1, 4]).double()
    terms = Terms(weight, weight, torch.tensor([0, 2, 2, 3]))
    right = torch.tensor([True, True, False, True])
    found = share_of(right, terms, 5)
    assert found.value == pytest.approx(7 / 8)
    assert found.direction.tolist() == pytest.approx([1 / 8, 0, 2 / 8 - 7 / 8, 4 / 8, 0])
    # one example is neither right nor wrong: 64 / 22 terms of equal weight at most, by Student's t
    freedom = 2 * 3 / (kurtosis_about_0([1, -5, 4]) - 1)
    room = (norm.ppf(0.975) / t.ppf(0.975, min(2, freedom))) ** 2
    assert found[1:3] == pytest.approx(wilson(7 / 8, 64 / 22 * room))
    wholly = share_of(torch.tensor([True, False, False, True]), terms, 5)
    assert wholly[1:3] == pytest.approx(wilson(5 / 8, 64 / 26))  # examples weigh 1, 3 and 4
    for same in (torch.ones(4).bool(), torch.zeros(4).bool()):
        assert share_of(same, terms, 5).direction.tolist() == [1, 0, 3, 4, 0]


def skewed(values, weight=None):
    values = torch.as_tensor(values, dtype=torch.float64)
    weight = torch.ones_like(values) if weight is None else weight
    return Terms(values, weight, torch.arange(len(values)))


@pytest.mark.parametrize(("n", "spread"), [(30, 1.0), (100, 1.0), (100, 0.0)])
def test_the_limits_of_a_mean_hold_that_of_skewed_losses(n, spread):
    # Lognormal losses of scipy's mean (spread 0: exponential ones of mean 1). The limits miss in 7 % of
    # samples at most; of 800, more than 85 with probability 1e-4.
    # Student's own miss in 13 % of 30 and 9 % of 100.
    law = lognorm(spread) if spread else expon()
    draws = law.rvs((800, n), random_state=np.random.default_rng(1992))
    ends = [mean_limits(skewed(row)) for row in draws]
    missed = sum(not low <= law.mean() <= high for low, high in ends)
    assert missed <= 85
    assert all(0 <= low < row.mean() < high for (low, high), row in zip(ends, draws, strict=True))
    width = np.mean([high - low for low, high in ends])
    # no wider than twice Student's of the true spread
    assert width < 2 * 2 * 2.05 * law.std() / n**0.5


def test_the_limits_of_symmetric_terms_are_students():
    # Without skewness, and with as many degrees of freedom as normal terms have: 2 n / (kurtosis - 1) = n.
    x = norm.ppf((np.arange(2000) + 0.5) / 2000) - 0.1
    low, high = mean_limits(skewed(x))
    found = ttest_1samp(x, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((found.low, found.high), rel=2e-3)


def test_halls_inverse_undoes_his_transformation():
    # Hall 1992, (3.40): T + g T^2 / 3 + g^2 T^3 / 27 + g / 6 at T of each z gives z again.
    for g in (0.8, 0.05, -0.3):
        for z in (-2.3, -0.4, 1.7):
            T = _unskewed(z, g)
            assert T + g * T**2 / 3 + g**2 * T**3 / 27 + g / 6 == pytest.approx(z, rel=1e-12)
    assert _unskewed(1.7, 0.0) == 1.7


def test_limits_of_a_mean_at_the_edges():
    assert all(math.isnan(end) for end in mean_limits(skewed([2.0])))
    assert mean_limits(skewed([2.0, 2.0, 2.0])) == (2.0, 2.0)
    low, high = mean_limits(skewed([0.0, 0.0, 0.0, 9.0]))
    assert 0 <= low < 9 / 4 < high  # a loss that is never negative
    assert mean_limits(skewed([-1.0, 0.0, 0.0, 9.0]))[0] < 0
    several = Terms(
        torch.tensor([1.0, 3.0, 2.0, 6.0]).double(), torch.ones(4).double(), torch.tensor([0, 0, 1, 1])
    )
    assert mean_limits(several) == pytest.approx(mean_limits(skewed([2.0, 4.0])))  # an example is one draw


def test_heavy_tails_cost_degrees_of_freedom_and_skewness_moves_the_upper_limit():
    heavy = [-3.0, *[0.0] * 20, 3.0]  # symmetric, of kurtosis 162 / 22 / (18 / 22)^2 = 11: 44 / 10 degrees
    half = t.ppf(0.975, 4.4) * math.sqrt(18 / 21 / 22)
    assert mean_limits(skewed(heavy)) == pytest.approx((-half, half), rel=1e-9)
    x = np.array([-1, 0, 0, 1, 0, 2, 0, 0, 1, 9.0])
    g = skew(x, bias=False) / math.sqrt(10)
    z = t.ppf(0.025, min(9, 20 / (kurtosis(x, fisher=False) - 1)))
    T = brentq(lambda T: T + g * T**2 / 3 + g**2 * T**3 / 27 + g / 6 - z, -100, 100)
    assert mean_limits(skewed(x))[1] == pytest.approx(x.mean() - T * sem(x), rel=1e-9)
    low, high = mean_limits(skewed([v + 10 for v in heavy]))  # of what is never negative, the logarithm's too
    assert (low, high) == pytest.approx((10 - half, 10 * math.exp(half / 10)), rel=1e-9)


def alike(n, size, rho, p, rng):
    """Terms right with a probability of their example's own: beta-binomial, of correlation rho."""
    own = rng.beta(p * (1 / rho - 1), (1 - p) * (1 / rho - 1), n)
    right = torch.tensor(rng.random((n, size)) < own[:, None]).flatten()
    weight = torch.ones(n * size, dtype=torch.float64)
    return right, Terms(weight, weight, torch.arange(n).repeat_interleave(size))


@pytest.mark.parametrize("rho", [0.02, 0.3, 0.9])
def test_terms_that_are_alike_are_worth_their_number_over_the_design_effect(rho):
    # n m / (1 + (m - 1) rho), Kish 1965, Section 5.4. Mutants: Kish's n = 4000, terms as draws, n m = 80,000.
    right, terms = alike(4000, 20, rho, 0.8, np.random.default_rng(5))
    assert trials_of(right, terms) == pytest.approx(80_000 / (1 + 19 * rho), rel=0.06)


def test_a_few_examples_that_are_far_off_leave_few_degrees_of_freedom():
    """Two of 12 examples have all mistakes, 3 of 10 terms each: 24 / (kurtosis - 1) = 7.5 degrees, not 11."""
    right = torch.ones(12, 10, dtype=torch.bool)
    right[:2, :3] = False
    weight = torch.ones(120, dtype=torch.float64)
    off = [-2.5, -2.5, *[0.5] * 10]
    freedom = 24 / (kurtosis_about_0(off) - 1)
    assert freedom == pytest.approx(7.5)
    worth = 0.95 * 0.05 / (12 / 11 * np.square(off).sum() / 120**2)
    expected = min(120, worth) * (norm.ppf(0.975) / t.ppf(0.975, freedom)) ** 2
    found = trials_of(right.flatten(), Terms(weight, weight, torch.arange(12).repeat_interleave(10)))
    assert found == pytest.approx(expected, rel=1e-9)


def test_terms_that_are_whole_or_all_alike_are_worth_examples_or_terms():
    weight = torch.tensor([1.0, 1, 2, 3, 3]).double()
    terms = Terms(weight, weight, torch.tensor([4, 4, 1, 0, 0]))
    for right in ([1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]):
        assert trials_of(torch.tensor(right).bool(), terms) == pytest.approx(100 / (4 + 4 + 36))
    pairs = Terms(torch.ones(8).double(), torch.ones(8).double(), torch.arange(4).repeat_interleave(2))
    room = (norm.ppf(0.95) / t.ppf(0.95, 3)) ** 2
    assert trials_of(torch.tensor([1, 0] * 4).bool(), pairs, level=0.9) == pytest.approx(8 * room)
    one = Terms(*(x[:2] for x in pairs))
    assert trials_of(torch.tensor([True, False]), one) == pytest.approx(1)


@pytest.mark.parametrize("n", [10, 30, 300])
def test_the_limits_of_a_share_of_alike_terms_hold_the_truth(n):
    # Of 400 samples of a coverage of 95 % more than 40 miss with probability 1e-5; terms taken for draws miss
    # 150 or more, Kish's number none, and its limits are twice as wide.
    rng = np.random.default_rng(n)
    found = [share_of(*alike(n, 30, 0.15, 0.85, rng), n) for _ in range(400)]
    missed = sum(not part.low <= 0.85 <= part.high for part in found)
    assert 4 <= missed <= 40
    width = np.mean([part.high - part.low for part in found])
    assert width < 0.75 * np.diff(wilson(0.85, n))[0]
