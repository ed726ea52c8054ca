"""DDIM: the peer's step, DDPM at eta = 1, the form of the direction, what is refused."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.generative.diffusion.process import (
    jump,
    linear_schedule,
    posterior_factors,
    strided,
    zero_terminal,
)
from margin.generative.diffusion.samplers import ddim, ddim_step, ddpm, deviation


def wavy(x: Tensor, t: int) -> Tensor:
    """A denoiser that is no affine map."""
    return torch.tanh(x) + 0.1 * torch.cos(3 * x + t)


@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("t", [1000, 500, 40, 20])
def test_a_step_is_that_of_diffusers(t: int, eta: float) -> None:
    """50 steps of 20; their time t is our t + 1."""
    DDIMScheduler = pytest.importorskip("diffusers").DDIMScheduler

    peer = DDIMScheduler(1000, beta_start=1e-4, beta_end=0.02, clip_sample=False, set_alpha_to_one=True)
    peer.set_timesteps(50)
    x, eps = torch.randn(2, 4, 3, 5, 5, generator=Generator().manual_seed(0))
    z = torch.randn(x.shape, generator=Generator().manual_seed(1))
    theirs = peer.step(eps, t - 1, x, eta=eta, generator=Generator().manual_seed(1)).prev_sample
    ours = ddim_step(eps, x, z, linear_schedule(1000), (t, t - 20), eta=eta)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-4 if t == 1000 else 5e-6)


@pytest.mark.parametrize("steps", [200, 50, 7])
def test_with_eta_1_it_is_the_chain_of_small_variances(steps: int) -> None:
    """The same noise, a denoiser that is no affine map, the full grid and a subsequence."""
    schedule = linear_schedule(200)
    x_T = torch.randn(3, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    times = strided(schedule, steps)
    one = ddim(wavy, schedule, x_T, times=times, generator=Generator().manual_seed(1), eta=1.0)
    other = ddpm(wavy, schedule, x_T, times=times, generator=Generator().manual_seed(1), variance="small")
    torch.testing.assert_close(one, other, rtol=0, atol=1e-8)
    for t, s in pairwise([*times.tolist(), 0]):
        small = posterior_factors(schedule.alpha_bar[t], schedule.alpha_bar[s])[2]
        assert deviation(schedule, (t, s), 1.0) ** 2 == pytest.approx(float(small), abs=1e-14)
        assert deviation(schedule, (t, s), 0.3) == pytest.approx(0.3 * float(small) ** 0.5, abs=1e-14)


@pytest.mark.parametrize("eta", [0.0, 0.7, 1.0])
def test_with_the_true_noise_a_step_keeps_the_law_of_noisy_data(eta: float) -> None:
    """Given x_0 the variance is 1 - alpha_bar_s: direction^2 + sigma^2, on which the printed sigma fails."""
    schedule, x0 = linear_schedule(100), torch.tensor([3.0], dtype=torch.float64)
    level, before = schedule.alpha_bar[80], float(schedule.alpha_bar[40])
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)

    def step(eps: Tensor, z: Tensor) -> Tensor:
        return ddim_step(eps, jump(x0, eps, level), z, schedule, (80, 40), eta=eta)

    mean = step(zero, zero)
    torch.testing.assert_close(mean, before**0.5 * x0, rtol=0, atol=1e-12)
    along, added = step(one, zero) - mean, step(zero, one) - mean
    torch.testing.assert_close(along**2 + added**2, 1 - before * one, rtol=0, atol=1e-12)


def test_without_noise_it_is_a_map_and_the_last_step_is_the_data_it_predicts() -> None:
    schedule = linear_schedule(20)
    x_T = torch.randn(2, 1, 3, 5, generator=Generator().manual_seed(0))
    g = Generator().manual_seed(3)
    before = g.get_state()
    x = ddim(wavy, schedule, x_T, times=strided(schedule, 5), generator=g)
    assert torch.equal(g.get_state(), before)
    assert (x.shape, x.dtype) == (x_T.shape, torch.float32)
    parts = [ddim(wavy, schedule, row[None], times=strided(schedule, 5), generator=g) for row in x_T]
    torch.testing.assert_close(torch.cat(parts), x)  # rows do not meet
    a, one = schedule.alpha_bar[20], torch.tensor([20])
    wanted = (x_T - (1 - a).sqrt() * wavy(x_T, 20)) / a.sqrt()
    for eta in (0.0, 1.0):
        found = ddim(wavy, schedule, x_T, times=one, generator=Generator().manual_seed(0), eta=eta)
        torch.testing.assert_close(found, wanted.float())


@pytest.mark.parametrize("eta", [-0.1, 1.01, float("nan")])
def test_eta_is_from_0_to_1(eta: float) -> None:
    schedule = linear_schedule(5)
    for times in ([5, 1], []):  # none are left where the first was pure noise
        with pytest.raises(ValueError, match=r"eta must be in \[0, 1\]: got"):
            ddim(
                wavy,
                schedule,
                torch.zeros(1, 2),
                times=torch.tensor(times).long(),
                generator=Generator(),
                eta=eta,
            )


def test_the_noise_is_refused_where_nothing_else_is_left() -> None:
    schedule = zero_terminal(linear_schedule(10))
    with pytest.raises(ValueError, match="alpha_bar"):
        ddim(wavy, schedule, torch.zeros(1, 2), times=torch.tensor([10, 5]), generator=Generator(), eta=1.0)
