"""The reverse chain with the exact network: its law is a linear recursion, and tends to the data's."""

import math
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Generator

from margin.generative.diffusion.exact import gaussian_eps
from margin.generative.diffusion.process import Schedule, Variance, linear_schedule, strided
from margin.generative.diffusion.samplers import ddpm, ddpm_step

MEAN, S2 = 2.0, 0.25


def law(schedule: Schedule, steps: int, variance: Variance) -> tuple[float, float]:
    """Mean and variance of x_0 of the sampler, for data N(2, .25), by hand."""
    levels, stops = schedule.alpha_bar.tolist(), [*strided(schedule, steps).tolist(), 0]
    m, v = 0.0, 1.0
    for t, s in pairwise(stops):
        alpha, left = levels[t] / levels[s], 1 - levels[t]
        k = 1 / (levels[t] * S2 + left)  # eps* = sqrt(left) k (x - sqrt(level) mean)
        slope = (1 - (1 - alpha) * k) / math.sqrt(alpha)
        shift = (1 - alpha) * k * math.sqrt(levels[t]) * MEAN / math.sqrt(alpha)
        noise = (1 - levels[s]) / left * (1 - alpha) if variance == "small" else 1 - alpha
        m, v = slope * m + shift, slope**2 * v + (noise if s else 0.0)
    return m, v


def exact(schedule: Schedule):  # type: ignore[no-untyped-def]
    return lambda x, t: gaussian_eps(x, float(schedule.alpha_bar[t]), MEAN, S2)


@pytest.mark.parametrize(("steps", "variance"), [(1000, 0.2461), (50, 0.1964)])
def test_the_recursion_has_the_known_variances(steps: int, variance: float) -> None:
    assert law(linear_schedule(1000), steps, "small")[1] == pytest.approx(variance, abs=5e-5)


def test_the_law_tends_to_the_datas_as_steps_grow() -> None:
    """At order 1: the distance falls about tenfold with ten times the steps."""
    for kind in get_args(Variance):
        gaps = [abs(law(linear_schedule(T), T, kind)[1] - S2) for T in (100, 1000, 10_000)]
        orders = [math.log10(a / b) for a, b in pairwise(gaps)]
        assert all(0.6 < order < 1.4 for order in orders), (kind, gaps)


@pytest.mark.parametrize("variance", ["small", "large"])
@pytest.mark.parametrize(("t", "s"), [(1000, 980), (500, 499), (2, 1), (1, 0), (20, 0)])
def test_one_step_is_the_recursions(t: int, s: int, variance: Variance) -> None:
    """Slope, shift and noise of one step, to 1e-10."""
    schedule = linear_schedule(1000)
    levels = schedule.alpha_bar.tolist()
    alpha, left = levels[t] / levels[s], 1 - levels[t]
    k = 1 / (levels[t] * S2 + left)
    slope = (1 - (1 - alpha) * k) / math.sqrt(alpha)
    shift = (1 - alpha) * k * math.sqrt(levels[t]) * MEAN / math.sqrt(alpha)
    noise = (1 - levels[s]) / left * (1 - alpha) if variance == "small" else 1 - alpha
    x = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    z = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    eps = gaussian_eps(x, levels[t], MEAN, S2)
    found = ddpm_step(eps, x, z, schedule, (t, s), variance=variance).tolist()
    assert found[0] == pytest.approx(shift, abs=1e-10)
    assert found[1] - found[0] == pytest.approx(slope, abs=1e-10)
    assert found[2] - found[0] == pytest.approx(math.sqrt(noise) if s else 0.0, abs=1e-10)


@pytest.mark.parametrize("variance", ["small", "large"])
@pytest.mark.parametrize("steps", [1, 5, 50])
def test_samples_have_the_law_of_the_recursion(steps: int, variance: Variance) -> None:
    """1e5 samples: mean and variance within 4.5 standard errors (7e-6 each)."""
    schedule, n = linear_schedule(50), 100_000
    g = Generator().manual_seed(steps)
    x_T = torch.randn(n, 1, generator=g, dtype=torch.float64)
    x = ddpm(exact(schedule), schedule, x_T, times=strided(schedule, steps), generator=g, variance=variance)
    m, v = law(schedule, steps, variance)
    assert float(x.mean()) == pytest.approx(m, abs=4.5 * math.sqrt(v / n))
    assert float(x.var()) == pytest.approx(v, abs=4.5 * v * math.sqrt(2 / n))


def test_the_last_step_adds_no_noise_and_images_keep_their_shape() -> None:
    schedule = linear_schedule(4)
    x_T = torch.randn(2, 1, 3, 5, generator=Generator().manual_seed(0))
    one = torch.tensor([1])
    a, b = (
        ddpm(exact(schedule), schedule, x_T, times=one, generator=Generator().manual_seed(s)) for s in (1, 2)
    )
    assert torch.equal(a, b)
    assert a.shape == x_T.shape
    assert a.dtype == torch.float32


@pytest.mark.parametrize(("kind", "theirs"), [("small", "fixed_small"), ("large", "fixed_large")])
def test_a_step_is_that_of_diffusers(kind: Variance, theirs: str) -> None:
    DDPMScheduler = pytest.importorskip("diffusers").DDPMScheduler

    peer = DDPMScheduler(1000, beta_start=1e-4, beta_end=0.02, variance_type=theirs, clip_sample=False)
    schedule = linear_schedule(1000)
    x, eps = torch.randn(2, 4, 3, 5, 5, generator=Generator().manual_seed(0))
    for t in (1000, 500, 2, 1):
        z = torch.randn(x.shape, generator=Generator().manual_seed(1))
        theirs_x = peer.step(eps, t - 1, x, generator=Generator().manual_seed(1)).prev_sample
        ours = ddpm_step(eps, x, z, schedule, (t, t - 1), variance=kind)
        # their alpha_bar is float32: of 1 - alpha_bar, 1e-4 at t = 1, three digits are left
        np.testing.assert_allclose(ours, theirs_x, rtol=0, atol=2e-6 if t > 2 else 3e-4)
