"""Quadrature against closed forms, integration by parts, and the argmax under increasing maps."""

import math

import pytest
import torch

from margin.math.calculus.derivatives import integrate, integrate_by_parts


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def test_one_panel_is_exact_to_degree_31_and_not_beyond():
    powers = [float(integrate(lambda x, k=k: x**k, f64(-1.0), f64(1.0), panels=1)) for k in (30, 31, 32)]
    assert powers[0] == pytest.approx(2 / 31, abs=1e-15)
    assert powers[1] == pytest.approx(0, abs=1e-15)
    assert 1e-10 < abs(powers[2] - 2 / 33) < 1e-8  # 2^33 (16!)^4 / (33 (32!)^2) = 2.4e-10


def test_integrals_are_the_closed_forms_for_a_batch_of_ends_in_both_directions():
    low, high = torch.meshgrid(f64([-1.0, 0.0, 2.0]), f64([1.0, 3.0]), indexing="ij")
    torch.testing.assert_close(integrate(torch.exp, low, high), high.exp() - low.exp())
    torch.testing.assert_close(integrate(torch.cos, high, low), low.sin() - high.sin())
    assert float(integrate(torch.exp, f64(1.0), f64(1.0))) == 0
    assert integrate(torch.exp, torch.tensor(0.0), torch.tensor(1.0)).dtype == torch.float64


def test_an_integral_can_be_differentiated_in_its_ends():
    high = f64(1.3).requires_grad_()
    (slope,) = torch.autograd.grad(integrate(torch.sin, f64(0.0), high), high)
    assert float(slope) == pytest.approx(math.sin(1.3), abs=1e-14)


@pytest.mark.parametrize(
    ("u", "v", "v_prime", "expected"),
    [
        (lambda x: x, torch.exp, torch.exp, 1.0),
        (torch.log1p, lambda x: x, torch.ones_like, 2 * math.log(2) - 1),
        (lambda x: x.square(), torch.sin, torch.cos, 2 * math.cos(1) - math.sin(1)),
    ],
    ids=["x e^x", "log(1 + x)", "x^2 cos x"],
)
def test_integration_by_parts_gives_the_integral_of_the_product(u, v, v_prime, expected):
    zero, one = f64(0.0), f64(1.0)
    assert float(integrate(lambda x: u(x) * v_prime(x), zero, one)) == pytest.approx(expected, abs=1e-14)
    assert float(integrate_by_parts(u, v, zero, one)) == pytest.approx(expected, abs=1e-14)
    ends = integrate_by_parts(u, v, f64([0.0, 0.0]), f64([1.0, 0.0]))
    assert ends.tolist() == pytest.approx([expected, 0.0], abs=1e-14)


def test_strictly_increasing_maps_keep_the_argmax_and_a_clip_may_lose_it():
    mu = torch.linspace(-2, 2, 401, dtype=torch.float64)
    data = f64([0.3, 0.9, -0.1, 0.7])
    likelihood = (-(data[:, None] - mu).square() / 2).exp().prod(0)
    best = int(likelihood.argmax())
    assert float(mu[best]) == pytest.approx(float(data.mean()), abs=0.005)
    for increasing in (torch.log, torch.exp, torch.atan, lambda g: 3 * g + 1):
        assert int(increasing(likelihood).argmax()) == best
    clipped = likelihood.clamp_max(float(likelihood.max()) / 2)
    assert int(clipped.argmax()) != best
    assert bool(clipped[best] == clipped.max())  # the argmax is still among the maximizers


@pytest.mark.parametrize(
    ("low", "high", "panels", "message"),
    [
        (0.0, math.inf, 4, "must be finite"),
        (math.nan, 1.0, 4, "must be finite"),
        (0.0, 1.0, 0, "at least 1: got 0"),
    ],
)
def test_integrals_without_ends_or_panels_are_refused(low, high, panels, message):
    with pytest.raises(ValueError, match=message):
        integrate(torch.exp, f64(low), f64(high), panels=panels)
