"""Taylor's polynomial and remainder against exp, log and polynomials."""

import math

import pytest
import torch

from margin.math.calculus.taylor import taylor


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_polynomial_and_remainder_are_exp_for_n_3():
    x = f64(-2.0, -0.5, 0.0, 1.0, 3.0)
    polynomial, remainder = taylor(torch.exp, 0.0, x, order=3)
    torch.testing.assert_close(polynomial, 1 + x + x**2 / 2 + x**3 / 6, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(polynomial + remainder, x.exp(), rtol=1e-10, atol=1e-10)
    # the remainder is found by quadrature, not as what is missing
    exact = x.exp() - (1 + x + x**2 / 2 + x**3 / 6)
    torch.testing.assert_close(remainder, exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("order", range(6))
@pytest.mark.parametrize("center", [0.5, 2.0])
def test_the_sum_is_the_logarithm_at_every_order_from_both_sides(order, center):
    x = f64(0.4, 1.0, 3.0)
    found = taylor(torch.log, center, x, order=order)
    torch.testing.assert_close(found.polynomial + found.remainder, x.log(), rtol=1e-10, atol=1e-10)
    k = torch.arange(1, order + 1)
    u = (x - center) / center
    series = math.log(center) - ((-u[:, None]) ** k / k).sum(1)
    torch.testing.assert_close(found.polynomial, series, rtol=1e-12, atol=1e-12)


def test_a_polynomial_of_the_order_has_no_remainder_and_one_of_the_next_has():
    x = f64(2.0)
    assert float(taylor(lambda t: t**3 - t, 1.0, x, order=3).remainder) == pytest.approx(0, abs=1e-14)
    # t^3 about 1 at order 2 leaves (x - 1)^3
    assert float(taylor(lambda t: t**3, 1.0, x, order=2).remainder) == pytest.approx(1, abs=1e-12)


def test_points_and_orders_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="order must be at least 0: got -1"):
        taylor(torch.exp, 0.0, f64(1.0), order=-1)
    with pytest.raises(ValueError, match="must be finite"):
        taylor(torch.exp, 0.0, f64(math.inf), order=1)
