"""The value of the adversarial game against its maximum on a grid, and each loss against its definition."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance
from torch import Generator

from margin.generative.gan.game import (
    expected_value,
    fake_loss,
    game_value,
    generator_loss,
    jensen_shannon_bound,
    optimal_discriminator,
    optimal_value,
    real_loss,
)

LOGITS = torch.linspace(-6, 6, 25, dtype=torch.float64)


def laws(seed: int, outcomes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    g = Generator().manual_seed(seed)
    p, q = torch.rand(2, outcomes, generator=g, dtype=torch.float64)
    p[0] = q[1] = 0  # outcomes of one law alone
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_value_on_a_grid_is_the_formula(seed: int) -> None:
    p, q = laws(seed)
    grid = np.linspace(0, 1, 20_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = [
            np.where(a > 0, a * np.log(grid), 0) + np.where(b > 0, b * np.log1p(-grid), 0)
            for a, b in zip(p.numpy(), q.numpy(), strict=True)
        ]
    best = np.array([grid[v.argmax()] for v in values])
    np.testing.assert_allclose(optimal_discriminator(p, q).numpy(), best, atol=5.1e-5)
    assert float(optimal_value(p, q)) == pytest.approx(sum(v.max() for v in values), abs=1e-7)
    at_optimum = expected_value(p, q, optimal_discriminator(p, q))
    assert float(at_optimum) == pytest.approx(float(optimal_value(p, q)), abs=1e-12)
    divergence = jensenshannon(p.numpy(), q.numpy()) ** 2  # scipy's is the root
    assert float(optimal_value(p, q)) == pytest.approx(-math.log(4) + 2 * divergence, abs=1e-12)


def test_the_value_at_its_ends() -> None:
    p, apart = torch.tensor([0.5, 0.5, 0.0]).double(), torch.tensor([0.0, 0.0, 1.0]).double()
    assert float(optimal_value(p, p)) == pytest.approx(-math.log(4), abs=1e-15)  # not -log 2
    assert float(optimal_value(p, apart)) == pytest.approx(0.0, abs=1e-15)
    # with each half of the balanced mixture counted 1/2 it is JS - log 2
    assert float(optimal_value(p, p)) / 2 == pytest.approx(0.0 - math.log(2), abs=1e-15)
    assert expected_value(p, apart, torch.tensor([1.0, 1.0, 0.0]).double()) == 0
    with pytest.raises(ValueError, match="q must sum to 1"):
        expected_value(p, 2 * apart, p)


@pytest.mark.parametrize("seed", range(20))
def test_any_discriminator_bounds_the_divergence_from_below(seed: int) -> None:
    p, q = laws(seed)
    d = torch.rand(5, generator=Generator().manual_seed(seed), dtype=torch.float64)
    divergence = jensenshannon(p.numpy(), q.numpy()) ** 2
    assert float(jensen_shannon_bound(expected_value(p, q, d))) < divergence
    best = expected_value(p, q, optimal_discriminator(p, q))
    assert float(jensen_shannon_bound(best)) == pytest.approx(divergence, abs=1e-12)  # tight


def test_the_losses_are_their_definitions() -> None:
    d = 1 / (1 + torch.exp(-LOGITS))
    for objective in ("minimax", "nonsaturating"):
        torch.testing.assert_close(real_loss(LOGITS, objective), -d.log())
        torch.testing.assert_close(fake_loss(LOGITS, objective), -(1 - d).log())
    torch.testing.assert_close(generator_loss(LOGITS, "minimax"), (1 - d).log())
    torch.testing.assert_close(generator_loss(LOGITS, "nonsaturating"), -d.log())
    assert torch.equal(real_loss(LOGITS, "wasserstein"), -LOGITS)
    assert torch.equal(fake_loss(LOGITS, "wasserstein"), LOGITS)
    assert torch.equal(generator_loss(LOGITS, "wasserstein"), -LOGITS)


@pytest.mark.parametrize(
    ("objective", "slope"),
    [
        ("minimax", -1 / (1 + math.exp(10))),
        ("nonsaturating", -1 / (1 + math.exp(-10))),
        ("wasserstein", -1.0),
    ],
)
def test_only_the_minimax_slope_vanishes_where_the_critic_is_sure(objective: str, slope: float) -> None:
    logit = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(generator_loss(logit, objective), logit)
    assert float(got) == pytest.approx(slope, rel=1e-9)
    assert (abs(slope) < 4.6e-5) == (objective == "minimax")


def test_extreme_logits_leave_finite_losses_and_slopes() -> None:
    logits = torch.tensor([-1e4, 1e4], requires_grad=True)
    for objective in ("minimax", "nonsaturating", "wasserstein"):
        for loss in (real_loss, fake_loss, generator_loss):
            values = loss(logits, objective)
            (grad,) = torch.autograd.grad(values.sum(), logits)
            assert bool(values.isfinite().all())
            assert bool(grad.isfinite().all())


def test_the_value_on_samples_is_the_mean_of_both() -> None:
    real, fake = torch.tensor([0.3, -1.0, 2.0]).double(), torch.tensor([0.5, -0.2]).double()
    value = torch.log(torch.sigmoid(real)).mean() + torch.log(1 - torch.sigmoid(fake)).mean()
    torch.testing.assert_close(game_value(real, fake), value)
    torch.testing.assert_close(game_value(real, fake, "wasserstein"), real.mean() - fake.mean())


@pytest.mark.parametrize("theta", [-0.7, 0.01, 3.0])
def test_parallel_lines_are_at_distance_theta_and_at_divergence_log_2(theta: float) -> None:
    """(0, u) and (theta, u), u uniform: of all 1-Lipschitz critics -sign(theta) x_1 has the largest gap."""
    u = torch.rand(50, generator=Generator().manual_seed(0), dtype=torch.float64)
    real, fake = torch.stack((0 * u, u), 1), torch.stack((0 * u + theta, u), 1)
    critic = -math.copysign(1.0, theta)
    gap = game_value(critic * real[:, 0], critic * fake[:, 0], "wasserstein")
    assert float(gap) == pytest.approx(abs(theta), abs=1e-12)
    assert wasserstein_distance(real[:, 0], fake[:, 0]) == pytest.approx(abs(theta), abs=1e-12)
    law = torch.full((50,), 1 / 50, dtype=torch.float64)
    apart = optimal_value(torch.cat((law, 0 * law)), torch.cat((0 * law, law)))
    assert float(jensen_shannon_bound(apart)) == pytest.approx(math.log(2), abs=1e-12)


def test_a_trained_discriminator_finds_the_log_ratio_of_two_gaussians() -> None:
    """N(1, 1) against N(-1, 1): log p - log q = 2 x.

    The logistic fit of 20,000 has standard errors of .021 and .027 (inverse Fisher information, quadrature);
    4.2 of them are exceeded by either with probability 5.4e-5, and the seed is fixed.
    """
    g = Generator().manual_seed(0)
    real = 1 + torch.randn(10_000, generator=g, dtype=torch.float64)
    fake = -1 + torch.randn(10_000, generator=g, dtype=torch.float64)
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -game_value(w[0] + w[1] * real, w[0] + w[1] * fake)
        value.backward()
        return value

    optimizer.step(loss)
    assert float(w.detach()[0]) == pytest.approx(0.0, abs=4.2 * 0.0211)
    assert float(w.detach()[1]) == pytest.approx(2.0, abs=4.2 * 0.0274)
