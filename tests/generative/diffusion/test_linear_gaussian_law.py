"""Samplers against their law for Gaussian data: coefficients, samples, the order in the steps."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.core.catalog import resolve, user_options
from margin.generative.diffusion.gaussian_denoiser import gaussian_eps
from margin.generative.diffusion.linear_gaussian_law import Affine, GaussianData, Method, law_of
from margin.generative.diffusion.model import SAMPLERS
from margin.generative.diffusion.schedules import (
    Schedule,
    cosine_schedule,
    linear_schedule,
    strided,
    strided_by_ratio,
)

MEAN, S2 = 2.0, 0.25
METHODS = get_args(Method)


def number(x: float) -> Tensor:
    return torch.tensor([x], dtype=torch.float64)


DATA = GaussianData(number(MEAN), number(S2))


def stops_of(method: Method, schedule: Schedule, steps: int) -> list[int]:
    stops = (strided_by_ratio if method == "dpm++" else strided)(schedule, steps)
    return [*stops.tolist(), 0]


def exact(schedule: Schedule) -> Callable[[Tensor, int], Tensor]:
    return lambda x, t: gaussian_eps(x, float(schedule.alpha_bar[t]), MEAN, S2)


def samples(
    method: Method, schedule: Schedule, x: Tensor, stops: list[int], generator: Generator, **more: object
) -> Tensor:
    """What the sampler itself makes of x."""
    run = resolve(SAMPLERS[method])
    given = {"generator": generator, **more}
    known = {name: value for name, value in given.items() if name in user_options(run)}
    out: Tensor = run(exact(schedule), schedule, x, times=torch.tensor(stops[:-1]), **known)
    return out


@pytest.mark.parametrize(
    ("method", "steps", "known"), [("ddpm", 1000, 0.2461), ("ddpm", 50, 0.1964), ("ddim", 50, 0.2227)]
)
def test_the_recursion_has_the_known_variances(method: Method, steps: int, known: float) -> None:
    """Of N(2, .25) under the linear schedule, as published with the specification."""
    schedule = linear_schedule(1000)
    law = law_of(method, schedule, stops_of(method, schedule, steps), DATA, variance="small")
    assert float(law.law()[1]) == pytest.approx(known, abs=5e-5)


CASES: list[tuple[Method, dict[str, object]]] = [
    ("ddpm", {"variance": "small"}),
    ("ddpm", {"variance": "large"}),
    ("ddim", {"eta": 0.0}),
    ("ddim", {"eta": 0.5}),
    ("ddim", {"eta": 1.0}),
    ("euler", {}),
    ("heun", {}),
    ("dpm++", {}),
    ("sde", {}),
]


@pytest.mark.parametrize("schedule", [linear_schedule(1000), cosine_schedule(1000)], ids=["linear", "cosine"])
@pytest.mark.parametrize(("method", "more"), CASES, ids=str)
def test_each_step_of_a_sampler_is_the_recursions(
    method: Method, more: dict[str, object], schedule: Schedule
) -> None:
    """From x in (0, 1, -3) with the noise known: slope, shift and noise of the first steps, to 1e-10.

    The sampler is stopped at s by what it shows the denoiser there.
    """
    for stops in ([999, 700, 0], [500, 499, 0], [20, 3, 0], [2, 1, 0], [950, 600, 40, 0]):
        shown: list[tuple[int, Tensor]] = []
        denoise = exact(schedule)

        def spy(x: Tensor, t: int, shown: list[tuple[int, Tensor]] = shown, denoise=denoise) -> Tensor:  # type: ignore[no-untyped-def]
            shown.append((t, x))
            out: Tensor = denoise(x, t)
            return out

        run = resolve(SAMPLERS[method])
        given = {"generator": Generator().manual_seed(7), **more}
        x = torch.tensor([[0.0], [1.0], [-3.0]], dtype=torch.float64)
        final = run(
            spy,
            schedule,
            x,
            times=torch.tensor(stops[:-1]),
            **{name: value for name, value in given.items() if name in user_options(run)},
        )
        g = Generator().manual_seed(7)
        wanted = x
        if method == "dpm++":  # two values make a step: the maps are those from the start
            wanted = (
                x * law_of(method, schedule, stops, DATA).slope + law_of(method, schedule, stops, DATA).shift
            )
            torch.testing.assert_close(final, wanted, rtol=0, atol=1e-10)
            continue
        for t, s in pairwise(stops):
            step = law_of(method, schedule, [t, s], DATA, **more)  # type: ignore[arg-type]
            z = torch.randn(x.shape, generator=g, dtype=x.dtype) if float(step.noise) > 0 else 0.0
            wanted = step.slope * wanted + step.shift + step.noise.sqrt() * z
            found = [y for at, y in shown if at == s][-1] if s else final
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("method", "more"), CASES, ids=str)
@pytest.mark.parametrize("steps", [1, 3, 20])
def test_samples_have_the_law_of_the_recursion(method: Method, more: dict[str, object], steps: int) -> None:
    """1e5 samples: mean and variance within 4 standard errors, the seed fixed (1e-4 a pair before)."""
    schedule, n = linear_schedule(200), 100_000
    g = Generator().manual_seed(steps)
    x_T = torch.randn(n, 1, generator=g, dtype=torch.float64)
    stops = stops_of(method, schedule, steps)
    x = samples(method, schedule, x_T, stops, g, **more)
    m, v = (float(y) for y in law_of(method, schedule, stops, DATA, **more).law())  # type: ignore[arg-type]
    assert float(x.mean()) == pytest.approx(m, abs=4 * math.sqrt(v / n))
    assert float(x.var()) == pytest.approx(v, abs=4 * v * math.sqrt(2 / n))


FINE = 2**13
"""Steps of a schedule of which the stops are a small part."""


def smooth() -> Schedule:
    """Song's: beta(u) = .1 + 19.9 u."""
    u = torch.linspace(0, 1, FINE + 1, dtype=torch.float64)
    return Schedule((-0.1 * u - 9.95 * u**2).exp())


