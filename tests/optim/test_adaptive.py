"""Torch's own optimizers against the formulas of the literature, and what was printed wrongly."""

import math

import pytest
import torch
from torch import nn

from margin.core.catalog import parts, resolve

START = [1.0, -2.0, 0.5]


def grads(steps=30, scale=1.0):
    generator = torch.Generator().manual_seed(2)
    return (
        scale
        * torch.randn(steps, 3, generator=generator, dtype=torch.float64)
        * torch.tensor([1.0, 10.0, 0.1])
    )


def torchs(name, given, **options):
    """Where the row's optimizer goes along given gradients."""
    x = nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = resolve(parts()[f"optim/{name}"].target)([x], **options)
    path = [x.detach().clone()]
    for g in given:
        x.grad = g.clone()
        optimizer.step()
        path.append(x.detach().clone())
    return torch.stack(path)


def adagrad(given, eta, eps):
    x, G = torch.tensor(START, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for g in given:
        G = G + g**2
        x = x - eta * g / (G.sqrt() + eps)
    return x


def rmsprop(given, alpha, beta, eps, inside=False):
    x, v = torch.tensor(START, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for g in given:
        v = beta * v + (1 - beta) * g**2
        x = x - alpha * g / ((v + eps).sqrt() if inside else v.sqrt() + eps)
    return x


def adam(given, eta, b1, b2, eps, *, corrected=True, decay=0.0):
    x = torch.tensor(START, dtype=torch.float64)
    m = v = torch.zeros(3, dtype=torch.float64)
    for t, g in enumerate(given, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if corrected else (m, v)
        x = x - eta * decay * x - eta * m_hat / (v_hat.sqrt() + eps)
    return x


def test_adagrad_is_its_formula():
    assert (
        torchs("adagrad", grads(), lr=0.1, eps=0.01)[-1] - adagrad(grads(), 0.1, 0.01)
    ).abs().max() <= 1e-13


def test_the_first_step_of_adagrad_has_the_size_of_the_rate_in_every_coordinate():
    first = torchs("adagrad", grads(), lr=0.1, eps=0.0)[:2]
    assert ((first[1] - first[0]).abs() - 0.1).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("name", "options"), [("adagrad", {"eps": 0.0}), ("rmsprop", {"eps": 0.0}), ("adam", {"eps": 0.0})]
)
def test_the_scale_of_the_loss_does_not_matter(name, options):
    one, other = (torchs(name, grads(scale=scale), lr=0.1, **options) for scale in (1.0, 100.0))
    assert (one - other).abs().max() <= 1e-11


def test_dividing_by_the_sum_itself_would_scale_steps_by_its_inverse():
    # as printed: theta_i -= eta g_i / (delta + G_i), without the root
    def steps(scale):
        given, moves = grads(scale=scale), []
        G = torch.zeros(3, dtype=torch.float64)
        for g in given:
            G = G + g**2
            moves.append(0.1 * g / G)
        return torch.stack(moves)

    assert (steps(10.0) * 10 / steps(1.0) - 1).abs().max() <= 1e-12


def test_rmsprop_is_its_formula_with_eps_outside_of_the_root():
    options = {"lr": 0.1, "alpha": 0.8, "eps": 0.05}
    ours = torchs("rmsprop", grads(), **options)[-1]
    assert (ours - rmsprop(grads(), 0.1, 0.8, 0.05)).abs().max() <= 1e-13
    assert (ours - rmsprop(grads(), 0.1, 0.8, 0.05, inside=True)).abs().max() > 1e-2


def test_under_a_constant_gradient_the_step_of_rmsprop_tends_to_its_sign():
    given = torch.tensor([[5.0, -0.02, 1.0]], dtype=torch.float64).expand(200, 3)
    path = torchs("rmsprop", given, lr=0.1, alpha=0.9, eps=0.0)
    assert (path[-1] - path[-2] + 0.1 * given[0].sign()).abs().max() <= 1e-9


@pytest.mark.parametrize(("b1", "b2"), [(0.9, 0.999), (0.5, 0.8), (0.0, 0.9)])
def test_adam_is_its_formula(b1, b2):
    ours = torchs("adam", grads(), lr=0.1, betas=(b1, b2), eps=0.01)[-1]
    assert (ours - adam(grads(), 0.1, b1, b2, 0.01)).abs().max() <= 1e-12


def test_without_the_correction_the_first_step_of_adam_is_three_times_too_large():
    first = torchs("adam", grads()[:1], lr=0.1, eps=0.0)[-1] - torch.tensor(START)
    printed = adam(grads()[:1], 0.1, 0.9, 0.999, 0.0, corrected=False) - torch.tensor(START)
    assert (printed / first - 0.1 / math.sqrt(0.001)).abs().max() <= 1e-9
    assert abs(0.1 / math.sqrt(0.001) - 3.16) <= 0.005


def test_adamw_decays_apart_from_the_gradients_size():
    ours = torchs("adamw", grads(), lr=0.1, weight_decay=0.2, eps=1e-8)[-1]
    assert (ours - adam(grads(), 0.1, 0.9, 0.999, 1e-8, decay=0.2)).abs().max() <= 1e-12


def test_nadam_looks_ahead_as_dozat_writes_it():
    b1, b2, psi = 0.9, 0.999, 0.004
    x, product = torch.tensor(START, dtype=torch.float64), 1.0
    m = v = torch.zeros(3, dtype=torch.float64)
    for t, g in enumerate(grads(), 1):
        now, later = (b1 * (1 - 0.5 * 0.96 ** (s * psi)) for s in (t, t + 1))
        product *= now
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        look = later * m / (1 - product * later) + (1 - now) * g / (1 - product)
        x = x - 0.1 * look / ((v / (1 - b2**t)).sqrt() + 1e-8)
    # torch keeps the product of the momenta in single precision
    assert (torchs("nadam", grads(), lr=0.1)[-1] - x).abs().max() <= 1e-7


def test_lbfgs_learns_the_curvature_of_a_quadratic():
    curvatures = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    x = nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = resolve(parts()["optim/lbfgs"].target)([x], lr=0.5, max_iter=1)
    for _ in range(60):
        x.grad = curvatures * x.detach()
        optimizer.step(lambda: 0.0)
    # gradient descent that does not diverge (rate at most 2/100) leaves (1 - 0.02)^60 = 0.3 of the first
    assert x.detach().abs().max() <= 1e-4


@pytest.mark.parametrize(("eta", "converges"), [(0.1, True), (0.499, True), (0.501, False), (-0.1, False)])
def test_gradient_descent_contracts_below_two_over_the_curvature(eta, converges):
    x, curvature = torch.tensor([1.0], dtype=torch.float64), 4.0
    if eta > 0:
        p = nn.Parameter(x.clone())
        optimizer = resolve(parts()["optim/sgd"].target)([p], lr=eta)
        for t in range(1, 41):
            p.grad = curvature * p.detach()
            optimizer.step()
            assert abs(p.item() - (1 - eta * curvature) ** t) <= 1e-12 * abs(1 - eta * curvature) ** t + 1e-15
    assert (abs(1 - eta * curvature) < 1) == converges
