"""Nesterov's method: the textbook recursion, PyTorch's shifted variable, both bounds of the theory."""

import math

import pytest
import torch
from torch import nn

from margin.optim.momentum import Nesterov


def logistic(seed=0):
    """A convex function of 5 variables, its smoothness constant, and a gradient by hand."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    y = (torch.rand(40, generator=generator) < 0.5).double() * 2 - 1
    L = torch.linalg.eigvalsh(X.T @ X)[-1].item() / (4 * 40)

    def value(w):
        return nn.functional.softplus(-y * (X @ w)).mean()

    return value, L


def walk(optimizer, x, function, steps):
    """The points where the gradient is asked, and the iterates, from the start on."""
    points, iterates = [x.detach().clone()], [x.detach().clone()]
    for _ in range(steps):
        optimizer.zero_grad()
        function(x).backward()
        optimizer.step()
        points.append(x.detach().clone())
        with optimizer.at_iterates():
            iterates.append(x.detach().clone())
        assert torch.equal(x.detach(), points[-1])
    return torch.stack(points), torch.stack(iterates)


def start(dim=5):
    return nn.Parameter(torch.linspace(-3, 2, dim, dtype=torch.float64))


def gradient(function, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x), x)[0]


@pytest.mark.parametrize("momentum", [0.8, "convex"])
def test_it_is_the_textbook_recursion(momentum):
    function, L = logistic()
    x = start()
    before = theta = x.detach().clone()
    _, ours = walk(Nesterov([x], 1 / L, momentum), x, function, 30)
    for t in range(30):
        beta = momentum if momentum != "convex" else (t - 1) / (t + 2) if t else 0.0
        chi = theta + beta * (theta - before)
        before, theta = theta, chi - gradient(function, chi) / L
        assert (ours[t + 1] - theta).abs().max() <= 1e-12


@pytest.mark.parametrize("weight_decay", [0.0, 0.2])
def test_pytorchs_variant_has_the_points_where_the_gradient_is_asked(weight_decay):
    function, _ = logistic()
    x, y = start(), start()
    points, iterates = walk(Nesterov([x], 0.5, 0.9, weight_decay), x, function, 50)
    theirs = torch.optim.SGD([y], 0.5, momentum=0.9, nesterov=True, weight_decay=weight_decay)
    for t in range(50):
        theirs.zero_grad()
        function(y).backward()
        theirs.step()
        assert (points[t + 1] - y.detach()).abs().max() <= 1e-12
    assert (iterates[10] - points[10]).abs().max() > 1e-3  # they are two sequences


@pytest.mark.parametrize("seed", range(3))
def test_the_convex_bound_holds_at_every_step(seed):
    function, L = logistic(seed)
    best = torch.zeros(5, dtype=torch.float64)
    for _ in range(20):  # Newton's method, by autograd
        H = torch.autograd.functional.hessian(function, best)
        best = best - torch.linalg.solve(H, gradient(function, best))
    x = start()
    far = (x.detach() - best).square().sum()
    _, iterates = walk(Nesterov([x], 1 / L, "convex"), x, function, 200)
    for t in range(1, 201):
        gap = function(iterates[t]) - function(best)
        assert gap <= 2 * L * far / (t + 1) ** 2 + 1e-14


def test_the_strongly_convex_bound_holds_and_gradient_descent_is_beaten():
    mu, L = 1.0, 1e4
    curvatures = torch.logspace(0, 4, 9, dtype=torch.float64)

    def function(x):
        return (curvatures * x**2).sum() / 2

    root = math.sqrt(L / mu)
    x = nn.Parameter(torch.ones(9, dtype=torch.float64))
    _, iterates = walk(Nesterov([x], 1 / L, (root - 1) / (root + 1)), x, function, 600)
    first = function(iterates[0]) + mu / 2 * iterates[0].square().sum()
    assert all(function(iterates[t]) <= (1 - 1 / root) ** t * first for t in range(601))
    descended = (1 - curvatures / L) ** 600  # gradient descent at the same rate, in closed form
    assert function(iterates[600]) < 1e-3 * function(descended)


def test_iterates_give_way_to_the_points_again_after_an_error():
    function, L = logistic()
    x = start()
    optimizer = Nesterov([x], 1 / L, 0.9)
    points, _ = walk(optimizer, x, function, 3)
    with pytest.raises(RuntimeError, match="inside"), optimizer.at_iterates():
        raise RuntimeError("inside")
    assert torch.equal(x.detach(), points[-1])


def test_before_the_first_step_the_iterates_are_the_parameters():
    x = start()
    with Nesterov([x]).at_iterates():
        assert torch.equal(x, start())


@pytest.mark.parametrize("momentum", [1.0, -0.1, math.nan])
def test_a_momentum_out_of_range_is_refused(momentum):
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\) or 'convex': got"):
        Nesterov([start()], momentum=momentum)