ORDERS = {"euler": 1, "ddim": 1, "heun": 2, "dpm++": 2, "ddpm": 1, "sde": 1}


@pytest.mark.parametrize("method", METHODS)
def test_the_law_tends_to_that_of_noisy_data_at_the_methods_order(method: Method) -> None:
    """From the law of x_T to that of a stop at T / 16, even steps: the slope of log error by log steps.

    The variance's error; of the mean no more than it, for the mean of some methods has none.
    """
    schedule, counts = smooth(), (64, 128, 256, 512)
    start, wanted = (DATA.marginal(schedule.alpha_bar[t]) for t in (FINE, FINE // 16))
    gaps, means = [], []
    for n in counts:
        stops = torch.linspace(FINE, FINE // 16, n + 1).round().long().tolist()
        m, v = law_of(method, schedule, stops, DATA).law(*start)
        gaps.append(abs(float(v - wanted[1])))
        means.append(abs(float(m - wanted[0])))
    order = -np.polyfit(np.log(counts), np.log(gaps), 1)[0]
    assert order == pytest.approx(ORDERS[method], abs=0.2), gaps
    assert means[-1] <= 4 * gaps[-1] + 1e-12


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("ddpm", "sde")])
def test_a_path_without_noise_tends_to_the_exact_one(method: Method) -> None:
    """Along the flow a point keeps its standard score: the map itself, not only its law."""
    schedule = smooth()
    (m_T, v_T), (m_s, v_s) = (DATA.marginal(schedule.alpha_bar[t]) for t in (FINE, FINE // 16))
    stops = torch.linspace(FINE, FINE // 16, 513).round().long().tolist()
    found = law_of(method, schedule, stops, DATA)
    slope = (v_s / v_T).sqrt()
    torch.testing.assert_close(found.slope, slope, rtol=2e-2, atol=0)
    torch.testing.assert_close(found.shift, m_s - slope * m_T, rtol=2e-2, atol=0)
    assert float(found.noise) == 0


@pytest.mark.parametrize("method", METHODS)
def test_the_distance_to_the_data_falls_with_the_steps(method: Method) -> None:
    """Of the linear schedule's chain of 1,000, the variance of the samples."""
    schedule = linear_schedule(1000)
    gaps = []
    for n in (10, 20, 50, 100):
        law = law_of(method, schedule, stops_of(method, schedule, n), DATA).law()
        gaps.append(abs(float(law[1]) - S2))
    assert all(b < a for a, b in pairwise(gaps)), gaps
    assert gaps[-1] < 0.035


def test_a_covariance_is_met_axis_by_axis() -> None:
    """Two axes, one without spread: each is the law of its own numbers."""
    schedule = linear_schedule(100)
    both = GaussianData(torch.tensor([1.0, -2.0]).double(), torch.tensor([0.0, 4.0]).double())
    for method in METHODS:
        stops = stops_of(method, schedule, 10)
        m, v = law_of(method, schedule, stops, both).law()
        for k in range(2):
            one = GaussianData(both.mean[k : k + 1], both.variance[k : k + 1])
            alone = law_of(method, schedule, stops, one).law()
            torch.testing.assert_close((m[k : k + 1], v[k : k + 1]), alone, rtol=1e-12, atol=1e-12)
        if method not in ("euler", "sde"):  # they end at no prediction of the data, which is exact here
            assert float(v[0]) < 1e-20


def test_maps_follow_one_another() -> None:
    one = Affine(number(2.0), number(1.0), number(3.0))
    other = Affine(number(-0.5), number(4.0), number(0.25))
    both = one.then(other)
    assert [float(x) for x in (both.slope, both.shift, both.noise)] == [-1.0, 3.5, 1.0]
    assert [float(x) for x in both.law(2.0, 3.0)] == [1.5, 4.0]
