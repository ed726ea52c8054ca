"""Each inequality holds on random cases, is tight on a built one, and refuses a broken premise."""

import math

import pytest
import torch
from scipy import stats

from margin.math.probability.inequalities import (
    cauchy_schwarz_gap,
    chebyshev_bound,
    geometric_sum,
    jensen_gap,
    power_bound,
)
from margin.math.probability.moments import covariance


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


LAWS = [
    stats.norm(1, 2), stats.uniform(-1, 3), stats.expon(), stats.laplace(), stats.logistic(),
    stats.gumbel_r(), stats.gamma(0.5), stats.gamma(5),
    stats.beta(0.5, 0.5), stats.beta(2, 5), stats.lognorm(0.5),
    stats.t(3), stats.pareto(3), stats.weibull_min(0.8), stats.rayleigh(), stats.chi2(2),
    stats.bernoulli(0.1), stats.binom(10, 0.3), stats.poisson(0.5), stats.geom(0.2),
]  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_chebyshevs_bound_holds(law):
    mean, variance = law.mean(), law.var()
    for factor in (0.5, 1, 1.5, 2, 4, 10):
        epsilon = factor * math.sqrt(variance)
        # P(X <= mean - epsilon) + P(X >= mean + epsilon), the second with its end point
        beyond = law.cdf(mean - epsilon) + law.sf(mean + epsilon - 1e-9 * epsilon)
        assert beyond <= float(chebyshev_bound(f64(variance), epsilon)) + 1e-12


def test_twenty_laws_are_put_to_chebyshevs_bound():
    assert len({(law.dist.name, law.args) for law in LAWS}) == 20


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_chebyshevs_bound_is_tight_for_three_points(p):
    epsilon = 1.7
    points, law = f64([[-epsilon], [0.0], [epsilon]]), f64([p / 2, 1 - p, p / 2])
    variance = float(covariance(points, law))
    beyond = float(law[points[:, 0].abs() >= epsilon].sum())
    assert float(chebyshev_bound(f64(variance), epsilon)) == pytest.approx(beyond, abs=1e-15)
    assert float(chebyshev_bound(f64(variance), epsilon)) == pytest.approx(p, abs=1e-15)
    smaller = chebyshev_bound(f64(variance), epsilon * 1.01)
    assert float(smaller) < p  # beyond epsilon nothing lies: the bound is not an identity


def test_chebyshevs_bound_is_never_more_than_1():
    assert chebyshev_bound(f64([0.0, 4.0, math.inf]), 1.0).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("f", "sign"),
    [
        (torch.exp, 1),
        (lambda x: -x.log(), 1),
        (torch.square, 1),
        (torch.log, -1),
        (torch.sqrt, -1),
    ],
    ids=["exp", "-log", "square", "log", "root"],
)
def test_jensens_inequality_has_the_sign_of_the_curvature(f, sign):
    for seed in range(50):
        x = randn(6, seed=seed).abs() + 0.1
        weights = randn(6, seed=seed + 100).abs()
        assert sign * float(jensen_gap(f, x, weights / weights.sum())) > 1e-6


def test_jensens_inequality_holds_for_norms_of_vectors():
    uniform = torch.full((5,), 0.2, dtype=torch.float64)
    for seed in range(50):
        assert float(jensen_gap(torch.linalg.vector_norm, randn(5, 3, seed=seed), uniform)) > 1e-6
        weights = randn(5, seed=seed + 100).abs()
        skewed = jensen_gap(torch.linalg.vector_norm, randn(5, 3, seed=seed), weights / weights.sum())
        assert float(skewed) > 1e-6
    rays = f64([[1.0], [2.0], [3.0], [4.0], [5.0]]) * f64([3.0, 4.0, 0.0])
    assert float(jensen_gap(torch.linalg.vector_norm, rays, uniform)) == pytest.approx(0, abs=1e-14)


def test_jensens_gap_is_0_exactly_where_the_function_is_affine_on_the_support():
    weights, x = f64([0.25, 0.75, 0.0]), f64([1.0, 2.0, -5.0])
    assert float(jensen_gap(lambda t: 3 * t - 1, x, weights)) == pytest.approx(0, abs=1e-15)
    assert float(jensen_gap(torch.abs, x, weights)) == 0  # affine on {1, 2}; -5 has no weight
    assert float(jensen_gap(torch.abs, x, f64([0.25, 0.5, 0.25]))) > 0.1
    assert float(jensen_gap(torch.exp, f64([2.0, 2.0]), f64([0.5, 0.5]))) == 0  # a constant


