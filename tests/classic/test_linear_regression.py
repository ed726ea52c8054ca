"""Least squares: against NumPy, its residual, and the shortest of many solutions."""

import numpy as np
import pytest
import torch

from margin.classic.linear_regression import LinearRegression, least_squares, minimum_norm_solution
from margin.engine.state import State
from margin.types import Batch


def problem(rows: int, features: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + features + rank)
    factors = [
        torch.randn(a, b, generator=generator, dtype=torch.float64)
        for a, b in ((rows, rank), (rank, features))
    ]
    return factors[0] @ factors[1], torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("rows", "features", "rank"), [(30, 4, 4), (30, 4, 2), (5, 9, 5), (8, 8, 3)])
def test_the_solution_is_numpys_of_the_centered_problem(rows: int, features: int, rank: int) -> None:
    x, y = problem(rows, features, rank)
    w, b, found = minimum_norm_solution(x, y)
    centered = (x - x.mean(0)).numpy()
    expected = np.linalg.lstsq(centered, (y - y.mean()).numpy(), rcond=1e-10)[0]
    assert np.allclose(w.numpy(), expected, atol=1e-9)
    assert found == np.linalg.matrix_rank(centered)
    residual = x @ w + b - y
    assert (x.T @ residual).abs().max() <= 1e-9 * max(1.0, float(x.abs().max()) * rows)
    assert abs(float(residual.sum())) <= 1e-9


def test_every_other_minimizer_is_longer() -> None:
    x, y = problem(6, 9, 4)
    w, _, _ = minimum_norm_solution(x, y)
    centered = x - x.mean(0)
    null = torch.linalg.svd(centered).Vh[4:]
    for direction in null:
        other = w + 0.1 * direction
        assert torch.allclose(centered @ other, centered @ w, atol=1e-9)
        assert other.norm() > w.norm()


def test_the_step_leaves_the_solution_in_the_model() -> None:
    x, y = problem(30, 4, 4)
    state = State({"model": LinearRegression(4).double()})
    metrics = least_squares()(state, Batch((x,), y))
    design = np.c_[x.numpy(), np.ones(30)]
    solution, squares, _, _ = np.linalg.lstsq(design, y.numpy(), rcond=None)
    assert np.allclose([*state.model.weight.tolist(), state.model.bias.item()], solution, atol=1e-10)
    assert abs(float(metrics["loss"]) - squares[0] / 30) <= 1e-12
    assert metrics["rank"] == 4.0


def test_a_constant_target_needs_no_slope() -> None:
    x, _ = problem(10, 3, 3)
    w, b, _ = minimum_norm_solution(x, torch.full((10,), 2.5, dtype=torch.float64))
    assert w.abs().max() <= 1e-12
    assert abs(float(b) - 2.5) <= 1e-12


def test_rows_far_from_the_origin_are_solved_in_float64() -> None:
    x, _ = problem(30, 2, 2)
    slope = torch.tensor([2.0, -3.0], dtype=torch.float64)
    x = (x * 0.01 + 100).float()
    y = (x.double() @ slope + 1).float()
    w, b, rank = minimum_norm_solution(x, y)
    expected = np.linalg.lstsq(np.c_[x.double().numpy(), np.ones(30)], y.double().numpy(), rcond=None)[0]
    assert (w.dtype, b.dtype, rank) == (torch.float64, torch.float64, 2)
    assert np.allclose([*w.tolist(), float(b)], expected, rtol=1e-6)
