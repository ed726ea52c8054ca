"""Penalties on quadratics: posterior means, projected descent, simulated errors, balls and multipliers."""

import math
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import Ridge
from torch import nn

from margin.classic.linear.regression import LinearRegression
from margin.classic.linear.ridge import ridge_solution
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.feedforward.mlp.model import MLP
from margin.math.probability.gaussian import Gaussian, conditional
from margin.theory.dynamics.shrinkage import (
    against_ridge,
    constrained_minimizer,
    demo,
    effective_parameters,
    multiplier,
    optimal_decay,
    parameters,
    penalized_minimizer,
    shrinkage,
    shrinkage_risk,
)
from margin.theory.prediction.held_out import stated
from margin.theory.signal.chain import has_last_layer, in_row_space, last_design


def f64(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quadratic(n=5, seed=0):
    root = f64(2 * n, n, seed=seed)
    return root.T @ root, f64(n, seed=seed + 1)


def test_the_penalized_minimizer_has_no_gradient_and_shrinks_by_eigendirection():
    H, theta = quadratic()
    mu = 0.7
    found = penalized_minimizer(H, theta, mu)
    torch.testing.assert_close(H @ (found - theta) + mu * found, torch.zeros(5).double(), rtol=0, atol=1e-12)
    eigenvalues, basis = torch.linalg.eigh(H)
    torch.testing.assert_close(basis.T @ found, shrinkage(eigenvalues, mu) * (basis.T @ theta))
    # the expansion without its 1/2, as printed, has the curvature 2 H and shrinks less
    assert float((penalized_minimizer(2 * H, theta, mu) - found).norm()) > 1e-2


def test_effective_parameters_are_the_trace_of_the_smoother():
    X = f64(20, 6)
    mu = 3.0
    smoother = X @ torch.linalg.solve(X.T @ X + mu * torch.eye(6).double(), X.T)
    found = effective_parameters(torch.linalg.eigvalsh(X.T @ X), mu)
    assert float(found) == pytest.approx(float(smoother.trace()), rel=1e-12)
    assert float(effective_parameters(torch.tensor([1.0, 0.0, 3.0]), 1.0)) == pytest.approx(0.5 + 0.75)


def projected_descent(H, theta, radius, steps=20_000):
    """The constrained minimizer by projected gradient descent: another method altogether."""
    w, lr = torch.zeros_like(theta), 1 / float(torch.linalg.eigvalsh(H).max())
    for _ in range(steps):
        w = w - lr * (H @ (w - theta))
        w = w * min(1.0, radius / float(w.norm()))
    return w


@pytest.mark.parametrize("seed", range(3))
def test_the_ball_gives_back_the_penalty_as_its_multiplier(seed):
    H, theta = quadratic(seed=seed)
    radii = []
    for mu in (0.01, 1.0, 100.0):
        penalized = penalized_minimizer(H, theta, mu)
        radii.append(float(penalized.norm()))
        found = constrained_minimizer(H, theta, radii[-1])
        assert found.multiplier == pytest.approx(mu, rel=1e-9)
        torch.testing.assert_close(found.theta, penalized, rtol=1e-9, atol=1e-12)
    assert radii[0] > radii[1] > radii[2]  # r falls as mu grows
    # a ball of radius mu, as printed, has another multiplier
    assert abs(constrained_minimizer(H, theta, 0.01).multiplier - 0.01) > 1


def test_the_constrained_minimizer_is_that_of_projected_descent():
    H, theta = quadratic(3)
    radius = 0.5 * float(theta.norm())
    found = constrained_minimizer(H, theta, radius)
    torch.testing.assert_close(found.theta, projected_descent(H, theta, radius, 3000), rtol=0, atol=1e-8)
    assert float(found.theta.norm()) == pytest.approx(radius, rel=1e-12)


def test_a_ball_that_holds_the_minimizer_has_multiplier_0():
    H, theta = quadratic()
    found = constrained_minimizer(H, theta, 1.0001 * float(theta.norm()))
    assert found.multiplier == 0
    torch.testing.assert_close(found.theta, theta)
    assert constrained_minimizer(H, theta, 0.9999 * float(theta.norm())).multiplier > 0


def test_a_singular_problem_takes_the_shortest_minimizer():
    X = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]).double()
    theta = torch.tensor([3.0, 4.0, 7.0]).double()  # its third coordinate costs nothing
    found = constrained_minimizer(X.T @ X, theta, 5.5)
    assert found.multiplier == 0
    torch.testing.assert_close(found.theta, torch.tensor([3.0, 4.0, 0.0]).double())
    inside = constrained_minimizer(X.T @ X, theta, 2.0)
    assert float(inside.theta.norm()) == pytest.approx(2)
    assert float(inside.theta[2]) == 0


