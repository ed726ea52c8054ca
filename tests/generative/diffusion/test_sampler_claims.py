"""What is asked of samplers: a wrong step is found, few steps are far, an end without data is passed."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.generative.diffusion import model as diffusion_file
from margin.generative.diffusion.chain_claims import demo
from margin.generative.diffusion.model import SAMPLERS, Diffusion
from margin.generative.diffusion.network_claims import PATHS, recursion, steps
from margin.generative.diffusion.process import linear_schedule, zero_terminal
from margin.generative.diffusion.samplers import ddpm, euler


def halved(eps, schedule, x_T, *, times):  # type: ignore[no-untyped-def]
    """Euler's method with half the noise."""
    return euler(lambda x, t: eps(x, t) / 2, schedule, x_T, times=times)


def small(eps, schedule, x_T, *, times, generator):  # type: ignore[no-untyped-def]
    """DDPM's map, a little too long."""
    return 1.001 * ddpm(eps, schedule, x_T, times=times, generator=generator)


def test_each_sampler_is_its_recursion() -> None:
    found = recursion(demo())
    assert str(found.verdict) == "holds"
    assert found.labels == tuple(SAMPLERS)
    for sampler in SAMPLERS:
        curve = found.curves[sampler]
        assert float(curve[-1]) < float(curve[0])  # of the most steps, and of the fewest


@pytest.mark.parametrize(("name", "wrong"), [("euler", "halved"), ("ddpm", "small")])
def test_a_wrong_sampler_is_found(name: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(diffusion_file.SAMPLERS, name, globals()[wrong])  # type: ignore[misc]
    found = recursion(demo())
    assert str(found.verdict) == "violated"
    assert int((found.value > 1e-6).sum()) == 1


def test_the_steps_of_the_exact_network_are_short_enough() -> None:
    """50 of 50: Heun's are the fine ones themselves; DDIM's are of order 1."""
    found = steps(demo())
    assert found.labels == PATHS
    value = dict(zip(PATHS, torch.as_tensor(found.value).tolist(), strict=True))
    assert value["heun"] == 0
    assert "here 50 of Heun's" in found.statement  # not four times 50: the chain has no more
    assert 0 < value["dpm++"] < value["ddim"] < 0.1


class Broken(nn.Module):
    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return torch.full_like(x, float("nan"))


def test_numbers_that_are_not_finite_fail() -> None:
    subject = demo()
    broken = Diffusion(Broken(), linear_schedule(5), (2,)).double()
    assert str(steps(replace(subject, model=broken)).verdict) == "failed"


@pytest.mark.parametrize("count", [2, 3, 50])
def test_any_schedule_is_asked(count: int) -> None:
    """An end without data is no stop; two steps are enough."""
    subject: Subject = demo()
    for schedule in (linear_schedule(count), zero_terminal(linear_schedule(count)), linear_schedule(1)):
        model = Diffusion(Still(), schedule, (2,), parametrization="v").double()
        asked = replace(subject, model=model)
        assert str(recursion(asked).verdict) == "holds"
        assert bool(torch.as_tensor(steps(asked).value).isfinite().all())


class Still(nn.Module):
    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        return x / 2
