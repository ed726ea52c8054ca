"""Linearized networks, kernel regression and gradient flow, beside gradient descent and scikit-learn."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from margin.theory.kernels.empirical import empirical_ntk
from margin.theory.kernels.regression import (
    Linearized,
    gradient_flow,
    kernel_alignment,
    kernel_regression,
    relative_change,
)
from margin.theory.kernels.wide import nngp, ntk

torch.manual_seed(0)
X, NEW = torch.randn(6, 3).double(), torch.randn(4, 3).double()
Y = torch.randn(6, 2).double()


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 20), nn.Dropout(), nn.Tanh(), nn.Linear(20, 2)).double()


def kernels(model: nn.Module):
    K = empirical_ntk(model, X).reshape(12, 12)
    return K, empirical_ntk(model, NEW, X).reshape(8, 12)


def outputs(model: nn.Module, x):
    with torch.no_grad():
        return copy.deepcopy(model).eval()(x)


def test_a_linearized_network_has_contact_of_first_order() -> None:
    """f(theta_0 + beta) - f_lin(beta) is O(|beta|^2): a beta a tenth as long gives a hundredth."""
    model = network()
    line = Linearized(model).train()
    torch.testing.assert_close(line(X), outputs(model, X), rtol=0, atol=1e-15)
    direction = [torch.randn_like(p) for p in model.parameters()]
    gaps = []
    for step in (1e-2, 1e-3):
        moved = copy.deepcopy(model).eval()
        with torch.no_grad():
            for p, beta, d in zip(moved.parameters(), line.beta, direction, strict=True):
                p += step * d
                beta.copy_(step * d)
            gaps.append(float((moved(X) - line(X)).norm()))
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.1)
    assert gaps[0] > 0


def test_the_kernel_of_the_linearized_network_is_the_networks_own_everywhere() -> None:
    model = network()
    line = Linearized(model)
    with torch.no_grad():
        for beta in line.beta:
            beta.normal_()
    torch.testing.assert_close(empirical_ntk(line, X), empirical_ntk(model, X), rtol=0, atol=1e-12)


def test_gradient_descent_on_it_follows_the_closed_form_and_ends_at_the_interpolant() -> None:
    """Spec: closed form 1e-6. Ridgeless (errata 191), and with f_0 (errata 186, 190)."""
    model = network()
    K, cross = kernels(model)
    f0, f0_new = outputs(model, X), outputs(model, NEW)
    line, eta = Linearized(model), 1e-3
    for _ in range(2000):
        loss = (line(X) - Y).square().sum() / 2
        for beta, g in zip(line.beta, torch.autograd.grad(loss, list(line.beta)), strict=True):
            beta.data -= eta * g
    # a step is (1 - eta K), and of the same length e^(-K s) for s = -log(1 - eta K) / K
    values, vectors = torch.linalg.eigh(K)
    steps = vectors @ torch.diag((1 - eta * values) ** 2000) @ vectors.T
    expected = Y.reshape(-1) + steps @ (f0 - Y).reshape(-1)
    torch.testing.assert_close(outputs(line, X).reshape(-1), expected, rtol=0, atol=1e-6)
    flow = gradient_flow(
        K, cross, Y.reshape(-1), [0.0, 2000 * eta, 1e9], f0=f0.reshape(-1), f0_new=f0_new.reshape(-1)
    )
    torch.testing.assert_close(flow.training[0].reshape(6, 2), f0)
    torch.testing.assert_close(flow.new[0].reshape(4, 2), f0_new)
    torch.testing.assert_close(flow.training[1], outputs(line, X).reshape(-1), rtol=0, atol=2e-2)
    torch.testing.assert_close(flow.training[2], Y.reshape(-1), rtol=0, atol=1e-6)
    end = kernel_regression(K, cross, Y.reshape(-1), f0=f0.reshape(-1), f0_new=f0_new.reshape(-1))
    assert end.jitter == 0
    torch.testing.assert_close(end.fitted, Y.reshape(-1), rtol=0, atol=1e-8)
    torch.testing.assert_close(flow.new[2], end.mean, rtol=1e-5, atol=1e-5)
    printed = cross @ torch.linalg.solve(K, Y.reshape(-1))  # without f_0
    assert float((printed - end.mean).abs().max()) > 0.05


def test_a_small_step_moves_the_outputs_by_the_kernel_times_the_residual() -> None:
    """df/dt = K (y - f), to O(eta), of the network itself; the gap falls with eta."""
    model = network()
    K, _ = kernels(model)
    f0 = outputs(model, X)
    expected = (K @ (Y - f0).reshape(-1)).reshape(6, 2)
    gaps = []
    for eta in (1e-3, 1e-4):
        moved = copy.deepcopy(model).eval()
        loss = (moved(X) - Y).square().sum() / 2
        gradient = torch.autograd.grad(loss, list(moved.parameters()))
        with torch.no_grad():
            for p, g in zip(moved.parameters(), gradient, strict=True):
                p -= eta * g
            gaps.append(float(((moved(X) - f0) / eta - expected).norm() / expected.norm()))
    assert gaps[0] / gaps[1] == pytest.approx(10, rel=0.1)


def test_the_path_solves_the_differential_equation() -> None:
    """Beside scipy's integration of df/dt = K (y - f), with new examples carried along."""
    from scipy.integrate import solve_ivp

    K = ntk(torch.cat([X, NEW]), depth=2)
    both = torch.cat([Y, torch.zeros(4, 2).double()])

    def rate(_, f):
        f = torch.from_numpy(f).reshape(10, 2)
        return (K[:, :6] @ (both - f)[:6]).reshape(-1).numpy()

    start = torch.linspace(-1, 1, 20).double().reshape(10, 2)
    solved = solve_ivp(rate, (0, 0.7), start.reshape(-1).numpy(), rtol=1e-10, atol=1e-12).y[:, -1]
    flow = gradient_flow(K[:6, :6], K[6:, :6], Y, [0.7], f0=start[:6], f0_new=start[6:])
    found = torch.cat([flow.training[0], flow.new[0]])
    torch.testing.assert_close(found, torch.from_numpy(solved).reshape(10, 2), rtol=0, atol=1e-8)


