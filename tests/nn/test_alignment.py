"""The loss of preferences, and the distribution that alignment with a divergence tends to."""

import math

import pytest
import torch
from torch import Generator

from margin.nn.losses import preference_loss, tilted


def test_a_reward_model_learns_the_rewards_of_bradley_and_terry_up_to_a_number() -> None:
    """On the exact frequencies sigma(r_i - r_j) of every pair the least loss is at r, its mean left open."""
    truth = torch.tensor([0.0, 1.0, -0.5, 2.0], dtype=torch.float64)
    share = (truth[:, None] - truth).sigmoid()
    reward = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([reward], max_iter=500, tolerance_grad=1e-13, tolerance_change=0)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (share * preference_loss(reward[:, None].expand(4, 4), reward.expand(4, 4))).sum()
        value.backward()
        return value

    optimizer.step(loss)
    found = reward.detach()
    torch.testing.assert_close(found - found.mean(), truth - truth.mean(), atol=1e-6, rtol=0)
    assert preference_loss(torch.tensor(800.0), torch.tensor(0.0)) == 0  # log of a rounded sigmoid would fail
    assert preference_loss(torch.tensor(-800.0), torch.tensor(0.0)) == 800


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_the_tilted_distribution_is_reached_by_ascent_and_has_the_closed_value(beta: float) -> None:
    generator = Generator().manual_seed(0)
    log_p = torch.randn(6, generator=generator, dtype=torch.float64).log_softmax(0)
    reward = torch.randn(6, generator=generator, dtype=torch.float64)
    logits = log_p.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([logits], max_iter=1000, tolerance_grad=1e-13, tolerance_change=0)

    def gain(log_q: torch.Tensor) -> torch.Tensor:
        return (log_q.exp() * (reward - beta * (log_q - log_p))).sum()

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = -gain(logits.log_softmax(0))
        value.backward()
        return value

    optimizer.step(loss)
    best = tilted(log_p, reward, beta)
    torch.testing.assert_close(logits.detach().softmax(0), best.exp(), atol=1e-6, rtol=0)
    closed = beta * torch.logsumexp(log_p + reward / beta, 0)
    torch.testing.assert_close(gain(best), closed)
    # p exp(r beta), the neighbor of the formula, is worse for beta other than 1
    other = gain((log_p + reward * beta).log_softmax(0))
    assert (other < closed - 1e-4) or beta == 1
    with pytest.raises(ValueError, match="must be positive and finite"):
        tilted(log_p, reward, math.inf)
