"""Ridge regression: each stated loss is stationary at its formula; primal, dual and scikit-learn agree."""

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as KernelReference
from sklearn.linear_model import Ridge as Reference

from margin.classic.linear.kernel_ridge import KernelRidge, dual_solution, kernel_ridge
from margin.classic.linear.ridge import Ridge, effective_penalty, ridge, ridge_loss, ridge_solution
from margin.core.types import Batch
from margin.engine.loop import State

SCALINGS = ("mean", "sum", "undivided")


def problem(rows: int = 30, features: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64) + 3
    return x, x[:, 0] + torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("shape", [(30, 4), (6, 15)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_each_stated_loss_is_zero(
    scaling: str, shape: tuple[int, int], weighted: bool
) -> None:
    x, y = problem(*shape)
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(len(y), generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    count = float(weight.sum()) if weighted else len(y)
    w, b = ridge_solution(x, y, effective_penalty(0.3, scaling, count), weight)
    w, b = w.requires_grad_(), b.requires_grad_()
    loss = ridge_loss(x, y, w, b, penalty=0.3, scaling=scaling, weight=weight)
    for slope in torch.autograd.grad(loss, (w, b)):
        assert slope.abs().max() < 1e-10


@pytest.mark.parametrize("scaling", ["mean", "undivided"])
def test_the_form_printed_in_many_notes_without_n_is_not_stationary(scaling: str) -> None:
    """(X^T X + lambda I)^-1 X^T y belongs to the sum of squares, not to their mean."""
    x, y = problem()
    w, b = (t.requires_grad_() for t in ridge_solution(x, y, 0.3))
    loss = ridge_loss(x, y, w, b, penalty=0.3, scaling=scaling)
    assert torch.autograd.grad(loss, w)[0].abs().max() > 1e-2


def test_the_three_losses_by_hand() -> None:
    x, y = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([0.0, 1.0]).double()
    w, b = torch.tensor([2.0]).double(), torch.tensor(1.0).double()  # residuals 3 and 4, |w|^2 = 4
    losses = [float(ridge_loss(x, y, w, b, penalty=0.5, scaling=s)) for s in SCALINGS]
    assert losses == [25 / 4 + 1, 25 / 2 + 1, 25 / 4 + 2]
    weight = torch.tensor([1.0, 3.0]).double()
    assert float(ridge_loss(x, y, w, b, penalty=0.5, weight=weight)) == (9 + 48) / 8 + 1


@pytest.mark.parametrize("shape", [(30, 4), (6, 15)])
def test_the_solution_is_scikit_learns(shape: tuple[int, int]) -> None:
    x, y = problem(*shape)
    w, b = ridge_solution(x, y, effective_penalty(0.3, "mean", len(y)))
    peer = Reference(alpha=0.3 * len(y)).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose([*w.tolist(), float(b)], [*peer.coef_, peer.intercept_], rtol=1e-9)
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    w, b = ridge_solution(x, y, 2.0, weight)
    peer = Reference(alpha=2.0).fit(x.numpy(), y.numpy(), sample_weight=weight.numpy())
    np.testing.assert_allclose([*w.tolist(), float(b)], [*peer.coef_, peer.intercept_], rtol=1e-9)


def test_without_an_intercept_both_forms_are_those_of_the_books() -> None:
    x, y = problem(8, 5)
    x, y = x - x.mean(0), y - y.mean()
    primal = torch.linalg.solve(x.T @ x + 8 * 0.3 * torch.eye(5).double(), x.T @ y)
    dual = x.T @ torch.linalg.solve(x @ x.T + 8 * 0.3 * torch.eye(8).double(), y)
    w, _ = ridge_solution(x, y, 8 * 0.3)
    assert torch.allclose(primal, dual, atol=1e-12)
    assert torch.allclose(w, primal, atol=1e-12)
    peer = Reference(alpha=8 * 0.3, fit_intercept=False).fit(x.numpy(), y.numpy())
    np.testing.assert_allclose(w, peer.coef_, rtol=1e-9)


def test_the_intercept_is_not_penalized() -> None:
    x, y = problem()
    w, b = ridge_solution(x, y, 1e9)
    assert w.abs().max() < 1e-6
    assert float(b) == pytest.approx(float(y.mean()), rel=1e-6)
    near, shifted = ridge_solution(x, y, 5.0), ridge_solution(x, y + 1000, 5.0)
    assert torch.allclose(near[0], shifted[0], atol=1e-9)
    assert float(shifted[1] - near[1]) == pytest.approx(1000, rel=1e-12)


def test_the_step_solves_for_the_models_own_penalty() -> None:
    x, y = problem()
    weight = torch.arange(30).double()
    for scaling in SCALINGS:
        state = State({"model": Ridge(4, penalty=0.2, scaling=scaling).double()})
        metrics = ridge()(state, Batch((x,), y, weight))
        w, b = ridge_solution(x[1:], y[1:], effective_penalty(0.2, scaling, float(weight.sum())), weight[1:])
        assert torch.allclose(state.model.weight, w, atol=1e-12)
        mean = (weight * (x @ w + b - y) ** 2).sum() / weight.sum()
        assert float(metrics["loss"]) == pytest.approx(float(mean), rel=1e-9)


def test_duplicate_and_constant_columns_and_a_constant_target_are_solved() -> None:
    x, y = problem()
    x = torch.cat((x, x[:, :1], torch.full((30, 1), 7.0).double()), 1)
    w, _ = ridge_solution(x, y, 1.0)
    assert torch.allclose(w[0], w[4], atol=1e-12)
    assert w[5] == 0
    w, b = ridge_solution(x, torch.full((30,), 2.5).double(), 1.0)
    assert not w.any()
    assert float(b) == 2.5


@pytest.mark.parametrize("shape", [(30, 4), (3, 15)])
def test_a_penalty_that_rounding_swallows_is_refused(shape: tuple[int, int]) -> None:
    x, y = problem(*shape)
    x = torch.cat((x, 1e8 * x[:, :1], 1e8 * x[:, :1]), 1)
    with pytest.raises(ValueError, match=r"the penalty must exceed the rounding of X\^T X: got 1e-30"):
        ridge_solution(x, y, 1e-30)


@pytest.mark.parametrize("seed", range(12))
def test_so_it_is_where_rounding_leaves_a_pivot_just_above_zero(seed: int) -> None:
    x, y = problem(seed=seed)
    with pytest.raises(ValueError, match="the penalty must exceed the rounding"):
        ridge_solution(torch.cat((x, x @ torch.ones(4, 1).double() / 3), 1), y, 1e-30)


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("inf"), float("nan")])
def test_a_penalty_out_of_range_is_refused(penalty: float) -> None:
    with pytest.raises(
        ValueError, match=r"penalty must be positive and finite: got .*linear_regression has none"
    ):
        Ridge(3, penalty=penalty)


# kernel ridge


def test_with_the_linear_kernel_it_is_ridge_regression() -> None:
    x, y = problem()
    weight = torch.rand(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    c, b = dual_solution(x @ x.T, y, 0.3, weight)
    w, offset = ridge_solution(x, y, effective_penalty(0.3, "mean", float(weight.sum())), weight)
    assert torch.allclose(x.T @ c, w, atol=1e-9)
    assert torch.allclose(b, offset, atol=1e-9)
    assert abs(float(c.sum())) < 1e-9


@pytest.mark.parametrize(
    ("options", "peer"),
    [
        ({"kernel": "gaussian", "width": 0.7}, {"kernel": "rbf", "gamma": 1 / (2 * 4 * 0.7**2)}),
        ({"kernel": "polynomial", "degree": 2}, {"kernel": "poly", "degree": 2, "gamma": 1 / 4, "coef0": 1}),
    ],
)
def test_it_is_scikit_learns_where_the_intercept_is_zero(options: dict, peer: dict) -> None:
    x, y = problem()
    state = State({"model": KernelRidge(4, 30, penalty=0.01, **options).double()})
    # scikit-learn has no intercept: shift the target until ours is 0, in which it is linear
    kernel_ridge()(state, Batch((x,), y))
    y = y - state.model.bias.detach()
    kernel_ridge()(state, Batch((x,), y))
    assert abs(float(state.model.bias.detach())) < 1e-9
    reference = KernelReference(alpha=30 * 0.01, **peer).fit(x.numpy(), y.numpy())
    new = problem(seed=5)[0]
    np.testing.assert_allclose(
        state.model(new).detach(), reference.predict(new.numpy()), rtol=1e-7, atol=1e-9
    )


def test_of_weights_two_is_two_examples_and_zero_none() -> None:
    x, y = problem(12)
    weight = torch.tensor([0.0, 2, 1] * 4).double()
    one = State({"model": KernelRidge(4, 12).double()})
    kernel_ridge()(one, Batch((x,), y, weight))
    many = weight.long()
    two = State({"model": KernelRidge(4, 12).double()})
    kernel_ridge()(two, Batch((x.repeat_interleave(many, 0),), y.repeat_interleave(many)))
    new = problem(seed=5)[0]
    assert torch.allclose(one.model(new), two.model(new), atol=1e-9)


def test_a_small_penalty_interpolates_a_curve_that_no_line_fits() -> None:
    x = torch.linspace(-1, 1, 9)[:, None].double()
    y = (3 * x[:, 0]).sin()
    state = State({"model": KernelRidge(1, 9, penalty=1e-10).double()})
    assert float(kernel_ridge()(state, Batch((x,), y))["loss"]) < 1e-9
    between = torch.linspace(-0.9, 0.9, 50)[:, None].double()
    assert (state.model(between) - (3 * between[:, 0]).sin()).abs().max() < 1e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": 0.0}, "needs penalty > 0, .*: got penalty=0.0"),
        ({"width": -1.0}, "width > 0 .*: got .*width=-1.0"),
        ({"degree": 0}, "degree >= 1: got .*degree=0"),
    ],
)
def test_an_option_of_kernel_ridge_out_of_range_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KernelRidge(4, 10, **options)
