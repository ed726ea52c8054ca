"""Guidance: its two ends, the score it is of, and the law that its samples do not have."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.diffusion.exact import ExactDenoiser, Mixture
from margin.generative.diffusion.process import linear_schedule, strided
from margin.generative.diffusion.samplers import ddpm, dropped, guided, guided_eps

LAW = Mixture(torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([[[0.5]], [[0.5]]]).double())
SCHEDULE = linear_schedule(1000)
NETWORK = ExactDenoiser(LAW, SCHEDULE)


def at(t: int, weight: float, x: Tensor) -> Tensor:
    time = torch.full((len(x),), float(t), dtype=torch.float64)
    return guided_eps(lambda y, c: NETWORK(y, time, c), x, torch.ones(len(x)).long(), 2, weight)


def test_its_two_ends_are_the_class_and_no_class() -> None:
    x = torch.linspace(-2, 2, 7, dtype=torch.float64)[:, None]
    time = torch.full((7,), 300.0, dtype=torch.float64)
    one, none = (NETWORK(x, time, torch.full((7,), label)) for label in (1, 2))
    assert torch.equal(at(300, 0.0, x), one)
    assert torch.equal(at(300, -1.0, x), none)
    torch.testing.assert_close(at(300, 2.0, x), 3 * one - 2 * none)
    torch.testing.assert_close(at(300, -0.5, x), 0.5 * one + 0.5 * none)
    torch.testing.assert_close(guided(one, none, -0.25), 0.75 * one + 0.25 * none)


@pytest.mark.parametrize("weight", [0.5, 3.0])
@pytest.mark.parametrize("t", [1, 300, 900])
def test_it_is_the_score_of_the_tilted_noisy_density(t: int, weight: float) -> None:
    """q_t(x|c)^{1+w} q_t(x)^{-w}, differentiated by autograd."""
    level = float(SCHEDULE.alpha_bar[t])
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)[:, None].requires_grad_()
    one = Mixture(LAW.means[1:], torch.tensor([[[0.5]]]).double())
    log = (1 + weight) * one.log_prob(x, level) - weight * LAW.log_prob(x, level)
    (score,) = torch.autograd.grad(log.sum(), x)
    found = -at(t, weight, x.detach()) / math.sqrt(1 - level)
    torch.testing.assert_close(found, score, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("weight", "apart"), [(0.0, False), (3.0, True)])
def test_samples_do_not_follow_the_tilted_density_of_the_data(weight: float, apart: bool) -> None:
    """Two Gaussians, exact networks, 100 steps of 1,000 samples: means by integration on a grid.

    At w = 0 they do (4.5 standard errors, 7e-6, and the chain's own bias); at w = 3 the mean is off by more
    than 10 standard errors.
    """
    grid = torch.linspace(-8, 12, 40_001, dtype=torch.float64)[:, None]
    one = Mixture(LAW.means[1:], torch.tensor([[[0.5]]]).double())
    log = (1 + weight) * one.log_prob(grid) - weight * LAW.log_prob(grid)
    p = (log - log.max()).exp()
    mean = float((p * grid[:, 0]).sum() / p.sum())
    g = Generator().manual_seed(0)
    x_T = torch.randn(1000, 1, generator=g, dtype=torch.float64)
    x = ddpm(lambda x, t: at(t, weight, x), SCHEDULE, x_T, times=strided(SCHEDULE, 100), generator=g)
    error = float(x.std()) / math.sqrt(len(x))
    if apart:
        assert abs(float(x.mean()) - mean) > 10 * error
    else:
        assert abs(float(x.mean()) - mean) < 4.5 * error + 0.02


def test_a_network_that_would_count_0_times_is_not_asked() -> None:
    asked = []

    def denoise(x: Tensor, label: Tensor) -> Tensor:
        asked.append(label[0].item())
        return x

    x, label = torch.ones(2, 1), torch.zeros(2).long()
    guided_eps(denoise, x, label, 5, 0.0)
    guided_eps(denoise, x, label, 5, -1.0)
    guided_eps(denoise, x, label, 5, 1.0)
    assert asked == [0, 5, 5, 0]


@pytest.mark.parametrize(("probability", "share"), [(0.0, 0.0), (1.0, 1.0), (0.25, 0.25)])
def test_labels_are_dropped_in_their_proportion(probability: float, share: float) -> None:
    """At .25 the share of 40,000 is within 5 standard errors: fails by chance once in 2 million."""
    label = torch.arange(40_000) % 3
    found = dropped(label, 3, probability, Generator().manual_seed(0))
    assert float((found == 3).double().mean()) == pytest.approx(share, abs=5 * 0.433 / 200)
    assert bool(((found == label) | (found == 3)).all())
