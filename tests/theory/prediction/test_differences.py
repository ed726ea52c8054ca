"""Intervals of differences: published examples, brute force, and exact coverage by enumeration."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom, multinomial, norm, t, ttest_1samp

from margin.theory.prediction.differences import (
    SURE,
    at_both_levels,
    independent_difference,
    paired_difference,
    paired_shares,
    share_limits,
)
from margin.theory.prediction.held_out import Terms
from margin.theory.prediction.residuals import Interval


def test_paired_limits_are_the_published_ones():
    # Fagerland, Lydersen and Laake 2014, airway hyper-responsiveness: 1 and 7 of 21.
    found = paired_difference(1 / 21, 7 / 21, 21)
    assert found.value == pytest.approx(-6 / 21)
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


def score(b, c, n, delta):
    """Tango's statistic with the likeliest q found by maximizing the multinomial likelihood itself."""

    def loss(q):
        cells = np.array([q + delta, q, 1 - 2 * q - delta])
        counts = np.array([b, c, n - b - c])
        return -np.sum(np.where(counts > 0, counts * np.log(np.maximum(cells, 1e-300)), 0))

    ends = (max(0.0, -delta), (1 - delta) / 2)
    q = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
    return (b - c - n * delta) / math.sqrt(n * (2 * q + delta - delta**2))


@pytest.mark.parametrize(("b", "c", "n"), [(5, 2, 12), (3, 3, 10), (0, 4, 9), (40, 90, 300)])
def test_paired_limits_are_those_of_a_likelihood_maximized_by_brute_force(b, c, n):
    found = paired_difference(b / n, c / n, n, level=0.9)
    z, middle = norm.ppf(0.95), (b - c) / n
    low = brentq(lambda d: score(b, c, n, d) - z, -1 + 1e-9, middle)
    high = brentq(lambda d: score(b, c, n, d) + z, middle, 1 - 1e-9)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-5)


def test_paired_limits_at_the_edges():
    for n in (1, 10, 10_000):
        room = norm.ppf(0.975) ** 2
        equal = paired_difference(0.0, 0.0, n)
        assert (equal.low, equal.high) == pytest.approx((-room / (n + room), room / (n + room)))
        best = paired_difference(1.0, 0.0, n)
        assert (best.low, best.high) == pytest.approx(((n - room) / (n + room), 1.0))
    one, other = paired_difference(0.3, 0.1, 40), paired_difference(0.1, 0.3, 40)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-12)
    for bad in ((-0.1, 0.2, 5), (0.7, 0.6, 5), (0.1, 0.1, 0)):
        with pytest.raises(ValueError, match="shares lie in"):
            paired_difference(*bad)


LIMITS = {
    n: {(b, c): paired_difference(b / n, c / n, n) for b in range(n + 1) for c in range(n + 1 - b)}
    for n in (10, 30)
}


@pytest.mark.parametrize(("n", "least"), [(10, 0.92), (30, 0.929)])
def test_paired_limits_cover_the_truth(n, least):
    # Exact: summed over all outcomes. A Wald interval covers .18 at n = 10, p = (.02, 0).
    kept = [
        sum(
            multinomial.pmf([b, c, n - b - c], n, [p, q, 1 - p - q])
            for (b, c), ends in LIMITS[n].items()
            if ends.low <= p - q <= ends.high
        )
        for p, q in ((0.02, 0.0), (0.1, 0.02), (0.3, 0.1), (0.5, 0.5), (0.2, 0.2), (0.7, 0.3), (0.05, 0.7))
    ]
    assert min(kept) > least
    assert np.mean(kept) > 0.945


def test_paired_limits_of_300_examples_cover_the_truth():
    # 2,000 samples: fewer than 1,860 (93 %) of a coverage of 95 % have probability 3e-5.
    draws = multinomial(300, [0.2, 0.12, 0.68]).rvs(2000, random_state=np.random.default_rng(300))
    found = {
        (b, c): paired_difference(b / 300, c / 300, 300) for b, c in {(int(d[0]), int(d[1])) for d in draws}
    }
    assert sum(found[b, c].low <= 0.08 <= found[b, c].high for b, c, _ in draws) >= 1860


