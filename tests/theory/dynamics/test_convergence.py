"""Paths of optimizers, and rates fitted to them, against sequences in closed form."""

import math

import pytest
import torch

from margin.math.convexity.landscapes import valley
from margin.optim.momentum import Nesterov
from margin.theory.dynamics.rates import fitted_exponent, fitted_rate, follow


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_path_holds_the_start_every_iterate_and_what_belongs_to_it():
    f = valley(f64(1.0, 4.0))
    path = follow(f, f64(1.0, -2.0), lambda ps: torch.optim.SGD(ps, lr=0.1), 3)
    expected = [[0.9**t, -2 * 0.6**t] for t in range(4)]
    assert torch.allclose(path.points, torch.tensor(expected, dtype=torch.float64))
    assert path.values.tolist() == pytest.approx([f(p).item() for p in path.points])
    assert path.gradient_norms.tolist() == pytest.approx([math.hypot(a, 4 * b) for a, b in expected])


def test_of_nesterov_the_iterates_are_followed_not_the_points_asked():
    f, beta, lr = valley(f64(1.0, 4.0)), 0.5, 0.1
    path = follow(f, f64(1.0, -2.0), lambda ps: Nesterov(ps, lr=lr, momentum=beta), 4)
    before = theta = f64(1.0, -2.0)
    for t in range(1, 5):
        chi = theta + beta * (theta - before)
        before, theta = theta, chi - lr * f64(1.0, 4.0) * chi
        assert torch.allclose(path.points[t], theta)
        assert path.values[t] == pytest.approx(f(theta).item())


def test_the_start_is_left_alone_and_a_divergent_path_ends():
    start = f64(1.0)
    path = follow(lambda x: x.pow(4).sum(), start, lambda ps: torch.optim.SGD(ps, lr=10.0), 100)
    assert start.tolist() == [1.0] and not start.requires_grad
    assert len(path.points) < 20
    with pytest.raises(ValueError, match="steps must be at least 0: got -1"):
        follow(torch.sum, start, lambda ps: torch.optim.SGD(ps, lr=1.0), -1)


def test_a_geometric_sequence_has_its_factor_and_no_error():
    fit = fitted_rate(3 * 0.9 ** torch.arange(50, dtype=torch.float64))
    assert fit.value == pytest.approx(0.9, rel=1e-12) and fit.stderr < 1e-12 and fit.points == 50
    assert fitted_rate(0.9 ** torch.arange(0, 200, 20, dtype=torch.float64), every=20).value == pytest.approx(
        0.9
    )


def test_a_power_has_its_exponent_and_no_one_factor():
    t = torch.logspace(0, 4, 30, dtype=torch.float64)
    fit = fitted_exponent(t, 5 * t**-1.5)
    assert fit.value == pytest.approx(-1.5) and fit.stderr < 1e-12
    steps = torch.arange(1, 1001, dtype=torch.float64)
    assert fitted_rate(1 / steps).stderr > 1e-3  # the factor changes along the way: the error says so


def test_the_error_covers_the_noise():
    # log-normal noise of 10 % on 64 values: over 200 draws 4 errors (Student's t, 3 degrees of freedom)
    # miss in 2.8 % on average; at most 20 of 200 but for a chance of 1e-6
    g = torch.Generator().manual_seed(0)
    t = torch.arange(64, dtype=torch.float64)
    missed = 0
    for _ in range(200):
        fit = fitted_rate(0.97**t * (0.1 * torch.randn(64, generator=g, dtype=torch.float64)).exp())
        missed += abs(fit.value - 0.97) > 4 * fit.stderr
    assert missed <= 20


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0] * 7, "a rate needs at least 8 values: got 7"),
        ([1.0] * 8 + [0.0], "positive and finite: got 0"),
        ([1.0] * 8 + [math.nan], "positive and finite: got nan"),
    ],
)
def test_too_little_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        fitted_rate(values)


def test_steps_must_increase():
    with pytest.raises(ValueError, match="steps must increase, one for each value: got 8 steps, 8 values"):
        fitted_exponent([1.0] * 8, [1.0] * 8)
    with pytest.raises(ValueError, match="got 8 steps, 9 values"):
        fitted_exponent([1.0 + i for i in range(8)], [1.0] * 9)
