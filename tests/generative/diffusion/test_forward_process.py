"""The forward chain and its posterior: laws in closed form, Bayes' rule by brute force, the notes' slips."""

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.generative.diffusion.process import (
    Schedule,
    bayes,
    chain,
    cosine_schedule,
    energy,
    jump,
    linear_schedule,
    posterior,
    posterior_mean,
    zero_terminal,
)

SCHEDULES = {
    "linear": linear_schedule(1000),
    "cosine": cosine_schedule(50),
    "short": Schedule(torch.tensor([1.0, 0.7, 0.4, 0.05], dtype=torch.float64)),
}


def rows(count: int, dim: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=Generator().manual_seed(seed), dtype=torch.float64)


def test_the_chain_has_the_law_of_the_jump() -> None:
    """From one x_0: mean sqrt(abar) x_0, variance 1 - abar, at every t.

    36 z-tests within 4.5 standard errors, probability 3e-4 at most; the seed is fixed (chance 7e-6 each).
    """
    schedule, n = SCHEDULES["short"], 40_000
    x0 = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64).expand(n, 3)
    states = chain(x0, schedule, Generator().manual_seed(0))
    assert states.shape == (4, n, 3)
    for t, level in enumerate(schedule.alpha_bar.tolist()):
        mean, variance = states[t].mean(0), states[t].var(0)
        assert bool(
            ((mean - math.sqrt(level) * x0[0]).abs() <= 4.5 * math.sqrt((1 - level) / n) + 1e-12).all()
        )
        assert bool(((variance - (1 - level)).abs() <= 4.5 * (1 - level) * math.sqrt(2 / n) + 1e-12).all())


def test_the_mean_of_the_jump_keeps_x0() -> None:
    """Without noise it is sqrt(abar) x_0: the notes' mean drops x_0."""
    x0 = rows(4)
    level = torch.tensor([1.0, 0.64, 0.25, 0.0], dtype=torch.float64)
    torch.testing.assert_close(
        jump(x0, torch.zeros_like(x0), level), x0 * torch.tensor([[1.0], [0.8], [0.5], [0.0]])
    )
    torch.testing.assert_close(jump(torch.zeros_like(x0), x0, level)[3], x0[3])


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_three_forms_of_the_posterior_agree(name: str) -> None:
    schedule = SCHEDULES[name]
    t = torch.arange(2, schedule.steps + 1)
    level, before = schedule.alpha_bar[t], schedule.alpha_bar[t - 1]
    x0, eps = rows(len(t)), rows(len(t), seed=1)
    x_t = jump(x0, eps, level)
    mean, variance = posterior(x0, x_t, level, before)
    other, same = bayes(x0, x_t, level, before)
    torch.testing.assert_close(mean, other, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(variance, same, rtol=1e-10, atol=1e-16)
    torch.testing.assert_close(posterior_mean(eps, x_t, level, before), mean, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("level", "before"), [(0.4, 0.7), (0.05, 0.4), (0.05, 0.7), (1e-4, 0.999)])
def test_the_posterior_is_the_normalized_product_on_a_grid(level: float, before: float) -> None:
    """q(x_s | x_0) q(x_t | x_s) integrated numerically; also over several steps at once."""
    x0, x_t, alpha = 0.8, -0.6, level / before
    grid = np.linspace(-12, 12, 400_001)
    log = -((grid - math.sqrt(before) * x0) ** 2) / (2 * (1 - before))
    log -= (x_t - math.sqrt(alpha) * grid) ** 2 / (2 * (1 - alpha))
    p = np.exp(log - log.max())
    p /= p.sum()
    mean = float((p * grid).sum())
    variance = float((p * (grid - mean) ** 2).sum())
    of = (torch.tensor(level, dtype=torch.float64), torch.tensor(before, dtype=torch.float64))
    point = torch.tensor([x0, x_t], dtype=torch.float64)
    found, spread = posterior(point[:1], point[1:], *of)
    assert float(found) == pytest.approx(mean, abs=1e-9)
    assert float(spread) == pytest.approx(variance, rel=1e-7)


def test_the_notes_forms_are_not_the_posterior() -> None:
    """b~ in place of b in the mean, 1/sqrt(abar_t) in place of 1/sqrt(a_t), sqrt(1 - abar)/abar in x_0."""
    level, before = 0.4, 0.7
    alpha = level / before
    beta, left = 1 - alpha, 1 - level
    tilde = (1 - before) / left * beta
    x0, eps = rows(6), rows(6, seed=1)
    x_t = math.sqrt(level) * x0 + math.sqrt(left) * eps
    right = posterior(x0, x_t, torch.tensor(level).double(), torch.tensor(before).double())[0]
    second = math.sqrt(alpha) * (1 - before) / left * x_t
    torch.testing.assert_close(math.sqrt(before) * beta / left * x0 + second, right)
    for printed in (
        math.sqrt(before) * tilde / left * x0 + second,
        (x_t - beta / math.sqrt(left) * eps) / math.sqrt(level),
    ):
        assert float((printed - right).abs().max()) > 0.1
    assert float(((x_t / math.sqrt(level) - math.sqrt(left) / level * eps) - x0).abs().max()) > 0.1


def test_at_the_first_step_the_posterior_is_x0_itself() -> None:
    schedule = SCHEDULES["short"]
    x0, x_1 = rows(3), rows(3, seed=1)
    mean, variance = posterior(x0, x_1, schedule.alpha_bar[1], schedule.alpha_bar[0])
    torch.testing.assert_close(mean, x0)
    assert float(variance) == 0.0


def test_from_pure_noise_the_posterior_forgets_x_t() -> None:
    schedule = zero_terminal(linear_schedule(10))
    x0, level = rows(3), schedule.alpha_bar
    mean, variance = posterior(x0, rows(3, seed=1), level[-1], level[-2])
    torch.testing.assert_close(mean, level[-2].sqrt() * x0)
    torch.testing.assert_close(variance, 1 - level[-2])


@pytest.mark.parametrize("dim", [1, 7])
@pytest.mark.parametrize("first", [0.0, 7.0, 50.0])
def test_the_energy_is_its_recursion(dim: int, first: float) -> None:
    schedule = SCHEDULES["linear"]
    expected = [first]
    for beta in np.linspace(1e-4, 0.02, 1000):
        expected.append((1 - beta) * expected[-1] + beta * dim)
    found = energy(first, schedule, dim)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    if first == dim:
        np.testing.assert_allclose(found, dim, rtol=1e-14)  # conserved
    assert float(found[-1]) == pytest.approx(dim, abs=5e-5 * abs(first - dim) + 1e-9)


def test_a_chain_has_the_energy_that_is_promised() -> None:
    """Within 4.5 standard errors at 4 times: 3e-5."""
    schedule = SCHEDULES["short"]
    x0 = 3 * rows(20_000, 2)
    states = chain(x0, schedule, Generator().manual_seed(3))
    square = states.square().sum(2)
    promised = energy(float(square[0].mean()), schedule, 2)
    error = (square - schedule.alpha_bar[:, None] * square[0]).std(1) / math.sqrt(20_000)
    assert bool(((square.mean(1) - promised).abs() <= 4.5 * error + 1e-9).all())
