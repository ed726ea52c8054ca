"""Paths without noise: DDIM as Euler's method, the peer's DPM-Solver++, passes of the network, one stop."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.diffusion.process import Schedule, linear_schedule, strided, strided_by_ratio
from margin.generative.diffusion.samplers import ddim, euler, heun, multistep

METHODS = (euler, heun, multistep)


def wavy(x: Tensor, t: int) -> Tensor:
    """A denoiser that is no affine map."""
    return torch.tanh(x) + 0.1 * torch.cos(3 * x + t / 100)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(0), dtype=torch.float64)


def smooth(steps: int) -> Schedule:
    u = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    return Schedule((-0.1 * u - 9.95 * u**2).exp())


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("steps", [10, 20, 50])
def test_multistep_is_that_of_diffusers(steps: int) -> None:
    """The whole path, a denoiser that is no affine map; their time t is our t + 1."""
    Peer = pytest.importorskip("diffusers").DPMSolverMultistepScheduler

    peer = Peer(1000, beta_start=1e-4, beta_end=0.02, algorithm_type="dpmsolver++", solver_order=2)
    peer.set_timesteps(steps)
    x = noise(3, 2)
    theirs = x
    for t in peer.timesteps:
        theirs = peer.step(wavy(theirs, int(t) + 1), t, theirs).prev_sample
    ours = multistep(wavy, linear_schedule(1000), x, times=torch.tensor(peer.timesteps.tolist()) + 1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-4)  # their levels are float32


def test_heun_without_its_second_half_is_ddim() -> None:
    """One stop: Euler's method by the ratio, and what multistep ends at."""
    schedule, x = linear_schedule(100), noise(4, 3)
    for t in (100, 37, 1):
        one = torch.tensor([t])
        wanted = ddim(wavy, schedule, x, times=one, generator=Generator())
        torch.testing.assert_close(heun(wavy, schedule, x, times=one), wanted)
        torch.testing.assert_close(multistep(wavy, schedule, x, times=one), wanted)


def test_multistep_begins_with_ddims_step() -> None:
    """Before there are two predictions: two stops, for any denoiser."""
    schedule, x, two = linear_schedule(100), noise(4, 3), torch.tensor([90, 30])
    wanted = ddim(wavy, schedule, x, times=two, generator=Generator())
    torch.testing.assert_close(multistep(wavy, schedule, x, times=two), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("method", "passes"), [(euler, 7), (heun, 13), (multistep, 7)])
def test_passes_of_the_network(method: Callable[..., Tensor], passes: int) -> None:
    """Heun's method asks twice a step but the last, never at t = 0."""
    asked: list[int] = []

    def spy(x: Tensor, t: int) -> Tensor:
        asked.append(t)
        return wavy(x, t)

    method(spy, linear_schedule(50), noise(2, 2), times=strided(linear_schedule(50), 7))
    assert len(asked) == passes
    assert min(asked) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_path_in_one_dimension_keeps_its_quantile(method: Callable[..., Tensor]) -> None:
    """The flow is monotone and carries the law of noisy data: F_0(x_0) = F_T(x_T), a mixture of two."""
    schedule, x = smooth(300), torch.linspace(-2, 2, 8, dtype=torch.float64)[:, None]

    def law(t: int) -> tuple[float, float]:
        """Mean and variance of the right one at t; the left is at minus the mean."""
        a = float(schedule.alpha_bar[t])
        return a**0.5 * 1.5, a * 0.1 + 1 - a

    def below(x: Tensor, t: int) -> Tensor:
        m, p = law(t)
        return (torch.special.ndtr((x - m) / p**0.5) + torch.special.ndtr((x + m) / p**0.5)) / 2

    def denoise(x: Tensor, t: int) -> Tensor:
        m, p = law(t)
        return (1 - float(schedule.alpha_bar[t])) ** 0.5 * (x - m * torch.tanh(m * x / p)) / p

    found = method(denoise, schedule, x, times=strided(schedule, 300))
    torch.testing.assert_close(below(found, 0), below(x, 300), rtol=0, atol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_images_of_one_precision_keep_it(method: Callable[..., Tensor]) -> None:
    schedule = linear_schedule(1)
    x = torch.randn(2, 1, 3, 5)
    out = method(wavy, schedule, x, times=torch.tensor([1]))
    assert (out.shape, out.dtype) == (x.shape, torch.float32)
    assert torch.equal(method(wavy, schedule, x, times=torch.tensor([]).long()), x)


def test_stops_even_in_the_logarithm_are_near_to_it() -> None:
    """Where a time covers less than a stride, within half a step of the times; all of T is all times."""
    schedule = linear_schedule(1000)
    place = torch.logit(schedule.alpha_bar[1:]) / 2
    stops = strided_by_ratio(schedule, 10)
    at = place[stops - 1]
    assert (int(stops[0]), int(stops[-1]), len(stops)) == (1000, 1, 10)
    even = torch.linspace(float(place[-1]), float(place[0]), 10, dtype=torch.float64)
    near = (place[:, None] - even).abs().amin(0)
    torch.testing.assert_close((at - even).abs(), near)
