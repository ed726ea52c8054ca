"""Densities of scaled variables and of sums against scipy and closed forms."""

import math

import pytest
import torch
from scipy import stats

from margin.math.calculus.derivatives import integrate
from margin.math.probability.moments import of_sum, scaled


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def normal(mu, sigma):
    return lambda x: (-((x - mu) / sigma).square() / 2).exp() / (sigma * math.sqrt(2 * math.pi))


def uniform(x):
    return ((x >= 0) & (x <= 1)).double()


def test_a_negative_factor_keeps_the_integral_1():
    grid = torch.linspace(-12, 8, 101, dtype=torch.float64)
    density = scaled(normal(1.0, 1.0), -2.0)
    torch.testing.assert_close(density(grid), torch.from_numpy(stats.norm(-2, 2).pdf(grid.numpy())))
    assert float(integrate(density, f64(-22.0), f64(18.0))) == pytest.approx(1, abs=1e-12)
    printed = normal(1.0, 1.0)(grid / -2.0) / -2.0  # without the modulus: negative
    assert bool((printed <= 0).all())


@pytest.mark.parametrize("a", [-2.0, 0.5, 3.0])
def test_a_density_is_the_slope_of_the_distribution_function(a):
    law = stats.norm(a, abs(a))  # of a Y for Y normal of mean 1 and variance 1
    grid = torch.linspace(-4, 4, 41, dtype=torch.float64)
    h = 1e-5
    slope = torch.from_numpy(law.cdf(grid.numpy() + h) - law.cdf(grid.numpy() - h)) / (2 * h)
    torch.testing.assert_close(scaled(normal(1.0, 1.0), a)(grid), slope, rtol=1e-6, atol=1e-9)


def test_two_uniform_variables_add_to_a_triangle():
    z = torch.linspace(-0.5, 2.5, 61, dtype=torch.float64)
    found = of_sum(uniform, uniform, z, f_support=(0, 1), g_support=(0, 1))
    torch.testing.assert_close(found, (1 - (z - 1).abs()).clamp_min(0), rtol=0, atol=1e-14)


def test_two_normal_variables_add_to_a_normal_one():
    z = torch.linspace(-8, 10, 37, dtype=torch.float64).reshape(37, 1)
    reach = {"f_support": (-14.0, 16.0), "g_support": (-9.0, 7.0)}
    found = of_sum(normal(1.0, 1.5), normal(-1.0, 0.8), z, **reach)
    expected = torch.from_numpy(stats.norm(0, math.hypot(1.5, 0.8)).pdf(z.numpy()))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    swapped = of_sum(normal(-1.0, 0.8), normal(1.0, 1.5), z, f_support=(-9.0, 7.0), g_support=(-14.0, 16.0))
    torch.testing.assert_close(found, swapped, rtol=1e-9, atol=1e-12)


def test_exponential_and_uniform_laws_of_different_supports():
    z = f64([-0.5, 0.0, 0.5, 1.0, 2.0, 4.0])
    found = of_sum(lambda x: (-x).exp() * (x >= 0), uniform, z, f_support=(0, 45), g_support=(0, 1))
    expected = [0, 0, 1 - math.exp(-0.5), 1 - math.exp(-1)] + [
        math.exp(1 - t) - math.exp(-t) for t in (2.0, 4.0)
    ]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_the_sum_of_dependent_variables_has_another_density():
    # Y = -X has the law of X for X normal of mean 0, yet X + Y = 0 has no density; the convolution has
    at_zero = of_sum(normal(0.0, 1.0), normal(0.0, 1.0), f64(0.0), f_support=(-9, 9), g_support=(-9, 9))
    assert float(at_zero) == pytest.approx(1 / math.sqrt(4 * math.pi), abs=1e-12)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: scaled(uniform, 0.0), "must not be 0"),
        (lambda: of_sum(uniform, uniform, f64(0.0), f_support=(1, 0), g_support=(0, 1)), r"got \(1, 0\)"),
        (
            lambda: of_sum(uniform, uniform, f64(0.0), f_support=(0, math.inf), g_support=(0, math.inf)),
            r"got \(0, inf\)",
        ),
    ],
)
def test_what_has_no_density_is_refused(act, message):
    with pytest.raises(ValueError, match=message):
        act()
