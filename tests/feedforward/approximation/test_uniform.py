"""Uniform distance and best uniform fits: closed forms, alternation, what a grid misses."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.stats import t as student
from torch import nn

from margin.feedforward.approximation import uniform as approximation
from margin.feedforward.approximation.uniform import (
    alternations,
    best_uniform_fit,
    monomials,
    uniform_distance,
)

UNIT = torch.linspace(0, 1, 401, dtype=torch.float64)


def box(dimension: int, low: float = 0.0, high: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((dimension,), low).double(), torch.full((dimension,), high).double()


def zero(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x[:, 0])


def test_the_best_constant_for_x_is_one_half_away() -> None:
    fit = best_uniform_fit(monomials(UNIT, 0), UNIT)
    assert fit.error == pytest.approx(0.5, abs=1e-12)
    assert fit.coefficients.tolist() == pytest.approx([0.5])


def test_the_best_line_for_a_parabola_is_one_eighth_away() -> None:
    fit = best_uniform_fit(monomials(UNIT, 1), UNIT.square())
    assert fit.error == pytest.approx(1 / 8, abs=1e-12)
    assert fit.coefficients.tolist() == pytest.approx([-1 / 8, 1.0])
    # the error of the same line on all of [0, 1] bounds the distance from above
    on_all = uniform_distance(
        lambda x: x[:, 0].square(), lambda x: x[:, 0] - 1 / 8, *box(1), points=1001, lipschitz=1.0
    )
    assert fit.error <= 1 / 8 + 1e-12 <= on_all.upper + 1e-12
    assert on_all.upper <= 1 / 8 + 0.5e-3 + 1e-12


@pytest.mark.parametrize("degree", [1, 2, 4, 7])
def test_the_best_fit_to_the_next_power_is_chebyshevs(degree: int) -> None:
    """x^(n+1) less its best fit of degree n on [-1, 1] is T_(n+1) / 2^n; the points are its extrema."""
    x = -(math.pi * torch.arange(degree + 2, dtype=torch.float64) / (degree + 1)).cos()
    x = torch.cat((x, torch.linspace(-1, 1, 301, dtype=torch.float64))).unique()
    fit = best_uniform_fit(monomials(x, degree), x ** (degree + 1))
    assert fit.error == pytest.approx(2.0**-degree, rel=1e-6)
    # what is proved is below the truth, whatever the solver's tolerance, and near it
    assert 2.0**-degree * (1 - 1e-6) <= fit.lower <= 2.0**-degree * (1 + 1e-12)
    residual = x ** (degree + 1) - monomials(x, degree) @ fit.coefficients
    assert alternations(residual) == degree + 2


def test_what_is_proved_is_below_every_fit() -> None:
    g = torch.Generator().manual_seed(0)
    for _ in range(10):
        phi = torch.randn(30, 4, generator=g, dtype=torch.float64)
        y = torch.randn(30, generator=g, dtype=torch.float64)
        fit = best_uniform_fit(phi, y)
        assert fit.lower <= fit.error <= fit.lower * (1 + 1e-6)
        tried = fit.coefficients + 0.05 * torch.randn(2000, 4, generator=g, dtype=torch.float64)
        assert float((tried @ phi.T - y).abs().amax(1).min()) >= fit.lower


def test_a_careless_solver_proves_less_but_nothing_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """All weight on one point: multipliers taken as they are "prove" 1/6, the error of least squares."""
    exact = approximation._program

    def careless(phi: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return exact(phi, y)[0], (y.abs() == y.abs().max()).double() * y.sign()

    monkeypatch.setattr(approximation, "_program", careless)
    fit = best_uniform_fit(monomials(UNIT, 1), UNIT.square() + 3)
    assert 0 < fit.lower <= 1 / 8 + 1e-12
    assert fit.error == pytest.approx(1 / 8, rel=1e-6)


def test_functions_that_reach_the_values_leave_nothing() -> None:
    fit = best_uniform_fit(monomials(UNIT, 3), UNIT**2 - UNIT)
    assert fit.error < 1e-13
    assert fit.lower == 0
    twice = torch.stack((UNIT, 2 * UNIT), 1)
    assert best_uniform_fit(twice, torch.ones_like(UNIT)).error == pytest.approx(1.0)


def test_least_squares_is_farther_and_does_not_alternate() -> None:
    x, phi = UNIT, monomials(UNIT, 1)
    c = torch.linalg.lstsq(phi, x.exp()[:, None]).solution[:, 0]
    residual = x.exp() - phi @ c
    assert float(residual.abs().max()) > 1.2 * best_uniform_fit(phi, x.exp()).error
    assert alternations(residual) < 3


def test_a_finer_grid_sees_a_larger_distance() -> None:
    errors = []
    for count in (5, 9, 17, 33):
        x = torch.linspace(0, 1, count, dtype=torch.float64)
        errors.append(best_uniform_fit(monomials(x, 2), (7 * x).sin()).error)
    assert all(one <= other + 1e-12 for one, other in pairwise(errors))


def test_values_that_are_no_numbers_have_no_fit() -> None:
    with pytest.raises(ArithmeticError, match="must be finite"):
        best_uniform_fit(monomials(UNIT, 1), torch.where(UNIT > 0.5, torch.nan, UNIT))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_the_true_distance_lies_between_the_bounds(dimension: int) -> None:
    """A cone of height 1 with its top off the grid, Lipschitz constant 3."""
    top = torch.tensor([0.3127, 0.7711, 0.5377][:dimension]).double()

    def cone(x: torch.Tensor) -> torch.Tensor:
        return (1 - 3 * torch.linalg.vector_norm(x - top, dim=1)).clamp_min(0)

    found = uniform_distance(cone, zero, *box(dimension), points=3000, lipschitz=3.0)
    assert found.lower <= 1 <= found.upper
    assert found.lower > 1 - 1e-3
    assert float(cone(found.where[None])) == found.lower
    assert float(torch.linalg.vector_norm(found.where - top)) < 1e-3
    assert uniform_distance(cone, zero, *box(dimension), points=3000).upper == math.inf


def test_the_upper_bound_is_attained() -> None:
    """A kink in the middle of two points of the grid: the bound by the Lipschitz constant is exact."""
    found = uniform_distance(
        lambda x: 0.25 - (x[:, 0] - 0.5).abs(), lambda x: zero(x) - 1, *box(1), points=2, lipschitz=1.0
    )
    assert found.upper == pytest.approx(1.25, abs=1e-12)
    square = uniform_distance(
        lambda x: 1 - torch.linalg.vector_norm(x - 0.5, dim=1), zero, *box(2), points=4, lipschitz=1.0
    )
    assert square.upper == pytest.approx(1.0, abs=1e-12)


def test_it_is_a_distance() -> None:
    f, g, h = (lambda x, k=k: (k * x).sin().sum(1) for k in (1.0, 2.0, 3.0))
    d = {
        (a, b): uniform_distance(one, other, *box(2, -1, 1), points=900).lower
        for a, one in enumerate((f, g, h))
        for b, other in enumerate((f, g, h))
    }
    assert d[0, 0] == 0
    assert d[0, 1] == d[1, 0]
    assert d[0, 2] <= d[0, 1] + d[1, 2] + 1e-9


def test_what_is_no_number_is_no_distance() -> None:
    found = uniform_distance(lambda x: 1 / (x[:, 0] - 0.5), zero, *box(1), points=3)
    assert math.isnan(found.lower)
    assert math.isnan(found.upper)
    assert found.where.tolist() == [0.5]


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"points must be at least 2\^dimension: got points=100000, dimension=20"
    ):
        uniform_distance(zero, zero, *box(20))
    with pytest.raises(ValueError, match="low < high"):
        uniform_distance(zero, zero, *box(2, 1.0, 1.0))
    with pytest.raises(ValueError, match="at least 0: got -1"):
        uniform_distance(zero, zero, *box(1), lipschitz=-1.0)
    with pytest.raises(ValueError, match=r"one number a row: got \(\d+, 1\)"):
        uniform_distance(lambda x: x, zero, *box(1), points=9)


def trained(width: int, seed: int) -> float:
    """The uniform error of a ReLU net of two inputs after 30 steps of L-BFGS on a grid."""
    axis = torch.linspace(-1, 1, 15, dtype=torch.float64)
    x, ends = torch.cartesian_prod(axis, axis), torch.ones(2)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1)).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=30, line_search_fn="strong_wolfe")

    def wavy(points: torch.Tensor) -> torch.Tensor:
        return (3 * points[:, 0]).sin() * (2 * points[:, 1]).cos()

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        error = (model(x).flatten() - wavy(x)).square().mean()
        error.backward()
        return error

    optimizer.step(loss)
    return uniform_distance(wavy, lambda points: model(points).flatten(), -ends, ends, points=2500).lower


def test_a_trained_net_of_two_inputs_is_uniformly_nearer_the_wider_it_is() -> None:
    """5 paired seeds; a paired t interval at 99 % excludes 0."""
    falls = torch.tensor([trained(4, seed) - trained(24, seed) for seed in range(5)])
    half = float(student.ppf(0.995, 4)) * float(falls.std()) / math.sqrt(5)
    assert float(falls.mean()) - half > 0, falls
