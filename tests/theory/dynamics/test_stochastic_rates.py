"""Stochastic gradient descent: measured exponents, the floor of a constant step, Robbins and Monro."""

import math

import pytest
import torch
from torch import Generator

from margin.optim.robbins_monro import robbins_monro
from margin.theory.dynamics.rates import (
    fitted_exponent,
    lipschitz_bound,
    moments,
    noise_floor,
    stochastic_descent,
)

AT = [round(10 ** (1.5 + i / 6)) for i in range(13)]
"""From 32 to 3162 steps, evenly in the logarithm."""


def noisy(slope, seed=0, sigma=1.0):
    g = Generator().manual_seed(seed)
    return lambda x: slope(x) + sigma * torch.randn(x.shape, generator=g, dtype=x.dtype)


def zeros(runs, dim=1):
    return torch.zeros(runs, dim, dtype=torch.float64)


def test_without_noise_it_is_descent_and_the_means_are_means():
    trace = stochastic_descent(
        lambda x: x, 1 + zeros(1), lambda t: 0.5 / t, [1, 4, 5], value=lambda x: x.square().sum(1)
    )
    x, seen = 1.0, [1.0]
    for t in range(1, 6):
        x *= 1 - 0.5 / t
        seen.append(x)
    assert trace.last.flatten().tolist() == pytest.approx([seen[1], seen[4], seen[5]])
    weights = [0.5 / t for t in range(1, 6)]
    for i, T in enumerate((1, 4, 5)):
        w = weights[:T]
        mean = sum(a * b for a, b in zip(w, seen, strict=False)) / sum(w)
        value = sum(a * b * b for a, b in zip(w, seen, strict=False)) / sum(w)
        assert trace.mean[i].item() == pytest.approx(mean) and trace.value[i].item() == pytest.approx(value)
        assert trace.late[i].item() == pytest.approx(sum(seen[T // 2 : T]) / (T - T // 2))


def test_of_a_convex_function_the_mean_value_falls_as_one_over_root_t():
    # |x| with noisy signs, T steps at the rate 1 / sqrt T: fluctuations of the size of the rate
    means = []
    for T in AT:
        trace = stochastic_descent(
            noisy(torch.sign, T),
            0.5 + zeros(300),
            lambda t, T=T: T**-0.5,
            [T],
            value=lambda x: x.abs().sum(1),
        )
        means.append(trace.value.mean().item())
        bound = lipschitz_bound(0.5, math.sqrt(2), [T**-0.5] * T)  # E g^2 = 1 + 1
        assert trace.mean.abs().mean() <= means[-1]  # Jensen
        # Here the theorem is an equality less E x_T^2 / (2 eta T); 13 times 5 standard errors of 300 runs
        error = 5 * trace.value.std().item() / math.sqrt(300)
        left = trace.last.square().mean().item() / (2 * math.sqrt(T))
        assert means[-1] == pytest.approx(bound - left, abs=error) and left < 0.15 * bound
    assert fitted_exponent(AT, means).value == pytest.approx(-0.5, abs=0.1)


def test_the_rates_one_over_root_t_cost_a_logarithm():
    trace = stochastic_descent(
        noisy(torch.sign), zeros(300), lambda t: t**-0.5, AT, value=lambda x: x.abs().sum(1)
    )
    mean = trace.value.mean(1)
    for i, T in enumerate(AT):
        bound = lipschitz_bound(0.0, math.sqrt(2), [t**-0.5 for t in range(1, T + 1)])
        assert trace.mean[i].abs().mean() <= mean[i] <= bound
    late = (trace.last.abs()).mean((1, 2))  # of the iterates themselves the rate has none
    assert fitted_exponent(AT, late).value == pytest.approx(-0.5, abs=0.1)


def test_of_a_strongly_convex_function_the_gap_falls_as_one_over_t():
    # x^2 / 2 at 1 / t: the iterate is the mean of the noise, E x^2 = 1 / t exactly
    trace = stochastic_descent(noisy(lambda x: x), 3 + zeros(2000), lambda t: 1 / t, AT)
    gap = trace.last.square().mean((1, 2)) / 2
    fit = fitted_exponent(AT, gap)
    assert fit.value == pytest.approx(-1, abs=0.15)
    # chi^2 with 2000 degrees of freedom: 4.5 standard errors of 0.032 in either direction, p < 1e-4 over 13
    assert (gap * torch.tensor(AT) * 2).tolist() == pytest.approx([1] * len(AT), abs=0.15)


def test_of_a_strongly_convex_function_with_kinks_the_late_mean_does_too():
    # |x| + x^2 / 2 with a kink at its minimum
    trace = stochastic_descent(noisy(lambda x: x.sign() + x), 3 + zeros(400), lambda t: 1 / t, AT)
    late = trace.late.abs() + trace.late.square() / 2
    slope = fitted_exponent(AT[4:], late.mean((1, 2))[4:]).value
    assert slope <= -0.85  # at least as fast as promised


def test_the_lipschitz_bound_is_tight_after_one_step_and_refuses_bad_rates():
    assert lipschitz_bound(2.0, 1.0, [2.0]) == 2.0  # h = |x| from 2: the mean of the iterates is x_0
    assert lipschitz_bound(1.0, 0.0, [0.5, 0.5]) == 0.5
    for bad in ([], [0.0], [1.0, math.nan], [math.inf]):
        with pytest.raises(ValueError, match="rates must be positive and finite, one at least"):
            lipschitz_bound(1.0, 1.0, bad)


@pytest.mark.parametrize("curvature", [1.0, 4.0])
def test_a_constant_step_stalls_at_a_floor_in_proportion_to_it(curvature):
    for eta in (0.02, 0.04, 0.2):
        floor = noise_floor(eta, curvature, 1.0)
        found = moments(lambda t, eta=eta: eta, 4000, start=2.0, curvature=curvature)
        assert curvature / 2 * (found.mean**2 + found.variance) == pytest.approx(floor, rel=1e-6)
    ratio = noise_floor(0.04, 1.0, 1.0) / noise_floor(0.02, 1.0, 1.0)
    assert ratio == pytest.approx(2, rel=0.02)
    # and sampled: 4000 runs, the mean of x^2 has a relative error of sqrt(2 / 4000) = 2.2 %; 5 errors
    trace = stochastic_descent(
        noisy(lambda x: curvature * x, 3), zeros(4000), lambda t: 0.1, [300], value=lambda x: x.sum(1)
    )
    sampled = curvature / 2 * trace.last.square().mean().item()
    assert sampled == pytest.approx(noise_floor(0.1, curvature, 1.0), rel=0.112)


@pytest.mark.parametrize("eta", [0.0, 2.0, 3.0, math.nan])
def test_a_floor_needs_a_step_that_converges(eta):
    with pytest.raises(ValueError, match=r"eta must lie in \(0, 2 / curvature\)"):
        noise_floor(eta, 1.0, 1.0)


def power(p):
    return lambda t: 0.5 * t**-p


def test_robbins_and_monro():
    far, steps = 1e4, 30_000
    found = {p: moments(power(p), steps, start=far) for p in (0.0, 0.75, 1.1)}
    assert abs(found[0.75].mean) < 1e-6 and found[0.75].variance < 1e-3  # converges
    assert found[1.1].mean > 10 and found[1.1].variance < 1  # stops short: its rates have a finite sum
    assert abs(found[0.0].mean) < 1e-6 and found[0.0].variance == pytest.approx(1 / 3)  # never comes to rest
    # as the validator has it
    assert robbins_monro("power", {"p": 0.75}).met
    assert robbins_monro("power", {"p": 1.1}) == (False, True)
    assert robbins_monro("constant") == (True, False)
    # nor would any number of steps help: what is left of the sum of the rates is at most 5 steps^-0.1
    limit = found[1.1].mean * math.exp(-5 * steps**-0.1 * 1.001)
    assert limit > 30 and moments(power(1.1), 2 * steps, start=far).mean > limit


def test_the_exact_moments_are_those_of_a_simulation():
    # mean and variance of 4000 runs: errors sd / 63 and a relative 2.2 %; 5 errors
    trace = stochastic_descent(noisy(lambda x: x, 5), 3 + zeros(4000), power(0.75), [40])
    exact = moments(power(0.75), 40, start=3.0)
    assert trace.last.mean().item() == pytest.approx(exact.mean, abs=5 * exact.variance**0.5 / 63)
    assert trace.last.var().item() == pytest.approx(exact.variance, rel=0.112)


@pytest.mark.parametrize("at", [[], [0, 1], [3, 2], [2, 2]])
def test_the_times_must_increase(at):
    with pytest.raises(ValueError, match="at must increase from 1 or more"):
        stochastic_descent(lambda x: x, zeros(1), lambda t: 0.1, at)
