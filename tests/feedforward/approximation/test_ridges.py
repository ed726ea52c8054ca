"""Leshno's theorem both ways, and the step from one variable to several."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from margin.feedforward.approximation.ridges import (
    derivative,
    monomial_network,
    product_as_ridges,
    random_ridge_fit,
)
from margin.feedforward.approximation.uniform import best_uniform_fit, monomials
from margin.feedforward.piecewise.error import FunctionInterpolant

X = torch.linspace(-1, 1, 201, dtype=torch.float64)


@pytest.mark.parametrize("activation", [torch.tanh, torch.sigmoid, F.softplus, torch.exp, torch.sin])
@pytest.mark.parametrize("power", range(5))
def test_a_few_units_are_as_near_to_a_power_as_one_likes(activation, power: int) -> None:
    steps = (0.4, 0.2, 0.1, 0.05)
    nets = [monomial_network(activation, power, step=h, offset=0.3) for h in steps]
    errors = [float((net(X) - X**power).abs().max()) for net in nets]
    assert all(len(net.scales) == power + 1 for net in nets)
    assert errors[-1] < 0.02
    if power:
        orders = [math.log2(a / b) for a, b in pairwise(errors)]
        assert orders[-1] == pytest.approx(2, abs=0.2)  # a central difference: error of order h^2


def test_a_polynomial_activation_stays_away_from_x_to_the_5() -> None:
    """Units of degree 3 span the cubics; the best of these is 1/16 from x^5: x^5 - T_5 / 16 is one."""

    def cubic(z: torch.Tensor) -> torch.Tensor:
        return z**3 - 2 * z**2 + z + 0.5

    g = torch.Generator().manual_seed(0)
    extrema = -(math.pi * torch.arange(6, dtype=torch.float64) / 5).cos()
    x = torch.cat((X, extrema)).unique()
    for units in (4, 8, 30):
        a, b = torch.randn(2, units, generator=g, dtype=torch.float64)
        fit = best_uniform_fit(cubic(x[:, None] * a + b), x**5)
        assert fit.error == pytest.approx(1 / 16, rel=1e-5)
    # tanh has no such floor
    a, b = 3 * torch.randn(2, 30, generator=g, dtype=torch.float64)
    assert best_uniform_fit((x[:, None] * a + b).tanh(), x**5).error < 1e-3
    with pytest.raises(
        ValueError, match=r"derivative 5 of the activation must not be 0 at the offset: got 0 at"
    ):
        monomial_network(cubic, 5, step=0.1)


def test_without_the_scale_an_exponential_gives_multiples_of_itself_only() -> None:
    """The printed span{phi(x + b)} fails: of all c e^x the best for 1 on [0, 1] is (e - 1) / (e + 1) away."""
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    shifts = torch.linspace(-3, 3, 13, dtype=torch.float64)
    shifted = (x[:, None] + shifts).exp()
    assert int(torch.linalg.matrix_rank(shifted)) == 1
    best = best_uniform_fit(shifted, torch.ones_like(x))
    assert best.error == pytest.approx((math.e - 1) / (math.e + 1), abs=1e-7)
    scaled = best_uniform_fit((x[:, None] * shifts).exp(), x)
    assert scaled.error < 1e-4


def test_derivatives_are_those_known() -> None:
    assert derivative(torch.tanh, 3, 0.0) == pytest.approx(-2)
    assert derivative(torch.exp, 6, 0.7) == pytest.approx(math.exp(0.7))
    assert derivative(lambda z: 2 * z + 1, 2, 0.4) == 0
    assert derivative(lambda z: torch.ones_like(z), 1, 0.4) == 0


def test_powers_and_steps_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"power >= 0 and step > 0: got -1, 0\.1"):
        monomial_network(torch.tanh, -1, step=0.1)
    with pytest.raises(ValueError, match=r"got 1, 0\.0"):
        monomial_network(torch.tanh, 1, step=0.0)
    with pytest.raises(
        ValueError, match="derivative 2 of the activation must not be 0 at the offset: got 0 at 0;"
    ):
        monomial_network(torch.tanh, 2, step=0.1, offset=0.0)
    with pytest.raises(ValueError, match="at least 1: got 0"):
        random_ridge_fit(torch.sin, torch.zeros(3, 2), 0, generator=torch.Generator())


def square_grid(side: int = 33) -> torch.Tensor:
    axis = torch.linspace(-1, 1, side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


def test_a_product_is_two_ridges() -> None:
    x = square_grid()
    assert float((product_as_ridges()(x) - x.prod(1)).abs().max()) < 1e-15
    off = product_as_ridges(lambda t: t.square() + 0.1)  # equal errors cancel
    assert float((off(x) - x.prod(1)).abs().max()) < 1e-15
    worst = product_as_ridges(lambda t: t.square() + 0.1 * t.sign())
    assert float((worst(x) - x.prod(1)).abs().max()) == pytest.approx(0.1 / 2)


@pytest.mark.parametrize("pieces", [4, 16])
def test_a_network_of_one_variable_in_two_ridges_is_one_of_two(pieces: int) -> None:
    """ReLU units in directions (1, 1) and (1, -1): the error is at most h^2 2 / 8 / 2."""
    net = FunctionInterpolant(torch.square, -2.0, 2.0, pieces=pieces, curvature=2.0)
    x = square_grid(65)
    with torch.no_grad():
        gap = float((product_as_ridges(lambda t: net(t[:, None]))(x) - x.prod(1)).abs().max())
    assert 0 < gap <= (4 / pieces) ** 2 / 8 + 1e-12


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh])
def test_random_ridges_fit_a_product_better_the_more_they_are(activation) -> None:
    """5 paired seeds; the mean ratio is some 0.1, so that an increase is out of the question."""
    x, fine = square_grid(33), square_grid(41)

    def product(points: torch.Tensor) -> torch.Tensor:
        return points[:, 0] * points[:, 1]

    for seed in range(5):
        errors = []
        for width in (10, 40, 160):
            fit = random_ridge_fit(
                product, x, width, activation=activation, generator=torch.Generator().manual_seed(seed)
            )
            errors.append(float((fit(fine) - product(fine)).abs().max()))
        assert errors[2] < errors[1] < errors[0]
        assert errors[2] < 0.1


def test_polynomials_of_the_scale_alone_are_what_differences_see() -> None:
    """The functions phi(a x + b) of x^2 - 1 span the parabolas: x^2 is reached, x^3 is not."""

    def parabola(z: torch.Tensor) -> torch.Tensor:
        return z.square() - 1

    assert float((monomial_network(parabola, 2, step=0.3)(X) - X.square()).abs().max()) < 1e-12
    best = best_uniform_fit(monomials(X, 2), X**3)
    assert best.error == pytest.approx(1 / 4, rel=1e-3)