def test_a_very_small_ball_and_a_wide_spectrum_converge():
    eigenvalues = torch.logspace(-6, 6, 17, dtype=torch.float64)
    H, theta = eigenvalues.diag(), torch.ones(17).double()
    for radius in (1e-8, 1e-3, 1.0, 4.0):
        found = constrained_minimizer(H, theta, radius)
        assert float(found.theta.norm()) == pytest.approx(radius, rel=1e-9)


def test_the_mode_under_a_gaussian_prior_is_ridge():
    X, y = f64(12, 4), f64(12, seed=1)
    noise, prior = 0.3, 2.0
    # the joint Gaussian of (theta, y), conditioned on y
    cross = prior * X.T
    joint = torch.cat(
        (
            torch.cat((prior * torch.eye(4).double(), cross), 1),
            torch.cat((cross.T, prior * X @ X.T + noise * torch.eye(12).double()), 1),
        )
    )
    posterior, _ = conditional(Gaussian(torch.zeros(16).double(), joint), range(4, 16), y)
    mu = optimal_decay(noise, prior)
    assert mu == pytest.approx(0.15)
    w = torch.from_numpy(Ridge(alpha=mu, fit_intercept=False).fit(X.numpy(), y.numpy()).coef_)
    torch.testing.assert_close(posterior, w, rtol=1e-9, atol=1e-12)
    Xc, yc = X - X.mean(0), y - y.mean()
    free = torch.linalg.lstsq(Xc, yc[:, None]).solution[:, 0]
    torch.testing.assert_close(
        penalized_minimizer(Xc.T @ Xc, free, mu), ridge_solution(X, y, mu)[0], rtol=1e-9, atol=1e-12
    )


def test_the_optimal_decay_has_the_least_simulated_error():
    noise, signal, n = 0.5, 2.0, 40_000
    best = optimal_decay(noise, signal)
    g = torch.Generator().manual_seed(0)
    theta = math.sqrt(signal) * torch.randn(n, generator=g, dtype=torch.float64)
    estimate = theta + math.sqrt(noise) * torch.randn(
        n, generator=g, dtype=torch.float64
    )  # orthonormal design
    grid = [best * 2.0**k for k in range(-3, 4)]
    errors = [(estimate / (1 + mu) - theta).square() for mu in grid]
    means = [float(e.mean()) for e in errors]
    assert grid[means.index(min(means))] == best
    for k, e in enumerate(errors):
        if grid[k] != best:  # the paired difference is beyond 4 standard errors
            gap = e - errors[3]
            assert float(gap.mean()) > 4 * float(gap.std()) / math.sqrt(n)
        exact = float(shrinkage_risk(torch.ones(1).double(), grid[k], noise, signal))
        assert float(e.mean()) == pytest.approx(exact, abs=4.5 * float(e.std()) / math.sqrt(n))


def test_the_optimal_decay_is_the_same_in_every_direction():
    eigenvalues = torch.logspace(-3, 3, 13, dtype=torch.float64)
    best = optimal_decay(0.3, 1.7)
    least = shrinkage_risk(eigenvalues, best, 0.3, 1.7)
    for mu in (0.9 * best, 1.1 * best, 0.0):
        assert bool((shrinkage_risk(eigenvalues, mu, 0.3, 1.7) > least).all())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda H, t: penalized_minimizer(H, t, 0.0), "the penalty must be positive and finite: got 0.0"),
        (lambda H, t: shrinkage(torch.tensor([-1.0]), 1.0), "eigenvalues must not be negative: got -1"),
        (
            lambda H, t: constrained_minimizer(H, t, math.nan),
            "the radius must be positive and finite: got nan",
        ),
        (lambda H, t: optimal_decay(1.0, 0.0), "prior_variance must be positive and finite: got 0.0"),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(*quadratic())


# the last layer


def trained(model, x, targets, *, task=CLASSES, weight=None, size=16):
    batches = [
        Batch((x[i : i + size],), targets[i : i + size], None if weight is None else weight[i : i + size])
        for i in range(0, len(x), size)
    ]
    given = stated(x, targets, task=task)
    return Subject(model=model.to(x.dtype), test=batches, train=batches, task=task, objective=given.objective)


def test_the_design_is_what_enters_the_last_map():
    x, labels = f64(50, 6), torch.arange(50) % 3
    model = MLP(6, 3, hidden=(8,), dropout=0.5).train()
    weight = torch.ones(50).double()
    weight[40:] = 0
    weight[:10] = 2.0
    design = last_design(trained(model, x, labels, weight=weight))
    features = model.eval().layers[:-1](x).detach()[:40]
    w = weight[:40]
    mean = (w[:, None] * features).sum(0) / w.sum()
    torch.testing.assert_close(design.X, w.sqrt()[:, None] * (features - mean))
    onehot = nn.functional.one_hot(labels[:40], 3).double()
    torch.testing.assert_close(
        design.Y, w.sqrt()[:, None] * (onehot - (w[:, None] * onehot).sum(0) / w.sum())
    )


