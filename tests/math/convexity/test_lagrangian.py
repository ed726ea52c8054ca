"""Lagrange's conditions: the hand case, the price of a constraint, quadratics against a linear solve."""

import pytest
import torch
from torch import Generator

from margin.math.convexity.lagrangian import stationary_point


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def product(c):
    return stationary_point(lambda x: x[0] * x[1], lambda x: x.sum()[None], f64(c), f64(0.9, 0.3))


def test_the_largest_product_of_two_numbers_of_sum_one():
    found = product(1.0)
    assert found.converged and found.x.tolist() == pytest.approx([0.5, 0.5])
    assert float(found.x.prod()) == pytest.approx(1 / 4)
    assert float(found.multipliers) == pytest.approx(1 / 2)
    step = 1e-4  # gamma = d f* / d c
    slope = (float(product(1 + step).x.prod()) - float(product(1 - step).x.prod())) / (2 * step)
    assert slope == pytest.approx(float(found.multipliers), rel=1e-6)


def test_a_quadratic_is_solved_in_one_step_as_by_its_linear_system():
    g = Generator().manual_seed(0)
    A = torch.randn(5, 5, generator=g, dtype=torch.float64)
    H, b = A @ A.T, torch.randn(5, generator=g, dtype=torch.float64)
    J, c = torch.randn(2, 5, generator=g, dtype=torch.float64), f64(1.0, -2.0)
    found = stationary_point(lambda x: x @ H @ x / 2 - b @ x, lambda x: J @ x, c, torch.zeros(5).double())
    # minimize by elimination: x = x0 + N z
    x0, N = torch.linalg.pinv(J) @ c, torch.linalg.svd(J)[2][2:].T
    z = torch.linalg.solve(N.T @ H @ N, N.T @ (b - H @ x0))
    assert torch.allclose(found.x, x0 + N @ z, atol=1e-9) and found.steps == 1


def test_the_leading_eigenvector_by_rayleigh():
    A = torch.diag(f64(3.0, 1.0, 0.5))
    found = stationary_point(lambda x: x @ A @ x, lambda x: (x @ x)[None], f64(1.0), f64(0.9, 0.3, 0.2))
    assert found.x.abs().tolist() == pytest.approx([1, 0, 0], abs=1e-9)
    assert float(found.multipliers) == pytest.approx(3)


def test_without_a_stationary_point_it_says_so():
    found = stationary_point(
        lambda x: x[0] + x[1].square(), lambda x: x[1:], f64(1.0), f64(0.0, 0.0) + 1, max_steps=0
    )
    assert not found.converged and found.residual > 0.5


def test_bad_constraints_are_refused():
    with pytest.raises(ValueError, match="one value for each constraint"):
        stationary_point(torch.sum, lambda x: x, f64(1.0), f64(0.0, 0.0))
    with pytest.raises(ValueError, match="must be independent"):
        stationary_point(
            lambda x: x @ x, lambda x: torch.stack((x.sum(), x.sum())), f64(1.0, 2.0), f64(0.3, 0.1)
        )


def test_where_the_slope_is_met_and_the_constraint_is_not_the_search_goes_on():
    # With as many constraints as unknowns multipliers meet the slope anywhere: only x^2 = 4 decides.
    found = stationary_point(lambda x: x[0], lambda x: x.square(), f64(4.0), f64(1.0))
    assert found.converged and found.steps > 0 and found.x.item() == pytest.approx(2)
    stopped = stationary_point(lambda x: x[0], lambda x: x.square(), f64(4.0), f64(1.0), max_steps=0)
    assert not stopped.converged and stopped.residual == pytest.approx(3)  # |1^2 - 4|
