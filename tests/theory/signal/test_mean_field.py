"""Length, correlation and gradient maps against closed forms and the Gauss-Hermite rule."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq

from margin.theory.signal.mean_field import (
    chi,
    correlation_slope,
    critical_point,
    depth_scale,
    fixed_length,
    gaussian_mean,
    next_correlation,
    next_length,
    pair_mean,
)


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


def hermite(g, q, nodes=256):
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    return float((g(torch.tensor(q**0.5 * x)) * torch.tensor(w)).sum()) / math.sqrt(2 * math.pi)


def test_moments_of_a_gaussian_are_exact():
    q = f64(0.0, 0.25, 1.0, 9.0)
    torch.testing.assert_close(gaussian_mean(torch.ones_like, q), torch.ones(4).double())
    torch.testing.assert_close(gaussian_mean(lambda u: u**4, q), 3 * q**2, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(
        gaussian_mean(torch.relu, q), (q / (2 * math.pi)).sqrt(), rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("q", [0.1, 1.0, 4.0])
def test_smooth_means_are_those_of_the_gauss_hermite_rule(q):
    for g in (torch.tanh, lambda u: torch.tanh(u) ** 2, torch.sigmoid):
        assert float(gaussian_mean(g, f64(q))) == pytest.approx(hermite(g, q), abs=1e-9)


def test_steep_functions_need_the_panels():
    def exact(z):
        return 2 * math.tanh(10 * z) ** 2 * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    expected = quad(exact, 0, 1, epsabs=1e-13)[0] + quad(exact, 1, 12, epsabs=1e-13)[0]
    square = lambda u: torch.tanh(u) ** 2
    assert float(gaussian_mean(square, f64(100.0))) == pytest.approx(expected, abs=1e-11)
    assert abs(hermite(square, 100.0) - expected) > 1e-5


def test_he_weights_keep_every_length_under_relu():
    q = f64(0.1, 1.0, 7.0)
    torch.testing.assert_close(next_length(torch.relu, q, math.sqrt(2), 0.0), q, rtol=1e-12, atol=0)
    torch.testing.assert_close(chi(torch.relu, q, math.sqrt(2)), torch.ones(3).double(), rtol=1e-12, atol=0)
    sigma_w, sigma_b = critical_point(torch.relu, q)
    torch.testing.assert_close(sigma_w, f64(*[math.sqrt(2)] * 3), rtol=1e-12, atol=0)
    assert sigma_b.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="every length is kept"):
        fixed_length(torch.relu, math.sqrt(2), 0.0)
    # leaky: sigma_w^2 = 2 / (1 + a^2)
    leaky = torch.nn.LeakyReLU(0.2)
    assert float(critical_point(leaky, f64(3.0))[0]) == pytest.approx(math.sqrt(2 / 1.04), rel=1e-12)


def test_the_error_function_has_its_closed_forms():
    q, c = f64(0.3, 1.0, 5.0), f64(0.2, -0.7, 0.9)
    square = 2 / math.pi * torch.asin(2 * q / (1 + 2 * q))  # Williams 1998
    torch.testing.assert_close(next_length(torch.erf, q, 1.0, 0.0), square, rtol=1e-11, atol=0)
    pair = 2 / math.pi * torch.asin(2 * q * c / (1 + 2 * q))
    torch.testing.assert_close(pair_mean(torch.erf, q, c), pair, rtol=1e-10, atol=1e-12)
    slope = 4 / math.pi / (1 + 4 * q).sqrt()
    torch.testing.assert_close(chi(torch.erf, q, 1.5), 2.25 * slope, rtol=1e-11, atol=0)


def test_relus_correlation_map_is_the_arc_cosine_kernel():
    c = f64(-0.5, 0.0, 0.5, 0.95)
    theta = torch.acos(c)
    expected = (theta.sin() + (math.pi - theta) * c) / math.pi  # Cho and Saul 2009: 0.60900 at 60 degrees
    found = next_correlation(torch.relu, c, f64(2.0).expand(4), math.sqrt(2), 0.0)
    torch.testing.assert_close(
        found, expected, rtol=0, atol=3e-5
    )  # it bends along lines that cross the panels
    assert float(expected[2]) == pytest.approx(0.60900, abs=5e-6)


@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(1.3, 0.2), (0.8, 0.5), (3.0, 0.05), (1.5, 0.0)])
def test_a_fixed_length_is_where_the_map_leads(sigma_w, sigma_b):
    q = f64(1.0)
    for _ in range(300):
        q = next_length(torch.tanh, q, sigma_w, sigma_b)
    found = fixed_length(torch.tanh, sigma_w, sigma_b)
    assert found == pytest.approx(float(q), rel=1e-9)
    assert float(next_length(torch.tanh, f64(found), sigma_w, sigma_b)) == pytest.approx(found, rel=1e-12)


def test_lengths_without_a_finite_fixed_point():
    assert fixed_length(torch.tanh, 0.9, 0.0) == 0
    assert fixed_length(torch.relu, 2.0, 0.0) == math.inf
    assert fixed_length(torch.relu, 1.5, 0.1) == math.inf
    # linear in q: q = q sigma_w^2 / 2 + sigma_b^2
    assert fixed_length(torch.relu, 1.0, 3.0) == pytest.approx(18.0, rel=1e-12)


@pytest.mark.parametrize("q", [0.1, 1.0, 5.0])
def test_on_the_critical_line_chi_is_1_at_the_fixed_length(q):
    sigma_w, sigma_b = (float(each) for each in critical_point(torch.tanh, f64(q)))
    assert fixed_length(torch.tanh, sigma_w, sigma_b) == pytest.approx(q, rel=1e-9)
    assert float(chi(torch.tanh, f64(q), sigma_w)) == pytest.approx(1, rel=1e-12)
    # it is found from the other side too: at this bias, chi passes through 1 at this sigma_w

    def gap(w):
        return float(chi(torch.tanh, f64(fixed_length(torch.tanh, w, sigma_b)), w)) - 1

    assert brentq(gap, 0.5 * sigma_w, 2 * sigma_w) == pytest.approx(sigma_w, rel=1e-9)


def test_the_line_begins_at_1_and_0_for_tanh():
    sigma_w, sigma_b = critical_point(torch.tanh, f64(1e-6))
    assert float(sigma_w) == pytest.approx(1, abs=2e-6)
    assert float(sigma_b) < 1e-3


@pytest.mark.parametrize(("sigma_w", "sigma_b"), [(0.9, 0.3), (1.3, 0.2), (2.5, 0.3)])
def test_the_correlation_map_keeps_1_and_has_the_slope_chi_there(sigma_w, sigma_b):
    q = f64(fixed_length(torch.tanh, sigma_w, sigma_b))
    assert float(next_correlation(torch.tanh, f64(1.0), q, sigma_w, sigma_b)) == pytest.approx(1, abs=1e-10)
    assert float(correlation_slope(torch.tanh, f64(1.0), q, sigma_w)) == pytest.approx(
        float(chi(torch.tanh, q, sigma_w)), rel=1e-9
    )
    c, step = f64(0.4), 1e-5
    ends = [float(next_correlation(torch.tanh, c + s * step, q, sigma_w, sigma_b)) for s in (1, -1)]
    found = float(correlation_slope(torch.tanh, c, q, sigma_w))
    assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_a_depth_scale_is_where_e_folds():
    assert float(depth_scale(f64(math.exp(-0.1)))) == pytest.approx(10)
    assert float(depth_scale(f64(math.exp(0.25)))) == pytest.approx(4)
    assert float(depth_scale(f64(1.0))) == math.inf
    with pytest.raises(ValueError, match="a factor must be above 0: got 0"):
        depth_scale(f64(0.0, 1.0))


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="sigma_w must be finite and at least 0: got -1"):
        next_length(torch.tanh, f64(1.0), -1.0, 0.0)
    with pytest.raises(ValueError, match="sigma_b must be finite and at least 0: got nan"):
        next_length(torch.tanh, f64(1.0), 1.0, math.nan)
    with pytest.raises(ValueError, match="a correlation must lie in"):
        pair_mean(torch.tanh, f64(1.0), f64(1.1))