def test_a_linear_model_without_a_linear_module_takes_its_inputs():
    x, y = f64(30, 4), f64(30, seed=1)
    model = LinearRegression(4)
    with torch.no_grad():
        model.weight.copy_(f64(4, seed=2))
    design = last_design(trained(model, x, y, task=VALUES))
    torch.testing.assert_close(design.X, x - x.mean(0))
    torch.testing.assert_close(design.Y, (y - y.mean())[:, None])


def test_models_and_targets_that_do_not_correspond_are_refused():
    x = f64(20, 4)
    subject = trained(nn.Tanh(), x, torch.zeros(20).long())
    assert not has_last_layer(subject)
    with pytest.raises(ValueError, match="the model must have a last affine map: Tanh calls none"):
        last_design(subject)
    pooled = trained(nn.Sequential(nn.Linear(4, 3)), x.reshape(10, 2, 4), torch.zeros(10).long())
    assert not has_last_layer(pooled)  # two rows of features a target
    assert not has_last_layer(replace(pooled, train=()))


def test_the_row_space_keeps_every_inner_product():
    x, labels = f64(12, 30), torch.arange(12) % 2
    design = last_design(trained(nn.Sequential(nn.Linear(30, 2)), x, labels))
    reduced = in_row_space(design)
    assert reduced.X.shape == (12, 12)
    torch.testing.assert_close(reduced.X @ reduced.X.T, design.X @ design.X.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(60, 8), (20, 50)])
@pytest.mark.parametrize("ask", [parameters, multiplier])
def test_both_claims_hold_on_random_features(ask, shape):
    x, labels = f64(*shape) * torch.logspace(0, -2, shape[1], dtype=torch.float64), torch.arange(shape[0]) % 3
    assert ask(trained(nn.Sequential(nn.Linear(shape[1], 3)), x, labels)).verdict == Verdict.HOLDS


def test_the_bounds_on_effective_parameters_are_tight_for_orthonormal_features():
    # all eigenvalues equal: at mu = that eigenvalue each direction counts one half, the lower bound
    q = torch.linalg.qr(torch.cat((torch.ones(9, 1).double(), f64(9, 4)), 1)).Q[:, 1:]
    found = parameters(trained(nn.Sequential(nn.Linear(4, 3)), q, torch.arange(9) % 3))
    assert float(found.value[0]) == pytest.approx(2, abs=1e-9)
    assert float(found.low[0]) == 2
    assert found.labels[0] == "mu = 1 of the largest eigenvalue"
    assert found.value.tolist() == pytest.approx([4 / (1 + share) for share in (1, 0.1, 0.01, 0.001)])


def test_features_without_numbers_or_without_variation_fail():
    x, labels = f64(20, 4), torch.arange(20) % 3
    x[3, 2] = math.nan
    model = nn.Sequential(nn.Linear(4, 3))
    for ask in (parameters, multiplier):
        found = ask(trained(model, x, labels))
        assert found.verdict == Verdict.FAILED
        assert found.failure == "the features or the targets are not finite"
        constant = ask(trained(model, torch.ones(20, 4).double(), labels))
        assert constant.failure == "the features do not vary with the targets"


def test_the_demonstration_is_solved_by_scikit_learn_too():
    (batch,) = demo().train
    x, y = batch.inputs[0], batch.targets
    largest = float(torch.linalg.eigvalsh((x - x.mean(0)).T @ (x - x.mean(0))).max())
    w = Ridge(alpha=0.1 * largest).fit(x.numpy(), y.numpy()).coef_
    radius = math.sqrt(float((w**2).sum()))
    assert f"{radius:.3g}" in multiplier(demo()).statement


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ask", [parameters, multiplier, against_ridge])
def test_what_rounding_leaves_of_constant_columns_is_no_variation(ask, dtype):
    torch.manual_seed(0)
    x = f64(24, 5).to(dtype)
    labels = torch.arange(24) % 3
    dead = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    nn.init.zeros_(dead[0].weight)
    nn.init.constant_(dead[0].bias, 0.1)  # 0.1 less the mean of 24 of them is not 0
    alive = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    for model, data, classes in (
        (dead, x, labels),
        (alive, x[:1].repeat(24, 1), labels),
        (alive, x, 0 * labels),
    ):
        found = ask(trained(model, data, classes))
        assert found.verdict == Verdict.FAILED
        assert found.failure.startswith("the features do not vary with the targets")
    assert ask(trained(alive, x, labels)).verdict == Verdict.HOLDS


@pytest.mark.parametrize("ask", [parameters, multiplier, against_ridge])
def test_examples_that_all_have_the_weight_0_fail(ask):
    subject = trained(nn.Sequential(nn.Linear(4, 3)), f64(6, 4), torch.arange(6) % 3)
    (batch,) = subject.train
    found = ask(replace(subject, train=[batch._replace(weight=torch.zeros(6))]))
    assert found.verdict == Verdict.FAILED
    assert found.failure == "no training example has a weight above 0"
