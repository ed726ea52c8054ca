"""Leading eigenpairs against dense matrices; the largest eigenvalue of a risk's Hessian, preconditioned."""

import math

import pytest
import torch
from torch import Generator, nn

from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.lanczos import random_direction
from margin.theory.curvature.leading import largest_eigenvalue, leading_eigenpairs


def symmetric(spectrum, seed=0):
    generator = Generator().manual_seed(seed)
    d = torch.as_tensor(spectrum, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(len(d), len(d), generator=generator, dtype=torch.float64))
    A = Q @ torch.diag(d) @ Q.T
    return (A + A.T) / 2


def pairs_of(A, count, **options):
    return leading_eigenpairs(lambda v: A @ v, random_direction(len(A), dtype=A.dtype), count, **options)


def best(A, count, by):
    values = torch.linalg.eigvalsh(A)
    key = {"magnitude": values.abs(), "largest": values, "smallest": -values}[by]
    return values[key.argsort(descending=True)[:count]]


@pytest.mark.parametrize("by", ["magnitude", "largest", "smallest"])
@pytest.mark.parametrize("rows", [80, 12])  # without and with restarts
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_the_dense_ones(by, rows, seed):
    A = torch.randn(150, 150, generator=Generator().manual_seed(seed), dtype=torch.float64)
    A = A + A.T
    found = pairs_of(A, 5, by=by, rows=rows, tol=1e-8, max_products=2000)
    assert found.converged
    torch.testing.assert_close(found.values, best(A, 5, by), rtol=0, atol=1e-9)
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(5).double(), rtol=0, atol=1e-10)
    image = found.vectors @ A
    torch.testing.assert_close((image * found.vectors).sum(1), found.values, rtol=0, atol=1e-10)
    true = (image - found.values[:, None] * found.vectors).norm(dim=1)
    assert bool((true <= found.residuals + 1e-11).all())
    # Not only a bound: the residual is the fresh product's, but for rounding.
    torch.testing.assert_close(true, found.residuals, rtol=0.01, atol=1e-10)


def test_a_restart_costs_products_and_saves_vectors():
    A = torch.randn(200, 200, generator=Generator().manual_seed(0), dtype=torch.float64)
    A = A + A.T
    free, bound = (pairs_of(A, 3, rows=rows, tol=1e-6, max_products=2000) for rows in (200, 9))
    assert free.products < bound.products < 20 * free.products


def test_residuals_in_float32_hold_the_rounding_of_the_products():
    A = symmetric(torch.linspace(-1, 3, 100)).float()
    found = pairs_of(A, 4, tol=1e-3)
    image = (found.vectors.double() @ A.double()) / found.vectors.double().norm(dim=1, keepdim=True)
    true = (image - found.values[:, None] * found.vectors.double()).norm(dim=1)
    assert bool((true <= found.residuals + 2e-6).all())
    assert not pairs_of(A, 4, tol=1e-12, max_products=99).converged


@pytest.mark.parametrize(
    ("spectrum", "count", "expected"),
    [
        ([5.0, 5, 5] + [1.0] * 40, 5, [5, 5, 5, 1, 1]),  # a repeated eigenvalue, by breakdowns
        ([5.0] * 4 + [1.0] * 40, 4, [5, 5, 5, 5]),  # each breakdown brings one more
        ([0.0] * 30, 3, [0, 0, 0]),
        ([2.0] * 10, 5, [2] * 5),
        ([3.0, -3.0, 0.1], 3, [3, 3, 0.1]),  # ties of magnitude: the sign's order is free
        ([7.0], 1, [7]),
    ],
)
def test_repeated_and_vanishing_eigenvalues(spectrum, count, expected):
    A = symmetric(spectrum)
    found = pairs_of(A, count)
    assert found.values.abs().tolist() == pytest.approx(expected, abs=1e-12)
    assert found.converged


def test_a_small_negative_end_hidden_under_a_large_positive_one_is_found():
    d = torch.zeros(3000, dtype=torch.float64)
    d[:12] = torch.tensor([100.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, -3, -2])
    found = leading_eigenpairs(lambda v: d * v, random_direction(3000), 1, by="smallest", tol=1e-3)
    assert found.values.tolist() == pytest.approx([-3], abs=0.1)


def test_what_is_not_finite_or_did_not_converge_says_so():
    for bad in (math.nan, math.inf):
        found = leading_eigenpairs(lambda v, bad=bad: v * bad, random_direction(6), 2)
        assert not found.converged and bool(found.values.isnan().all()) and len(found.values) == 2
    found = pairs_of(symmetric(torch.linspace(0, 1, 200)), 5, tol=1e-9, max_products=12)
    assert not found.converged and found.products == 12 and bool((found.residuals > 1e-9).any())


def test_options_out_of_range_are_refused():
    A = symmetric([1.0, 2.0, 3.0])
    for options in ({"count": 0}, {"count": 4}):
        with pytest.raises(ValueError, match=r"count must lie in 1 \.\. the order"):
            pairs_of(A, **options)
    for options in ({"tol": 0.0}, {"max_products": 0}, {"rows": 2}):
        with pytest.raises(ValueError, match="tol must be above 0, max_products at least 1, rows"):
            pairs_of(A, 2, **options)
    with pytest.raises(ValueError, match="finite vector other than 0"):
        leading_eigenpairs(lambda v: v, torch.zeros(3), 1)


def regression():
    generator = Generator().manual_seed(3)
    X = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    model = nn.Linear(6, 1, bias=False).double()
    return model, X, [Batch((X,), torch.zeros(50, 1, dtype=torch.float64))]


def test_the_largest_eigenvalue_of_linear_regression_and_of_its_preconditioned_hessian():
    model, X, batches = regression()
    H = 2 * X.T @ X / 50
    value = largest_eigenvalue(model, risk(VALUES), batches, tol=1e-9)
    assert value == pytest.approx(torch.linalg.eigvalsh(H)[-1].item(), rel=1e-9)
    D = torch.linspace(0.5, 2, 6, dtype=torch.float64)
    value = largest_eigenvalue(model, risk(VALUES), batches, scale=D, tol=1e-9)
    assert value == pytest.approx(torch.linalg.eigvalsh(D[:, None] * H * D)[-1].item(), rel=1e-9)


def test_a_scale_of_another_length_is_refused_and_nan_is_nan():
    model, _, batches = regression()
    with pytest.raises(ValueError, match="one number a parameter: got shape \\(5,\\) for 6"):
        largest_eigenvalue(model, risk(VALUES), batches, scale=torch.ones(5))
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    assert math.isnan(largest_eigenvalue(model, risk(VALUES), batches))
