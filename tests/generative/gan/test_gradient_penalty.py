"""The penalty on a critic's slope: per sample, over all axes, twice differentiable; and what it biases."""

import math

import pytest
import torch
from scipy.stats import kstest, wasserstein_distance
from torch import Generator, Tensor, nn

from margin.generative.gan.game import (
    between,
    clip_weights,
    gradient_penalty,
    penalized_slope,
    slopes,
)
from margin.generative.gan.players import Critic


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3,), (2, 4, 5)])
def test_a_linear_critic_of_unit_weight_costs_nothing(shape: tuple[int, ...]) -> None:
    """The norm is over all axes: that over channels alone would be below 1 at every pixel."""
    w = randn(*shape)
    w = w / w.norm()

    def critic(x: Tensor) -> Tensor:
        return (x * w).flatten(1).sum(1)

    x = randn(6, *shape, seed=1)
    torch.testing.assert_close(slopes(critic, x), torch.ones(6).double())
    assert float(gradient_penalty(critic, x).abs().max()) < 1e-15
    torch.testing.assert_close(gradient_penalty(lambda x: 3 * critic(x), x), torch.full((6,), 4.0).double())
    torch.testing.assert_close(
        gradient_penalty(lambda x: 3 * critic(x), x, target=0.0), torch.full((6,), 9.0).double()
    )


def test_each_sample_has_a_slope_of_its_own() -> None:
    x = randn(5, 2, 3)
    torch.testing.assert_close(
        slopes(lambda x: x.flatten(1).square().sum(1), x), 2 * x.flatten(1).norm(dim=1)
    )


def test_a_share_is_drawn_for_each_sample_uniformly() -> None:
    """Kolmogorov-Smirnov at level 1e-4, seed fixed; a share for each pixel, or a Gaussian one, fails."""
    real, fake = 1 + randn(2000, 1, 2, 3).square(), -1 - randn(2000, 1, 2, 3, seed=1).square()
    points = between(real, fake, Generator().manual_seed(2))
    shares = ((points - fake) / (real - fake)).flatten(1)
    assert float((shares - shares[:, :1]).abs().max()) < 1e-6
    assert kstest(shares[:, 0].numpy(), "uniform").pvalue > 1e-4


def test_the_penalty_is_differentiable_by_the_weights() -> None:
    """D(x) = x^T A x / 2 has the slope |S x|, S = (A + A^T) / 2: its penalty's gradient, by autograd."""
    a, x = randn(3, 3).requires_grad_(), randn(7, 3, seed=1)
    penalty = gradient_penalty(lambda x: torch.einsum("bi,ij,bj->b", x, a, x) / 2, x).mean()
    (got,) = torch.autograd.grad(penalty, a)
    expected = ((x @ (a + a.T) / 2).norm(dim=1) - 1).square().mean()
    torch.testing.assert_close(penalty, expected)
    torch.testing.assert_close(got, torch.autograd.grad(expected, a)[0])


def test_where_the_gradient_is_zero_nothing_is_no_number() -> None:
    """A ReLU critic is flat where no unit is on: the root's slope at 0 is infinite."""
    critic = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        critic[0].bias.fill_(-100)
    penalty = gradient_penalty(lambda x: critic(x)[:, 0], randn(5, 2))
    torch.testing.assert_close(penalty, torch.ones(5).double())
    grads = torch.autograd.grad(penalty.sum(), list(critic.parameters()), allow_unused=True)
    assert all(grad is None or bool(grad.isfinite().all()) for grad in grads)
    assert slopes(lambda x: torch.zeros(len(x)), randn(5, 2)).tolist() == [0.0] * 5
    assert slopes(lambda x: 0 * randn(5).requires_grad_(), randn(5, 2)).tolist() == [0.0] * 5


def test_asking_leaves_no_trace() -> None:
    critic, x = nn.Linear(2, 1).double(), randn(3, 2)
    with torch.no_grad():
        slopes(lambda x: critic(x)[:, 0], x)
    assert critic.weight.grad is None
    assert not x.requires_grad


@pytest.mark.parametrize(("distance", "penalty"), [(0.0, 1.0), (2.0, 10.0), (5.0, 0.5)])
def test_the_penalized_slope_is_the_best_on_a_grid(distance: float, penalty: float) -> None:
    s = torch.linspace(0, 8, 80_001, dtype=torch.float64)
    best = s[(distance * s - penalty * (s - 1) ** 2).argmax()]
    assert penalized_slope(distance, penalty) == pytest.approx(float(best), abs=1e-4)


def test_a_penalty_of_nothing_has_no_best_slope() -> None:
    with pytest.raises(ValueError, match="penalty must be above 0 and distance at least 0: got 0"):
        penalized_slope(1.0, 0.0)


def fitted(real: Tensor, fake: Tensor, steps: int, penalty: float = 10.0) -> tuple[float, float]:
    """The gap of a critic after some steps, and its largest slope between the two."""
    torch.manual_seed(0)
    critic = Critic(nn.Sequential(nn.Linear(1, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32)), 32)
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.5, 0.9))
    g = Generator().manual_seed(1)
    for _ in range(steps):
        x, y = (s[torch.randint(len(s), (128,), generator=g)] for s in (real, fake))
        loss = critic(y).mean() - critic(x).mean()
        loss = loss + penalty * gradient_penalty(critic, between(x, y, g)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        gap = float(critic(real).mean() - critic(fake).mean())
    line = torch.linspace(float(fake.min()), float(real.max()), 400)[:, None]
    return gap, float(slopes(critic, line).max())


@pytest.mark.parametrize("distance", [1.0, 4.0])
def test_two_points_the_raw_gap_is_biased_and_the_gap_over_the_slope_is_not(distance: float) -> None:
    gap, slope = fitted(torch.full((1, 1), distance), torch.zeros(1, 1), 250)
    assert gap == pytest.approx(distance * penalized_slope(distance, 10.0), rel=0.02)
    assert gap / slope == pytest.approx(distance, rel=0.05)
    assert abs(gap - distance) / distance > 0.8 * distance / 20  # by W / (2 lambda)


def test_a_critic_in_one_dimension_finds_scipys_distance() -> None:
    g = Generator().manual_seed(3)
    real, fake = 3 + 0.5 * torch.randn(512, 1, generator=g), 0.5 * torch.randn(512, 1, generator=g)
    exact = wasserstein_distance(real[:, 0].numpy(), fake[:, 0].numpy())
    gap, slope = fitted(real, fake, 300)
    assert gap / slope == pytest.approx(exact, rel=0.05)
    assert gap == pytest.approx(exact * penalized_slope(exact, 10.0), rel=0.04)
    assert gap > 1.08 * exact


def test_weights_are_brought_into_a_box() -> None:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-3.0, 0.005, 0.01], [0.02, -0.01, -0.011]]))
        module.bias.fill_(math.inf)
    clip_weights(module, 0.01)
    expected = torch.tensor([[-0.01, 0.005, 0.01], [0.01, -0.01, -0.01]])
    assert torch.equal(module.weight.detach(), expected)
    assert torch.equal(module.bias.detach(), torch.full((2,), 0.01))
    with pytest.raises(ValueError, match="must be positive: got 0"):
        clip_weights(module, 0.0)
