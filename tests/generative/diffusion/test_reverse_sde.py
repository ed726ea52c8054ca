"""The reverse stochastic equation: near DDPM for small steps, the data's law from theirs, its last step."""

import math

import pytest
import torch
from torch import Generator

from margin.generative.diffusion.exact import gaussian_eps
from margin.generative.diffusion.process import Schedule, linear_schedule, strided
from margin.generative.diffusion.samplers import ddpm, reverse_sde

MEAN, S2 = 2.0, 0.25


def exact(schedule: Schedule):  # type: ignore[no-untyped-def]
    return lambda x, t: gaussian_eps(x, float(schedule.alpha_bar[t]), MEAN, S2)


def test_it_comes_back_to_the_data_from_their_noise() -> None:
    """20,000 points of N(2, .25), noised, T = 400: within 4.5 standard errors (7e-6 each).

    The bias of so many steps is .01.
    """
    schedule, n = linear_schedule(400), 20_000
    g = Generator().manual_seed(0)
    x0, eps = torch.randn(2, n, 1, generator=g, dtype=torch.float64)
    a = schedule.alpha_bar[-1]
    x_T = a.sqrt() * (MEAN + math.sqrt(S2) * x0) + (1 - a).sqrt() * eps
    x = reverse_sde(exact(schedule), schedule, x_T, times=strided(schedule, 400), generator=g)
    assert float(x.mean()) == pytest.approx(MEAN, abs=4.5 * math.sqrt(S2 / n) + 0.01)
    assert float(x.var()) == pytest.approx(S2, abs=4.5 * S2 * math.sqrt(2 / n) + 0.01)


def test_the_chain_tends_to_it_path_by_path() -> None:
    """The same noise, large variances: four times the steps, a quarter of the distance."""
    gaps = []
    for T in (100, 400):
        schedule = linear_schedule(T)
        x_T = torch.randn(200, 1, generator=Generator().manual_seed(0), dtype=torch.float64)
        ends = [
            run(
                exact(schedule),
                schedule,
                x_T,
                times=strided(schedule, T),
                generator=Generator().manual_seed(1),
            )
            for run in (reverse_sde, ddpm)
        ]
        gaps.append(float((ends[0] - ends[1]).square().mean().sqrt()))
    assert gaps[1] < 0.35 * gaps[0] < 0.35 * 0.3


def test_the_last_step_adds_no_noise() -> None:
    schedule, one = linear_schedule(4), torch.tensor([2])
    x_T = torch.randn(2, 1, 3, 5, generator=Generator().manual_seed(0))
    a, b = (
        reverse_sde(exact(schedule), schedule, x_T, times=one, generator=Generator().manual_seed(s))
        for s in (1, 2)
    )
    assert torch.equal(a, b)
    assert (a.shape, a.dtype) == (x_T.shape, torch.float32)