def test_it_is_kernel_ridge_and_the_mean_of_a_gaussian_process() -> None:
    """Beside scikit-learn's KernelRidge, and the conditional mean by the inverse of the joint covariance."""
    from sklearn.kernel_ridge import KernelRidge

    whole = nngp(torch.cat([X, NEW]), depth=2, bias_std=0.3)
    K, cross = whole[:6, :6], whole[6:, :6]
    found = kernel_regression(K, cross, Y, ridge=0.3)
    ridge = KernelRidge(alpha=0.3, kernel="precomputed").fit(K.numpy(), Y.numpy())
    torch.testing.assert_close(found.mean, torch.from_numpy(ridge.predict(cross.numpy())), rtol=0, atol=1e-10)
    noisy = whole.clone()
    noisy[:6, :6] += 0.3 * torch.eye(6).double()
    P = torch.linalg.inv(noisy)
    mean = -torch.linalg.solve(P[6:, 6:], P[6:, :6] @ Y)
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-9)
    # weight decay about the start, and not about 0 (errata 189): |theta - theta_0|^2 lambda / 2
    model = network()
    K, cross = kernels(model)
    f0, f0_new = outputs(model, X).reshape(-1), outputs(model, NEW).reshape(-1)
    found = kernel_regression(K, cross, Y.reshape(-1), ridge=0.1, f0=f0, f0_new=f0_new)
    J, J_new = (
        torch.func.jacrev(lambda p, x=x: functional_call(copy.deepcopy(model).eval(), p, x))(
            dict(model.named_parameters())
        )
        for x in (X, NEW)
    )
    J, J_new = (
        torch.cat([j.flatten(2).flatten(0, 1) for j in each.values()], 1).detach() for each in (J, J_new)
    )
    beta = torch.linalg.solve(J.T @ J + 0.1 * torch.eye(J.shape[1]).double(), J.T @ (Y.reshape(-1) - f0))
    torch.testing.assert_close(found.mean, f0_new + J_new @ beta, rtol=0, atol=1e-9)


def test_duplicate_rows_are_solved_with_a_jitter_that_is_told() -> None:
    x = torch.cat([X, X[:3]])
    y = torch.cat([Y, Y[:3]])
    K = ntk(x, depth=2)
    found = kernel_regression(K, K, y)
    assert 0 < found.jitter <= 1e-6 * float(K.diagonal().mean())
    torch.testing.assert_close(found.fitted, y, rtol=0, atol=1e-4)
    assert kernel_regression(K, K, y, ridge=0.1).jitter == 0
    flow = gradient_flow(K, K, y, [1e6])
    torch.testing.assert_close(flow.training[0], y, rtol=0, atol=1e-6)
    torch.testing.assert_close(flow.new[0], y, rtol=0, atol=1e-6)


def test_alignment_of_known_kernels() -> None:
    y = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0]).double()
    centered = y - y.mean()
    assert kernel_alignment(torch.outer(y, y) + 7, y) == pytest.approx(1)  # a constant is centered away
    other = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0]).double()
    assert kernel_alignment(torch.outer(other, other), y) == pytest.approx(0, abs=1e-15)
    # <I, yy'> / (|HIH| |yy'|) with |HIH| = sqrt(n - 1)
    assert kernel_alignment(torch.eye(5), y) == pytest.approx(1 / 2)
    assert kernel_alignment(torch.eye(5), torch.stack((y, -y), 1)) == pytest.approx(1 / 2)
    assert float(centered.sum()) == pytest.approx(0)
    assert math.isnan(kernel_alignment(torch.eye(5), torch.ones(5)))
    assert relative_change(torch.eye(4), 3 * torch.eye(4)) == pytest.approx(2)
    assert math.isnan(relative_change(torch.zeros(2, 2), torch.eye(2)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda K: kernel_regression(K, K, Y[:5]), r"is 5 x 5, and one of new examples m x 5: got \(6, 6\)"),
        (lambda K: kernel_regression(K, K, Y, ridge=-1.0), "ridge must be at least 0: got -1"),
        (lambda K: kernel_regression(K, K, Y, f0=Y[:, 0]), r"f0 must be of the shape \(6, 2\): got \(6,\)"),
        (lambda K: kernel_regression(K * math.nan, K, Y), "must be finite"),
        (lambda K: gradient_flow(K, K, Y, [-1.0]), "times must be at least 0: got -1"),
        (lambda K: Linearized(nn.Linear(2, 1).requires_grad_(False)), "the model has none"),
    ],
)
def test_bad_arguments_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(ntk(X))