def test_independent_limits_are_newcombes():
    # Newcombe 1998, Table II, method 10: examples (a), (c) and (h).
    for (k, n), (j, m), ends in (
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((10, 10), (0, 10), (0.6075, 1.0)),
    ):
        found = independent_difference(share_limits(k / n, n), share_limits(j / m, m))
        assert found.value == pytest.approx(k / n - j / m)
        assert (found.low, found.high) == pytest.approx(ends, abs=5e-5)


@pytest.mark.parametrize(("n", "m", "least"), [(10, 10, 0.9), (30, 30, 0.929), (300, 30, 0.94)])
def test_independent_limits_cover_the_truth(n, m, least):
    first, second = ([share_limits(k / size, size) for k in range(size + 1)] for size in (n, m))
    ends = np.array([[independent_difference(a, b)[1:] for b in second] for a in first])
    kept = []
    for p, q in ((0.5, 0.5), (0.97, 0.8), (0.999, 0.95), (0.8, 0.1), (0.999, 0.5)):
        inside = (ends[..., 0] <= p - q) & (p - q <= ends[..., 1])
        kept.append(binom.pmf(range(n + 1), n, p) @ inside @ binom.pmf(range(m + 1), m, q))
    assert min(kept) > least
    assert np.mean(kept) > 0.945
    assert ends.min() >= -1 and ends.max() <= 1


def test_weighted_shares_are_worth_fewer_examples():
    first, second = torch.tensor([1, 1, 0, 1, 1]).bool(), torch.tensor([1, 0, 1, 0, 0]).bool()
    weight = torch.tensor([1.0, 2, 1, 3, 1]).double()
    terms = Terms(weight, weight, torch.arange(5))
    assert paired_shares(first, second, terms) == pytest.approx(paired_difference(6 / 8, 1 / 8, 64 / 16))
    # three examples of 2, 2 and 1 terms, ahead by 1, 0 and 1 of them: the error of a ratio, by Student's t
    pairs = terms._replace(weight=torch.ones(5).double(), example=torch.tensor([0, 0, 1, 1, 2]))
    off = np.array([1 - 2 * 0.4, 0 - 2 * 0.4, 1 - 1 * 0.4])
    half = t.ppf(0.975, 2) * math.sqrt(3 / 2 * (off**2).sum()) / 5
    expected = [0.4, max(0.4 - half, -1), min(0.4 + half, 1)]
    assert list(paired_shares(first, second, pairs)) == pytest.approx(expected)
    whole = pairs._replace(example=torch.tensor([0, 1, 2, 3, 3]), weight=torch.ones(5).double())
    alike = paired_shares(torch.tensor([1, 1, 0, 1, 1]).bool(), second, whole)
    assert alike == pytest.approx(paired_difference(3 / 5, 1 / 5, 25 / 7))


def test_a_verdict_rests_on_four_standard_errors():
    assert norm.ppf((1 + SURE) / 2) == pytest.approx(4)
    found = at_both_levels(lambda level: [Interval(0.5, 0.5 - level, 0.5 + level)] * 2)
    assert found.value.tolist() == [0.5, 0.5]
    assert found.interval[1].tolist() == pytest.approx([0.5 + SURE] * 2)
    assert found.printed[0].tolist() == pytest.approx([0.5 - 0.95] * 2)


def test_several_terms_an_example_are_one_draw_that_is_neither_right_nor_wrong():
    """Mutants: terms as draws, which is far too narrow; examples that are right or wrong as a whole."""
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.rand(12, 400, generator=generator) < p for p in (0.8, 0.7))
    first[:3] = True  # some examples are easier
    terms = Terms(
        torch.ones(4800, dtype=torch.float64),
        torch.ones(4800, dtype=torch.float64),
        torch.arange(12).repeat_interleave(400),
    )
    apart = (first.double() - second.double()).mean(1).numpy()
    expected = ttest_1samp(apart, 0).confidence_interval(0.95)
    found = paired_shares(first.flatten(), second.flatten(), terms)
    assert list(found) == pytest.approx([apart.mean(), expected.low, expected.high], rel=1e-9)
