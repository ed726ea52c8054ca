"""Newton's method: one step on a quadratic, its order, its invariance, its saddles, and what it refuses."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State, fit, risk
from margin.engine.methods.newton import conjugate_gradients, hessian, newton, positive_definite

HERE = Batch((torch.zeros(1, dtype=torch.float64),))


class Point(nn.Module):
    def __init__(self, at):
        super().__init__()
        self.x = nn.Parameter(torch.as_tensor(at, dtype=torch.float64).clone())


def state_of(model):
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=1e-30)})


def objective(function):
    return lambda model, batch, generator: function(model.x)[None]


def follow(function, start, steps, **options):
    """The iterates and the metrics of each step."""
    state, step = state_of(Point(start)), newton(objective(function), GradientUpdate(), **options)
    path, metrics = [state.model.x.detach().clone()], []
    for _ in range(steps):
        metrics.append(step(state, HERE))
        path.append(state.model.x.detach().clone())
    return torch.stack(path), metrics


def definite(seed=0, dim=5):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return A @ A.T + torch.eye(dim, dtype=torch.float64), torch.randn(
        dim, generator=generator, dtype=torch.float64
    )


def logistic():
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    y = (torch.rand(60, generator=generator) < torch.sigmoid(X[:, 0])).double() * 2 - 1
    return lambda w: F.softplus(-y * (X @ w)).mean()


@pytest.mark.parametrize("line_search", ["armijo", "none"])
def test_one_step_solves_a_quadratic(line_search):
    H, b = definite()
    path, metrics = follow(lambda x: x @ H @ x / 2 - b @ x, torch.ones(5), 1, line_search=line_search)
    assert (path[1] - torch.linalg.solve(H, b)).abs().max() <= 1e-12
    assert metrics[0]["length"] == 1
    assert metrics[0]["damping"] == 0


def test_damping_is_added_to_the_hessian():
    H, b = definite()
    path, metrics = follow(lambda x: x @ H @ x / 2 - b @ x, torch.zeros(5), 1, damping=0.7)
    assert (path[1] - torch.linalg.solve(H + 0.7 * torch.eye(5, dtype=torch.float64), b)).abs().max() <= 1e-12
    assert metrics[0]["damping"] == 0.7


@pytest.mark.parametrize("line_search", ["armijo", "none"])
def test_convergence_is_quadratic_on_a_logistic_loss(line_search):
    path, _ = follow(logistic(), torch.zeros(4), 9, line_search=line_search)
    errors = (path[:-1] - path[-1]).norm(dim=1).tolist()
    pairs = [(a, b) for a, b in pairwise(errors) if b > 1e-13]
    assert len(pairs) >= 3
    assert all(b <= 0.6 * a**2 for a, b in pairs)  # a linear rate would exceed it at the last pair
    assert errors[6] <= 1e-13


@pytest.mark.parametrize("solver", ["dense", "conjugate_gradients"])
def test_every_solver_reaches_the_minimum(solver):
    function = logistic()
    path, metrics = follow(function, torch.full((4,), 2.0), 15, solver=solver)
    x = path[-1].clone().requires_grad_()
    assert torch.autograd.grad(function(x), x)[0].norm() <= 1e-7
    losses = [m["loss"] for m in metrics]
    assert all(b <= a + 1e-15 for a, b in pairwise(losses))


def test_it_does_not_depend_on_the_coordinates():
    generator = torch.Generator().manual_seed(3)
    A = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    function, start = logistic(), torch.full((4,), 0.5, dtype=torch.float64)
    ours, _ = follow(function, start, 4, line_search="none")
    phi, _ = follow(lambda p: function(A @ p), torch.linalg.solve(A, start), 4, line_search="none")
    assert (phi @ A.T - ours).abs().max() <= 1e-9


def saddle(x):
    return x[0] ** 2 - x[1] ** 2


def test_undamped_it_goes_to_the_saddle_and_with_a_line_search_away():
    path, _ = follow(saddle, [1.0, 0.5], 1, line_search="none")
    assert path[1].abs().max() <= 1e-14
    path, metrics = follow(saddle, [1.0, 0.5], 3)
    assert saddle(path[-1]) < -5
    assert metrics[0]["damping"] > 2  # the least eigenvalue is -2


def test_conjugate_gradients_leave_the_saddle_too():
    path, _ = follow(saddle, [0.2, 0.5], 3, solver="conjugate_gradients")
    assert saddle(path[-1]) < saddle(path[0])
    assert path[-1][1].abs() > 0.5


def test_the_line_search_halves_until_the_loss_falls():
    def flat(x):  # Newton's own step takes x to -x^3
        return (1 + x**2).sqrt().sum()

    path, _ = follow(flat, [1.5], 1, line_search="none")
    assert abs(path[1].item() + 1.5**3) <= 1e-12
    path, metrics = follow(flat, [1.5], 8)
    # from 1.5 the whole step leads to -3.375, half of it to -0.9375
    assert metrics[0]["length"] == 0.5
    assert abs(path[-1].item()) <= 1e-12


def test_a_step_that_lowers_the_loss_too_little_is_halved():
    # At 0 slope -1 and curvature 1: the whole step leads to 1, where the loss is 1e-5 lower, a tenth of the
    # promised 1e-4; half of it leads to 1/2, where it is .3125 lower.
    def barely(x):
        return (-x + x**2 / 2 + (0.5 - 1e-5) * x**3).sum()

    path, metrics = follow(barely, [0.0], 1)
    assert metrics[0]["length"] == 0.5 and path[1].item() == pytest.approx(0.5)

    def enough(x):
        return (-x + x**2 / 2 + (0.5 - 1e-3) * x**3).sum()

    path, metrics = follow(enough, [0.0], 1)
    assert metrics[0]["length"] == 1.0


def test_where_no_step_lowers_the_loss_the_weights_stay():
    # the gradient is wrong on purpose: it points downhill
    def lying(x):
        return (x.detach() - (x - x.detach())).sum() + (x - x.detach()).square().sum()

    path, metrics = follow(lying, [1.0], 1)
    assert metrics[0]["length"] == 0
    assert torch.equal(path[0], path[1])


def network(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, 2)).double()
    x = torch.randn(10, 3, dtype=torch.float64)
    weight = torch.arange(10, dtype=torch.float64) % 3
    return model.train(), Batch((x,), torch.arange(10) % 2, weight)


@pytest.mark.parametrize("layers", [(nn.Tanh(),), (nn.BatchNorm1d(4), nn.Tanh()), (nn.ReLU(),)])
def test_the_hessian_is_that_of_the_weighted_mean_loss(layers):
    model, batch = network(*layers)
    shapes = [p.shape for p in model.parameters()]
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])

    def value(flat):
        parts = flat.split([s.numel() for s in shapes])
        named = {n: p.view(s) for (n, _), p, s in zip(model.named_parameters(), parts, shapes, strict=True)}
        outputs = torch.func.functional_call(model, named, batch.inputs)
        losses = F.cross_entropy(outputs, batch.targets, reduction="none")
        return (losses * batch.weight).sum() / batch.weight.sum()

    H = torch.autograd.functional.hessian(value, flat)
    g = torch.autograd.functional.jacobian(value, flat)
    damping = 0.5 - float(torch.linalg.eigvalsh(H)[0])
    expected = flat - torch.linalg.solve(H + damping * torch.eye(len(flat), dtype=torch.float64), g)
    step = newton(risk(CLASSES), GradientUpdate(), damping=damping, line_search="none")
    step(state_of(model), batch)
    moved = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert (moved - expected).abs().max() <= 1e-10


def test_conjugate_gradients_solve_and_stop_at_negative_curvature():
    H, b = definite()
    tiny = 1e-24 * b  # the residual that is asked for is |g|^1/2 of the gradient
    p = conjugate_gradients(lambda v: H @ v, tiny, 50)
    assert (1e24 * p + torch.linalg.solve(H, b)).norm() <= 1e-10
    one = conjugate_gradients(lambda v: H @ v, b, 1)
    assert (one + (b @ b) / (b @ H @ b) * b).norm() <= 1e-12  # steepest descent with the exact length
    assert torch.equal(conjugate_gradients(lambda v: -v, b, 50), -b)
    zero = torch.zeros(5, dtype=torch.float64)
    assert torch.equal(conjugate_gradients(lambda v: H @ v, zero, 50), zero)
    indefinite = torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0, 5.0], dtype=torch.float64))
    direction = conjugate_gradients(lambda v: indefinite @ v, b, 50)
    assert b @ direction < 0


@pytest.mark.parametrize(("least", "rounding"), [(-2.0, 1e-12), (0.0, 1e-12), (1e-9, 1e-6)])
def test_the_damping_makes_a_hessian_positive_definite(least, rounding):
    H = torch.diag(torch.tensor([5.0, 1.0, least], dtype=torch.float64))
    damping = positive_definite(H, 0.0, rounding)
    assert 0 < damping <= 2 * max(-least, 0.005)
    assert least + damping > rounding * 5
    assert positive_definite(H + 3 * torch.eye(3), 0.25, rounding) == 0.25


def test_a_flat_loss_leaves_the_weights():
    path, _ = follow(lambda x: 0 * x.sum(), [1.0, 2.0], 1)
    assert torch.equal(path[0], path[1])


def test_a_linear_loss_is_descended_with_damping():
    path, _ = follow(lambda x: x.sum(), [1.0, 2.0], 1, damping=0.5)
    assert (path[1] - (path[0] - 2)).abs().max() <= 1e-14


def test_a_singular_hessian_is_refused_without_a_line_search():
    with pytest.raises(ValueError, match=r"the Hessian at step 0 is singular to working precision"):
        follow(lambda x: (x[0] + x[1]) ** 2 + x[0], [1.0, 2.0], 1, line_search="none")
    follow(lambda x: (x[0] + x[1]) ** 2 + x[0], [1.0, 2.0], 1)


def test_a_hessian_that_is_singular_but_for_rounding_is_refused_too():
    # LU finds a pivot; the residual tells that nothing of the solution is right
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    A[:, 7] = A[:, :7].sum(1)
    with pytest.raises(ValueError, match="singular to working precision"):
        follow(lambda x: (A @ x).square().sum() + x[0], torch.zeros(8), 1, line_search="none")


def test_damping_reaches_the_conjugate_gradients():
    H, b = definite()
    path, _ = follow(
        lambda x: x @ H @ x / 2 - b @ x,
        torch.zeros(5),
        1,
        solver="conjugate_gradients",
        iterations=1,
        damping=0.7,
    )
    assert (path[1] - (b @ b) / (b @ H @ b + 0.7 * b @ b) * b).abs().max() <= 1e-12


def test_a_dense_hessian_that_would_be_too_large_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError,
        match=r"for at most 5000 parameters: 100000 take 80 GB; set --rule\.solver conjugate_gradients",
    ):
        hessian(lambda rows: rows, torch.zeros(100_000, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "descend", "message"),
    [
        ({"damping": -1.0}, {}, r"damping must be at least 0 and finite: got -1\.0"),
        ({"damping": math.nan}, {}, "damping must be at least 0 and finite: got nan"),
        ({"iterations": 0}, {}, "iterations must be at least 1: got 0"),
        ({}, {"clip": 2.0}, "newton does not move along the gradient: clip must be inf, got 2"),
        ({}, {"pieces": 3}, "newton takes a batch whole: accumulate must be 1, got 3"),
        ({}, {"synchronized": True}, r"newton needs whole weights: set --strategy ddp"),
    ],
)
def test_what_does_not_fit_is_refused(options, descend, message):
    with pytest.raises(ValueError, match=message):
        newton(objective(saddle), GradientUpdate(**descend), **options)


def test_a_model_without_parameters_is_refused():
    model = Point([1.0])
    state = state_of(model)
    model.x.requires_grad_(False)
    with pytest.raises(
        ValueError, match="newton needs parameters that require a gradient: the model has none"
    ):
        newton(objective(saddle), GradientUpdate())(state, HERE)


def test_what_is_not_finite_moves_nothing():
    for function in (lambda x: x.sum() * math.inf, lambda x: (x - x.detach()).abs().sqrt().sum()):
        state = state_of(Point([1.0]))
        with pytest.raises(NonFiniteError, match="at step 0"):
            newton(objective(function), GradientUpdate())(state, HERE)
        assert state.model.x.item() == 1.0


def test_a_small_network_in_single_precision_is_fitted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 2))
    x = torch.randn(40, 2)
    batch = Batch((x,), (x[:, 0] * x[:, 1] > 0).long())
    state = state_of(model)
    fit(state, lambda k: batch, newton(risk(CLASSES), GradientUpdate()), max_steps=40)
    assert state.tally["loss"] / state.tally["terms"] < 0.4
    assert (model(x).argmax(1) == batch.targets).float().mean() > 0.95
