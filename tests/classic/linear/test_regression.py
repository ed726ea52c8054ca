"""Least squares: against NumPy, its residual, and the shortest of many solutions."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LinearRegression as Reference

from margin.classic.linear.regression import (
    LinearRegression,
    gaussian_log_likelihood,
    least_squares,
    minimum_norm_solution,
    standard_errors,
)
from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State


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


LONGLEY = """
60323 83.0 234289 2356 1590 107608 1947
61122 88.5 259426 2325 1456 108632 1948
60171 88.2 258054 3682 1616 109773 1949
61187 89.5 284599 3351 1650 110929 1950
63221 96.2 328975 2099 3099 112075 1951
63639 98.1 346999 1932 3594 113270 1952
64989 99.0 365385 1870 3547 115094 1953
63761 100.0 363112 3578 3350 116219 1954
66019 101.2 397469 2904 3048 117388 1955
67857 104.6 419180 2822 2857 118734 1956
68169 108.4 442769 2936 2798 120445 1957
66513 110.8 444546 4681 2637 121950 1958
68655 112.6 482704 3813 2552 123366 1959
69564 114.2 502601 3931 2514 125368 1960
69331 115.7 518173 4806 2572 127852 1961
70551 116.9 554894 4007 2827 130081 1962
"""

# NIST, Statistical Reference Datasets, Longley: coefficients and standard errors, the intercept first
CERTIFIED = (
    (-3482258.63459582, 890420.383607373),
    (15.0618722713733, 84.9149257747669),
    (-0.358191792925910e-01, 0.334910077722432e-01),
    (-2.02022980381683, 0.488399681651699),
    (-1.03322686717359, 0.214274163161675),
    (-0.511041056535807e-01, 0.226073200069370),
    (1829.15146461355, 455.478499142212),
)


def longley() -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.tensor(np.loadtxt(LONGLEY.strip().splitlines()))
    return table[:, 1:], table[:, 0]


def test_coefficients_and_standard_errors_are_those_certified_by_nist() -> None:
    x, y = longley()
    w, b, rank = minimum_norm_solution(x, y)
    errors = standard_errors(x, y)
    assert rank == 6
    found = [(float(b), float(errors.bias)), *zip(w.tolist(), errors.weight.tolist(), strict=True)]
    np.testing.assert_allclose(found, CERTIFIED, rtol=1e-7)
    assert (float(errors.noise), errors.freedom) == (pytest.approx(304.854073561965, rel=1e-9), 9)


def test_an_example_of_weight_two_is_two_and_one_of_weight_zero_none() -> None:
    x, y = problem(40, 3, 3)
    weight = torch.randint(0, 4, (40,), generator=torch.Generator().manual_seed(1)).double()
    state = State({"model": LinearRegression(3).double()})
    metrics = least_squares()(state, Batch((x,), y, weight))
    many = weight.long()
    w, b, _ = minimum_norm_solution(x.repeat_interleave(many, 0), y.repeat_interleave(many))
    assert torch.allclose(state.model.weight, w, atol=1e-12)
    assert torch.allclose(state.model.bias, b, atol=1e-12)
    residual = state.model(x).detach() - y
    assert float(metrics["loss"]) == pytest.approx(
        float((weight * residual**2).sum() / weight.sum()), rel=1e-12
    )
    even, _, _ = minimum_norm_solution(x, y)
    assert (even - w).abs().max() > 1e-3


def test_weights_are_scikit_learns() -> None:
    x, y = problem(30, 4, 4)
    weight = torch.rand(30, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 0.1
    w, b, _ = minimum_norm_solution(x, y, weight)
    peer = Reference().fit(x.numpy(), y.numpy(), sample_weight=weight.numpy())
    np.testing.assert_allclose([*w.tolist(), float(b)], [*peer.coef_, peer.intercept_], rtol=1e-9)


def test_standard_errors_of_weighted_lines_by_hand() -> None:
    # Var(w) = s^2 / sum a (x - m)^2, Var(b) = s^2 (1 / sum a + m^2 / sum a (x - m)^2)
    x = torch.tensor([0.0, 1, 2, 5]).double()
    y = torch.tensor([1.0, 1, 4, 7]).double()
    a = torch.tensor([1.0, 2, 1, 4]).double()
    m = (a * x).sum() / a.sum()
    spread = (a * (x - m) ** 2).sum()
    slope = (a * (x - m) * y).sum() / spread
    offset = (a * y).sum() / a.sum() - slope * m
    noise = (a * (y - slope * x - offset) ** 2).sum() / 2
    errors = standard_errors(x[:, None], y, a)
    assert float(errors.weight) == pytest.approx(float((noise / spread).sqrt()), rel=1e-12)
    assert float(errors.bias) == pytest.approx(
        float((noise * (1 / a.sum() + m**2 / spread)).sqrt()), rel=1e-12
    )


def test_standard_errors_are_the_spread_of_repeated_fits() -> None:
    # 4000 fits: a sample standard deviation is within 6 % with probability > 1 - 1e-6
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(25, 2, generator=generator, dtype=torch.float64)
    truth = x @ torch.tensor([1.0, -1.0]).double()
    design = torch.cat((x, torch.ones(25, 1).double()), 1)
    noise = torch.randn(25, 4000, generator=generator, dtype=torch.float64)
    fits = torch.linalg.lstsq(design, truth[:, None] + noise).solution
    one = standard_errors(x, truth + noise[:, 0])
    squares = one.weight / one.noise  # in units of the noise, the errors depend on x alone
    assert torch.allclose(fits[:2].std(1), squares, rtol=0.06)
    assert torch.allclose(fits[2].std(), one.bias / one.noise, rtol=0.06)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(9, 1), "got 9 rows, 1 columns and a constant, rank 0"),
        (torch.arange(18.0).reshape(9, 2), "got 9 rows, 2 columns and a constant, rank 1"),
        (torch.randn(4, 3), "got 4 rows, 3 columns and a constant, rank 3"),
    ],
    ids=["constant column", "dependent columns", "as many coefficients as rows"],
)
def test_standard_errors_that_are_not_determined_are_refused(x: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        standard_errors(x.double(), torch.arange(float(len(x))).double())


def test_a_constant_and_a_duplicate_column_leave_the_rest_as_it_is() -> None:
    x, y = problem(30, 2, 2)
    w, b, _ = minimum_norm_solution(x, y)
    constant = torch.full((30, 1), 0.1).double() * 1e6
    wide, offset, rank = minimum_norm_solution(torch.cat((x, constant, x[:, :1]), 1), y)
    assert rank == 2
    assert wide[2] == 0
    assert torch.allclose(wide[0], wide[3], atol=1e-12)  # the shortest shares a coefficient evenly
    assert torch.allclose(wide[0] + wide[3], w[0], atol=1e-10)
    assert torch.allclose(wide[1], w[1], atol=1e-10)
    assert torch.allclose(offset, b, atol=1e-6)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("x", float("inf"), r"features must be finite: got inf in row 3 of the batch, feature 1"),
        ("x", float("nan"), r"features must be finite: got nan in row 3 of the batch, feature 1"),
        ("y", float("-inf"), r"targets must be finite: got -inf in row 3 of the batch"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_and_nothing_is_moved(
    place: str, value: float, message: str
) -> None:
    x, y = problem(10, 2, 2)
    if place == "x":
        x[3, 1] = value
    else:
        y[3] = value
    state = State({"model": LinearRegression(2).double()})
    with pytest.raises(NonFiniteError, match=message):
        least_squares()(state, Batch((x,), y))
    assert not state.model.weight.any()
    least_squares()(state, Batch((x,), y, torch.arange(10.0) != 3))  # of weight 0 it counts for nothing
    assert state.model.weight.isfinite().all()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Batch((torch.ones(2, 2),)), "least squares needs targets: the data have none"),
        (Batch((torch.ones(2, 2),), torch.ones(2), torch.tensor([1.0, -1])), "at least 0: got -1 in row 1"),
        (Batch((torch.ones(2, 2),), torch.ones(2), torch.zeros(2)), "weight above 0: got 2 of weight 0"),
    ],
)
def test_a_batch_that_cannot_be_solved_is_refused(batch: Batch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        least_squares()(State({"model": LinearRegression(2)}), batch)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_gradient_of_half_the_squared_error_for_each_reduction(reduction: str) -> None:
    """X^T (X w - y), over n for the mean; the form printed in many notes, 2 X^T X w - 2 X^T y, is not it."""
    x, y = problem(12, 3, 3)
    w = torch.randn(3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.mse_loss(x @ w, y, reduction=reduction) / 2, w)
    expected = x.T @ (x @ w - y) / (12 if reduction == "mean" else 1)
    assert torch.allclose(slope, expected, atol=1e-12)
    assert not torch.allclose(slope, 2 * x.T @ x @ w - 2 * x.T @ y, rtol=0.1)


def test_with_samples_as_columns_the_form_printed_in_many_notes_fails() -> None:
    """For X of d x n the solution is (X X^T)^-1 X y; (X^T X)^-1 X^T y has not even its shape."""
    x, y = problem(12, 3, 3)
    columns = x.T
    right = torch.linalg.solve(columns @ columns.T, columns @ y)
    np.testing.assert_allclose(right, np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0], rtol=1e-9)
    with pytest.raises(RuntimeError):
        torch.linalg.solve(columns.T @ columns, columns.T @ y)


def test_the_residual_is_orthogonal_to_every_column() -> None:
    for seed in range(5):
        x, y = problem(20 + seed, 3, 3)
        w, b, _ = minimum_norm_solution(x, y)
        residual = x @ w + b - y
        assert (x.T @ residual).abs().max() < 1e-10
        assert abs(float(residual.sum())) < 1e-10
        assert (x.T @ (residual + 1e-6 * x[:, 0])).abs().max() > 1e-10


def test_the_limit_of_ridge_is_the_pseudoinverse() -> None:
    """(X^T X + e I)^-1 X^T is off by e / (s (s^2 + e)) at each singular value s > 0."""
    x, _ = problem(5, 8, 5)
    inverse, s = torch.linalg.pinv(x), torch.linalg.svdvals(x)
    gaps = []
    for e in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10):
        # X^T (X X^T + e I)^-1 is the same matrix, and well conditioned
        found = torch.linalg.solve(x @ x.T + e * torch.eye(5).double(), x).T
        primal = torch.linalg.solve(x.T @ x + e * torch.eye(8).double(), x.T)
        assert torch.allclose(found, primal, atol=1e-13 / e)
        gaps.append(float((found - inverse).norm()))
        assert gaps[-1] == pytest.approx(float((e / (s * (s**2 + e))).norm()), rel=1e-6, abs=1e-12)
    assert gaps == sorted(gaps, reverse=True)


def test_squared_error_is_the_likelihood_of_gaussian_noise() -> None:
    x, y = problem(20, 3, 3)
    w, b, _ = minimum_norm_solution(x, y)
    variance = torch.tensor(0.7).double()
    value = gaussian_log_likelihood(x, y, w, b, variance)
    law = torch.distributions.Normal(x @ w + b, variance.sqrt())
    assert float(value) == pytest.approx(float(law.log_prob(y).sum()), rel=1e-12)
    w.requires_grad_()
    (slope,) = torch.autograd.grad(gaussian_log_likelihood(x, y, w, b, variance), w)
    assert slope.abs().max() < 1e-9
    w = w.detach()
    most = ((x @ w + b - y) ** 2).mean()
    around = [float(gaussian_log_likelihood(x, y, w, b, most * f)) for f in (0.9, 0.99, 1.0, 1.01, 1.1)]
    assert max(around) == around[2]
