"""The lasso: its conditions of optimality, its gap, its path, the orthonormal case in closed form."""

import numpy as np
import pytest
import torch
from scipy.linalg import hadamard
from scipy.optimize import minimize
from sklearn.linear_model import Lasso as Reference

from margin.classic.linear.lasso import (
    GAP,
    Lasso,
    duality_gap,
    largest_penalty,
    lasso,
    lasso_loss,
    lasso_path,
    soft_threshold,
    standard_problem,
    violation,
)
from margin.classic.linear.regression import minimum_norm_solution
from margin.core.types import Batch
from margin.engine.loop import State


def problem(rows: int = 40, features: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64) + 1
    return x, 2 * x[:, 0] - x[:, 1] + torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("penalty", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("shape", [(40, 6), (10, 25)])
def test_a_solution_satisfies_the_conditions_by_hand(penalty: float, shape: tuple[int, int]) -> None:
    x, y = problem(*shape)
    path = lasso_path(x, y, [penalty])
    w, b = path.weight[0], path.bias[0]
    correlation = (x - x.mean(0)).T @ (y - x @ w - b) / len(y)
    zero = w == 0
    assert bool((correlation[zero].abs() <= penalty + 1e-5).all())
    assert torch.allclose(correlation[~zero], penalty * w[~zero].sign(), atol=1e-5)
    assert violation(standard_problem(x, y), w, penalty).max() < 1e-5


def test_the_violation_of_a_wrong_coefficient_is_seen() -> None:
    x, y = problem()
    problem_, w = standard_problem(x, y), lasso_path(x, y, [0.1]).weight[0].clone()
    w[0] += 0.1
    assert violation(problem_, w, 0.1).max() > 0.05
    assert violation(problem_, torch.zeros(6).double(), 0.1).max() > 0.5


@pytest.mark.parametrize("weighted", [False, True])
def test_zero_is_the_solution_from_the_largest_penalty_on(weighted: bool) -> None:
    x, y = problem()
    weight = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    given = weight if weighted else None
    most = float(largest_penalty(x, y, given))
    path = lasso_path(x, y, [most * 0.999, most * 1.0001], given)
    assert path.penalty[0] > path.penalty[1]
    assert not path.weight[0].any()
    assert int((path.weight[1] != 0).sum()) == 1


def test_an_orthonormal_design_is_solved_by_soft_thresholds() -> None:
    x = torch.from_numpy(hadamard(8)).double()[:, 1:]  # centered columns with X^T X = 8 I
    y = torch.tensor([3.0, -1, 2, 0, 1, 5, -2, 4]).double()
    ols, _, _ = minimum_norm_solution(x, y)
    for penalty in (0.05, 0.3, 0.7):
        w = lasso_path(x, y, [penalty]).weight[0]
        assert torch.allclose(w, soft_threshold(ols, penalty), atol=1e-12)
        assert 0 < int((w == 0).sum()) < 7 or penalty == 0.05
    assert soft_threshold(torch.tensor([3.0, -3, 0.5, 0]), 1.0).tolist() == [2, -2, 0, 0]


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_scikit_learns(weighted: bool) -> None:
    x, y = problem()
    weight = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    path = lasso_path(x, y, [0.2], weight if weighted else None)
    peer = Reference(alpha=0.2, tol=1e-12, max_iter=10**6)
    peer.fit(x.numpy(), y.numpy(), sample_weight=weight.numpy() if weighted else None)
    np.testing.assert_allclose(path.weight[0], peer.coef_, atol=1e-6)
    assert float(path.bias[0]) == pytest.approx(peer.intercept_, abs=1e-5)


def test_the_gap_bounds_the_excess_of_any_weights() -> None:
    x, y = problem()
    standard = standard_problem(x, y)

    def loss(w: np.ndarray) -> float:
        return float(lasso_loss(standard, torch.from_numpy(w), 0.2))

    least = minimize(loss, np.zeros(6), method="Powell", options={"xtol": 1e-10, "ftol": 1e-14}).fun
    generator = torch.Generator().manual_seed(3)
    for scale in (0.0, 0.1, 1.0, 10.0):
        w = scale * torch.randn(6, generator=generator, dtype=torch.float64)
        gap = float(duality_gap(standard, w, 0.2))
        assert float(lasso_loss(standard, w, 0.2)) - least <= gap + 1e-9
        assert gap >= -1e-12
    solved = lasso_path(x, y, [0.2])
    assert float(solved.gap[0]) <= GAP * float(standard.t.square().mean()) / 2
    assert float(lasso_loss(standard, solved.weight[0], 0.2)) == pytest.approx(least, rel=1e-6)


def test_the_gap_is_tight_at_zero_from_the_largest_penalty_on() -> None:
    x, y = problem()
    most = float(largest_penalty(x, y))
    zero = torch.zeros(6).double()
    assert abs(float(duality_gap(standard_problem(x, y), zero, most))) < 1e-12
    assert float(duality_gap(standard_problem(x, y), zero, most / 2)) > 0.1


def test_of_weights_two_is_two_examples_and_zero_none() -> None:
    x, y = problem(12)
    weight = torch.tensor([0.0, 2, 1] * 4).double()
    states = [State({"model": Lasso(6, penalty=0.2).double()}) for _ in range(2)]
    found = lasso()(states[0], Batch((x,), y, weight))
    many = weight.long()
    lasso()(states[1], Batch((x.repeat_interleave(many, 0),), y.repeat_interleave(many)))
    one, two = (state.model for state in states)
    assert torch.allclose(one.weight, two.weight, atol=1e-6)
    assert torch.allclose(one.bias, two.bias, atol=1e-6)
    assert found["nonzero"] == int((one.weight != 0).sum())


def test_odd_columns_and_a_constant_target_are_solved() -> None:
    x, y = problem()
    wide = torch.cat((x, x[:, :1], torch.full((40, 1), 7.0).double()), 1)
    path = lasso_path(wide, y, [0.2])
    assert path.weight[0, 7] == 0
    assert float(path.weight[0, 0] + path.weight[0, 6]) == pytest.approx(
        float(lasso_path(x, y, [0.2]).weight[0, 0]), abs=1e-5
    )
    path = lasso_path(x, torch.full((40,), 2.5).double(), [0.2])
    assert not path.weight.any()
    assert path.bias.tolist() == [2.5]
    assert path.gap.tolist() == [0.0]


def test_a_solve_leaves_no_trace_in_numpys_generator() -> None:
    before = np.random.get_state()[2]
    lasso_path(*problem(), [0.1])
    assert np.random.get_state()[2] == before


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan")])
def test_a_penalty_out_of_range_is_refused(penalty: float) -> None:
    with pytest.raises(ValueError, match="penalty must be positive and finite"):
        Lasso(3, penalty=penalty)
    with pytest.raises(ValueError, match="penalties must be positive, at least one"):
        lasso_path(*problem(), [0.1, penalty])


def test_a_solver_that_is_cut_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margin.classic.linear.lasso.MOST_PASSES", 1)
    with pytest.raises(
        ValueError, match=r"must reach a duality gap of .* in 1 passes: got .* at penalty 0\.001"
    ):
        lasso_path(*problem(20, 30), [0.001])
