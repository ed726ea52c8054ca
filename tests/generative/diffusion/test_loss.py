"""The evidence bound: each term is a KL divergence, the sum is -log p(x_0) where the network is exact."""

import math
from typing import get_args

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from margin.generative.diffusion.exact import gaussian_eps
from margin.generative.diffusion.model import constant, drawn_times, importance, terminal, variances, weights
from margin.generative.diffusion.process import (
    Parametrization,
    Schedule,
    Variance,
    cosine_schedule,
    jump,
    linear_schedule,
    posterior,
    posterior_mean,
    target,
    to_eps,
    zero_terminal,
)

KINDS = get_args(Parametrization)
SCHEDULE = Schedule(torch.tensor([1.0, 0.8, 0.5, 0.2, 0.03], dtype=torch.float64))


def normal(mean: Tensor, variance: float) -> MultivariateNormal:
    return MultivariateNormal(mean, variance * torch.eye(mean.shape[1], dtype=mean.dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variance", ["small", "large"])
@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_each_term_is_a_constant_and_a_weighted_error(
    kind: Parametrization, variance: Variance, t: int
) -> None:
    """KL(q(x_{t-1}|x_t, x_0) || N(mu, s^2)) by torch.distributions, and -log p(x_0|x_1), to 1e-10."""
    g = Generator().manual_seed(t)
    x0, eps, output = torch.randn(3, 6, 3, generator=g, dtype=torch.float64)
    level, before = SCHEDULE.alpha_bar[t], SCHEDULE.alpha_bar[t - 1]
    x_t = jump(x0, eps, level)
    mu = posterior_mean(to_eps(output, x_t, level, kind), x_t, level, before)
    beta = float(1 - level / before)
    if t == 1:
        expected = -normal(mu, beta).log_prob(x0)
    else:
        mean, spread = posterior(x0, x_t, level, before)
        s2 = beta if variance == "large" else float(spread)
        expected = kl_divergence(normal(mean, float(spread)), normal(mu, s2))
    error = (output - target(x0, eps, level, kind)).square().sum(1)
    found = constant(SCHEDULE, variance, 3)[t] + weights(SCHEDULE, kind, variance)[t] * error
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_the_weight_is_hos_and_the_variances_are_the_ends() -> None:
    schedule = linear_schedule(1000)
    beta, alpha, left = schedule.beta, schedule.alpha, 1 - schedule.alpha_bar
    for t in (2, 500, 1000):
        for kind, s2 in (("large", beta[t]), ("small", left[t - 1] / left[t] * beta[t])):
            expected = beta[t] ** 2 / (2 * s2 * alpha[t] * left[t])
            assert float(weights(schedule, "eps", kind)[t]) == pytest.approx(float(expected), rel=1e-10)  # type: ignore[arg-type]
    small, large = variances(schedule, "small"), variances(schedule, "large")
    assert bool((small[2:] < large[2:]).all())  # the interval is [b~, b], not [b, b~]
    assert float(small[1]) == float(large[1]) == pytest.approx(1e-4)


@pytest.mark.parametrize("t", [2, 3])
def test_the_ends_are_the_best_variances_for_a_point_and_for_noise(t: int) -> None:
    """Var(x_{t-1} | x_t) = 1 / (1/Var(x_{t-1}) + alpha/beta), at data variance 0, 1 and between."""
    for s2 in (0.0, 0.3, 1.0):
        before = float(SCHEDULE.alpha_bar[t - 1])
        marginal = before * s2 + 1 - before
        alpha = float(SCHEDULE.alpha[t])
        best = 1 / (1 / marginal + alpha / (1 - alpha))
        small, large = (float(variances(SCHEDULE, k)[t]) for k in get_args(Variance))
        assert small - 1e-12 <= best <= large + 1e-12
        if s2 == 0:
            assert best == pytest.approx(small)
        if s2 == 1:
            assert best == pytest.approx(large)


def test_the_terminal_term_is_a_divergence() -> None:
    x0 = torch.randn(5, 2, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    level = float(SCHEDULE.alpha_bar[-1])
    flat = x0.flatten(1)
    expected = kl_divergence(normal(math.sqrt(level) * flat, 1 - level), normal(torch.zeros_like(flat), 1.0))
    torch.testing.assert_close(terminal(x0, SCHEDULE), expected)
    assert float(terminal(x0, zero_terminal(SCHEDULE)).abs().max()) == 0.0
    assert float(terminal(x0, linear_schedule(1000)).max()) < 1e-3


def exact_bound(x0: float, schedule: Schedule, mean: float, s2: float, variance: Variance) -> float:
    """-ELBO of the exact network for data N(mean, s2), in closed form: E of a squared Gaussian error.

    eps - eps* = eps - k (root x_0 + sqrt(left) eps - root mean), k = sqrt(left) / (level s2 + left).
    """
    level = schedule.alpha_bar[1:]
    left = 1 - level
    k = left.sqrt() / (level * s2 + left)
    error = (1 - k * left.sqrt()).square() + level * (k * (x0 - mean)).square()
    total = (weights(schedule, "eps", variance)[1:] * error).sum() + constant(schedule, variance, 1).sum()
    return float(terminal(torch.tensor([[x0]], dtype=torch.float64), schedule)) + float(total)


@pytest.mark.parametrize("variance", ["small", "large"])
@pytest.mark.parametrize(("mean", "s2"), [(2.0, 0.25), (0.0, 1.0), (-1.0, 3.0), (0.0, 1e-4)])
def test_in_the_mean_the_bound_is_no_less_than_the_entropy(
    mean: float, s2: float, variance: Variance
) -> None:
    """With large variances the gap shrinks as T grows, and for N(0, 1) there is none."""
    nodes = [mean + math.sqrt(s2) * u for u in (-1.0, 1.0)]  # a quadratic's exact mean over N(mean, s2)
    entropy = 0.5 * math.log(2 * math.pi * math.e * s2)
    gaps = [
        sum(exact_bound(x, linear_schedule(steps), mean, s2, variance) for x in nodes) / 2 - entropy
        for steps in (1, 10, 100, 1000)
    ]
    if variance == "large" and s2 == 1:
        assert max(map(abs, gaps)) < 1e-12
        return
    assert min(gaps) > 0
    if variance == "large":
        assert gaps[1] > gaps[2] > gaps[3]


@pytest.mark.parametrize(("mean", "s2", "x0"), [(2.0, 0.25, 1.0), (2.0, 0.25, 2.5), (-1.0, 3.0, 2.0)])
def test_as_steps_grow_the_bound_is_minus_log_p_at_each_point(mean: float, s2: float, x0: float) -> None:
    """With large variances: the gap at 1,000 steps is below .02 nats, and less again at 4,000."""
    minus_log_p = 0.5 * math.log(2 * math.pi * s2) + (x0 - mean) ** 2 / (2 * s2)
    gaps = [
        abs(exact_bound(x0, linear_schedule(T), mean, s2, "large") - minus_log_p) for T in (100, 1000, 4000)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[1] < 0.02


def test_small_variances_cost_half_of_eulers_gamma() -> None:
    """Of a chain of constant beta -> 0: sum over k of (1/k - log(1 + 1/k)) / 2 in the first steps."""
    beta, T = 1e-4, 120_000
    schedule = Schedule(torch.exp(torch.arange(T + 1, dtype=torch.float64) * math.log1p(-beta)))
    nodes, entropy = (-0.5, 0.5), 0.5 * math.log(2 * math.pi * math.e * 0.25)
    gap = sum(exact_bound(x, schedule, 0.0, 0.25, "small") for x in nodes) / 2 - entropy
    assert gap == pytest.approx(0.5772157 / 2, abs=2e-3)
    gap = sum(exact_bound(x, schedule, 0.0, 0.25, "large") for x in nodes) / 2 - entropy
    assert 0 <= gap < 2e-3


def test_for_one_step_the_model_is_a_gaussian() -> None:
    """T = 1: p(x_0) is an integral over x_1 ~ N(0, 1), done on a grid; the bound is no more than its log."""
    schedule = linear_schedule(1)
    level = float(schedule.alpha_bar[1])
    x1 = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    mu = (x1 - math.sqrt(1 - level) * gaussian_eps(x1, level, 2.0, 0.25)) / math.sqrt(level)
    for x0 in (1.0, 2.0):
        p = torch.exp(-((x0 - mu) ** 2) / (2 * (1 - level)) - x1**2 / 2) / (
            2 * math.pi * math.sqrt(1 - level)
        )
        log_p = float(torch.trapezoid(p, x1).log())
        assert -exact_bound(x0, schedule, 2.0, 0.25, "small") <= log_p + 1e-9


@pytest.mark.parametrize("schedule", [SCHEDULE, linear_schedule(1000), cosine_schedule(20)])
@pytest.mark.parametrize("variance", ["small", "large"])
def test_times_are_drawn_in_proportion_to_the_exact_error_of_standard_data(
    schedule: Schedule, variance: Variance
) -> None:
    """importance_t = w_t E|eps - eps*|^2, and for N(0, 1) that error is abar_t."""
    w = weights(schedule, "eps", variance)
    torch.testing.assert_close(importance(schedule, variance), w * schedule.alpha_bar)
    assert bool((importance(schedule, variance)[1:] > 0).all())


def test_an_end_without_data_has_finite_weights_where_it_can_be_learned() -> None:
    schedule = zero_terminal(linear_schedule(10))
    for variance in get_args(Variance):
        assert bool(importance(schedule, variance).isfinite().all())
        assert bool(weights(schedule, "v", variance).isfinite().all())
        assert bool(weights(schedule, "x0", variance).isfinite().all())
        assert math.isinf(float(weights(schedule, "eps", variance)[-1]))


def test_drawn_times_have_their_law_each_and_are_stratified_together() -> None:
    """Each of 3 of 4,000 draws within 4.5 standard errors: 12 tests, 1e-4."""
    share = torch.tensor([0.0, 1.0, 3.0, 0.0, 4.0], dtype=torch.float64)
    g = Generator().manual_seed(0)
    drawn = torch.stack([drawn_times(share, 8, g) for _ in range(4000)])
    assert set(drawn.unique().tolist()) == {1, 2, 4}
    counts = torch.stack([(drawn == t).sum(1) for t in (1, 2, 4)], 1)
    assert counts.unique(dim=0).tolist() == [[1, 3, 4]]
    for column in (0, 3, 7):
        for t, p in ((1, 0.125), (2, 0.375), (4, 0.5)):
            seen = float((drawn[:, column] == t).double().mean())
            assert abs(seen - p) <= 4.5 * math.sqrt(p * (1 - p) / 4000)


def test_one_time_is_enough_and_even_shares_reach_both_ends() -> None:
    share = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert drawn_times(share, 3, Generator().manual_seed(0)).tolist() == [1, 1, 1]
    even = torch.ones(11, dtype=torch.float64)
    even[0] = 0
    drawn = drawn_times(even, 10, Generator().manual_seed(1))
    assert sorted(drawn.tolist()) == list(range(1, 11))
