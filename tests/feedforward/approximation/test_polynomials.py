"""Bernstein's polynomials: exact cases, uniform convergence, the bound; Chebyshev's, by NumPy, are nearer."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.polynomial import Chebyshev

from margin.core.catalog import parts, resolve
from margin.feedforward.approximation.uniform import bernstein, bernstein_bound

X = torch.linspace(0, 1, 501, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 7, 60, 1000])
def test_constants_and_lines_are_kept_and_squares_move_by_the_variance(n: int) -> None:
    assert float((bernstein(torch.ones_like, n, X) - 1).abs().max()) < 1e-11
    assert float((bernstein(lambda t: 3 * t - 1, n, X) - 3 * X + 1).abs().max()) < 1e-11
    assert float((bernstein(torch.square, n, X) - X.square() - X * (1 - X) / n).abs().max()) < 1e-11


def test_it_is_the_sum_in_exact_arithmetic() -> None:
    n, x = 9, Fraction(2, 7)
    terms = (
        abs(Fraction(k, n) - Fraction(1, 2)) * math.comb(n, k) * x**k * (1 - x) ** (n - k)
        for k in range(n + 1)
    )
    found = bernstein(lambda t: (t - 0.5).abs(), n, torch.tensor([2 / 7], dtype=torch.float64))
    assert float(found) == pytest.approx(float(sum(terms)), abs=1e-14)


def test_the_uniform_error_of_a_kink_falls_to_nothing() -> None:
    def kink(t: torch.Tensor) -> torch.Tensor:
        return (t - 0.5).abs()

    sizes = (2, 8, 32, 128, 512, 2048)
    errors = [float((bernstein(kink, n, X) - kink(X)).abs().max()) for n in sizes]
    assert all(other < 0.6 * one for one, other in pairwise(errors))
    for n, error in zip(sizes, errors, strict=True):
        assert error <= bernstein_bound(lambda h: min(h, 0.5), n)
        # at 1/2 the error is the mean of |K/n - 1/2|, about 1 / sqrt(2 pi n)
        assert error == pytest.approx(1 / math.sqrt(2 * math.pi * n), rel=0.3)


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_holds_for_random_polygons(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    heights = torch.randn(7, generator=g, dtype=torch.float64).numpy()
    steepest = 6 * np.abs(np.diff(heights)).max()

    def f(t: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.interp(t.numpy(), np.linspace(0, 1, 7), heights))

    for n in (3, 20, 150):
        error = float((bernstein(f, n, X) - f(X)).abs().max())
        assert error <= bernstein_bound(lambda h: steepest * h, n)


def test_any_interval_will_do_and_chebyshev_is_nearer() -> None:
    x = torch.linspace(-2, 3, 301, dtype=torch.float64)
    ours = float((bernstein(torch.sin, 20, x, low=-2.0, high=3.0) - x.sin()).abs().max())
    assert 1e-3 < ours < 0.15
    assert resolve(parts()["feedforward/chebyshev"].target) is Chebyshev
    theirs = Chebyshev.interpolate(np.sin, 20, domain=[-2, 3])(x.numpy()) - np.sin(x.numpy())
    assert np.abs(theirs).max() < 1e-13


def test_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="degree >= 1 and low < high: got 0, 0, 1"):
        bernstein(torch.sin, 0, X)
    with pytest.raises(ValueError, match=r"taken in \[0, 1\]: got a point outside"):
        bernstein(torch.sin, 3, X + 1e-3)
    with pytest.raises(ValueError, match="got 0, 1"):
        bernstein_bound(lambda h: h, 0)


def test_the_bounds_constant_is_needed_beyond_one_and_is_the_theorems() -> None:
    # f(t) = ceil(sqrt(6) |t - x|) moves by at most 1 over 1/sqrt(6), and B_6 f(x) - f(x) is E f(k / 6). Over
    # all x the largest is Sikkema's constant (4306 + 837 sqrt 6) / 5832 = 1.08989 (1961): 1 is too small.
    def error(x: float) -> float:
        return sum(
            math.comb(6, k) * x**k * (1 - x) ** (6 - k) * math.ceil(math.sqrt(6) * abs(k / 6 - x))
            for k in range(7)
        )

    worst = max(error(i / 20_000) for i in range(20_001))
    assert worst == pytest.approx((4306 + 837 * math.sqrt(6)) / 5832, abs=1e-4)
    assert 1 < worst <= bernstein_bound(lambda distance: 1.0, 6)
    # Lorentz (1986), Theorem 1.6.1: 5/4 of what f moves over (b - a) / sqrt(n).
    assert bernstein_bound(lambda distance: distance**2, 16, length=2.0) == pytest.approx(5 / 16)
