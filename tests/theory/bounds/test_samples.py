"""Bounds from a sample: exact binomial tails, a union by hand, and that each is as tight as it says."""

import math

import pytest
import torch
from scipy.stats import binom

from margin.theory.bounds.binary_kl import binary_kl
from margin.theory.bounds.samples import (
    binomial_bound,
    hoeffding_bound,
    occam_bound,
    rademacher_bound,
    sample_size,
    vc_bound,
    vc_probability,
)


@pytest.mark.parametrize(("k", "n", "delta"), [(0, 10, 0.05), (3, 40, 0.01), (39, 40, 0.1), (5, 20, 0.6)])
def test_the_binomial_bound_has_the_tail_delta(k: int, n: int, delta: float) -> None:
    bound = binomial_bound(k, n, delta)
    assert binom.cdf(k, n, bound) == pytest.approx(delta, rel=1e-9)


def test_the_binomial_bound_covers_at_every_risk_by_enumeration() -> None:
    """P(bound >= R) is summed exactly: at least 1 - delta at each R, and tight at one to a hundredth."""
    n, delta = 25, 0.1
    bounds = torch.tensor([binomial_bound(k, n, delta) for k in range(n + 1)])
    covered = [
        float(binom.pmf(torch.arange(n + 1), n, R)[(bounds >= R).numpy()].sum())
        for R in torch.linspace(0.01, 0.99, 99).tolist()
    ]
    assert min(covered) >= 1 - delta
    assert min(covered) < 1 - delta + 0.01


def test_none_wrong_of_n_has_the_closed_form() -> None:
    assert binomial_bound(0, 50, 0.05) == pytest.approx(1 - 0.05 ** (1 / 50))
    assert binomial_bound(50, 50, 0.05) == 1.0


def test_a_union_over_a_finite_class_by_hand() -> None:
    """ln(100 / .05) = 7.6009; of 1,000 examples the root is .06165, the divergence .0076009."""
    risk = torch.tensor(0.1)
    hoeffding = hoeffding_bound(risk, 1000, 0.05, choice=math.log(100))
    assert float(hoeffding) == pytest.approx(0.1 + math.sqrt(7.600902459542082 / 2000))
    occam = occam_bound(risk, 1000, 0.05, choice=math.log(100))
    assert float(binary_kl(risk, occam)) == pytest.approx(7.600902459542082 / 1000)
    assert risk < occam < hoeffding


def test_bounds_by_growth_and_by_complexity_solve_their_inequalities() -> None:
    n, delta, log_growth = 10**6, 0.05, math.log(1001)
    epsilon = vc_bound(torch.tensor(0.0), log_growth, n, delta)
    assert float(vc_probability(epsilon, log_growth, n)) == pytest.approx(delta)
    assert float(vc_probability(torch.tensor(0.01), log_growth, 100)) == 1.0  # vacuous of few
    assert float(vc_bound(torch.tensor(0.2), log_growth, 100)) == 1.0
    found = rademacher_bound(torch.tensor(0.1), 0.02, 5000, 0.1)
    assert float(found) == pytest.approx(0.1 + 0.04 + math.sqrt(math.log(10) / 10_000))


def test_how_many_examples_a_gap_takes() -> None:
    n = sample_size(0.05, 0.01, choice=3.0)
    gaps = [float(hoeffding_bound(torch.tensor(0.0), m, 0.01, choice=3.0)) for m in (n - 1, n)]
    assert gaps[0] > 0.05 >= gaps[1]


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    bounds = [
        lambda: binomial_bound(1, 10, delta),
        lambda: hoeffding_bound(torch.tensor(0.1), 10, delta),
        lambda: occam_bound(torch.tensor(0.1), 10, delta),
        lambda: vc_bound(torch.tensor(0.1), 1.0, 10, delta),
        lambda: rademacher_bound(torch.tensor(0.1), 0.1, 10, delta),
        lambda: sample_size(0.1, delta),
    ]
    for bound in bounds:
        with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\)"):
            bound()


def test_losses_outside_of_the_unit_interval_and_no_examples_are_refused() -> None:
    for bound in (hoeffding_bound, occam_bound):
        with pytest.raises(ValueError, match=r"in \[0, 1\]"):
            bound(torch.tensor(1.5), 10)
        with pytest.raises(ValueError, match="n must be at least 1: got 0"):
            bound(torch.tensor(0.5), 0)
        with pytest.raises(ValueError, match="at least 0: got -1"):
            bound(torch.tensor(0.5), 10, choice=-1.0)
    with pytest.raises(ValueError, match="gap must lie"):
        sample_size(1.0)