def test_the_gap_of_the_evidence_bound_is_jensens_and_a_divergence():
    # log p(x) = log E_q[p(x, z) / q(z)] >= E_q log(p(x, z) / q(z)), for three values of z
    joint, q = f64([0.1, 0.25, 0.05]), f64([0.5, 0.3, 0.2])
    gap = -float(jensen_gap(torch.log, joint / q, q))
    posterior = joint / joint.sum()
    assert gap == pytest.approx(float((q * (q / posterior).log()).sum()), abs=1e-15)
    assert gap > 0
    assert float(jensen_gap(torch.log, joint / posterior, posterior)) == pytest.approx(0, abs=1e-15)


def test_cauchy_schwarz_holds_and_is_tight_exactly_for_parallel_vectors():
    u, v = randn(1000, 4), randn(1000, 4, seed=1)
    assert bool((cauchy_schwarz_gap(u, v) > 0).all())
    for factor in (-2.0, 0.0, 0.5, 1.0):
        assert float(cauchy_schwarz_gap(u, factor * u).abs().max()) < 1e-13
    bent = u + 0.1 * v
    assert bool((cauchy_schwarz_gap(u, bent) > 1e-9).all())
    assert float((u * -u).sum(1).max()) < 0  # an inner product may be negative


def test_cauchy_schwarz_on_sums_and_means():
    x, y = randn(9), randn(9, seed=1)
    assert float((x * y).sum() ** 2) < float(x.square().sum() * y.square().sum())
    p = randn(9, seed=2).abs()
    p = p / p.sum()
    root = p.sqrt()
    gap = (p @ x.square()).sqrt() * (p @ y.square()).sqrt() - (p @ (x * y)).abs()
    assert float(cauchy_schwarz_gap(root * x, root * y)) == pytest.approx(float(gap), abs=1e-15)
    assert float(p @ (x * y)) ** 2 < float((p @ x.square()) * (p @ y.square()))


def test_the_exponential_bounds_powers_for_epsilon_up_to_1():
    x = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    assert bool((1 - x <= power_bound_free(x) + 1e-12).all())
    epsilon = torch.linspace(-5, 1, 601, dtype=torch.float64)
    for n in (0, 1, 2, 7, 50):
        assert bool(((1 - epsilon) ** n <= power_bound(epsilon, n) * (1 + 1e-12)).all())
    assert float(power_bound(f64(0.0), 9)) == 1  # tight at 0
    assert math.exp(-2 * 3.0) < (1 - 3.0) ** 2  # above 1 an even power may exceed it
    assert (1 - 3.0) ** 3 < 0 < math.exp(-3 * 3.0)  # an odd one is negative there
    with pytest.raises(ValueError, match="needs epsilon <= 1 and n >= 0: got 3, n=2"):
        power_bound(f64(3.0), 2)


def power_bound_free(x):
    return (-x).exp()


def test_the_logarithm_is_linear_up_to_half_a_square():
    x = f64([1e-2, 1e-3, 1e-4])
    remainder = (x.log1p() - x) / x.square()
    torch.testing.assert_close(remainder, torch.full_like(x, -0.5) + x / 3, rtol=0, atol=1e-4)


@pytest.mark.parametrize("r", [-0.9, -0.5, 0.0, 0.3, 0.95])
def test_partial_geometric_sums_miss_the_series_by_a_r_to_the_k(r):
    for terms in (0, 1, 2, 10, 60):
        by_hand = math.fsum(2.5 * r**k for k in range(terms))
        found = float(geometric_sum(2.5, f64(r), terms))
        assert found == pytest.approx(by_hand, abs=1e-13)
        assert 2.5 / (1 - r) - found == pytest.approx(2.5 * r**terms / (1 - r), abs=1e-13)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: chebyshev_bound(f64(1.0), 0.0), "epsilon must be above 0: got 0"),
        (lambda: chebyshev_bound(f64(-1.0), 1.0), "variance must be >= 0: got -1"),
        (lambda: chebyshev_bound(f64(math.nan), 1.0), "variance must be >= 0: got nan"),
        (lambda: jensen_gap(torch.exp, f64([0.0, 1.0]), f64([0.5, 0.6])), "must sum to 1: got 1.1"),
        (lambda: jensen_gap(torch.exp, f64([0.0, 1.0]), f64([1.5, -0.5])), ">= 0: got -0.5"),
        (lambda: geometric_sum(1.0, f64(1.0), 3), r"\|r\| < 1 and terms >= 0: got r=1"),
        (lambda: geometric_sum(1.0, f64(0.5), -1), "terms=-1"),
        (lambda: power_bound(f64(0.5), -1), "n=-1"),
    ],
)
def test_a_broken_premise_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_point_of_no_weight_counts_for_nothing_even_where_f_is_infinite() -> None:
    points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    weights = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    gap = jensen_gap(lambda x: -x.log().sum(), points, weights)
    assert gap.item() == pytest.approx(math.log(2) - math.log(3) / 2)
