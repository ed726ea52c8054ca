"""Gradient flow: the exponential, another library's integrator, Euler's error, and what it refuses."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.integrate
import torch
from torch import nn

from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit
from margin.engine.methods.gradient_flow import A, E, gradient_flow, integrate

HERE = Batch((torch.zeros(1, dtype=torch.float64),))


class Point(nn.Module):
    def __init__(self, at):
        super().__init__()
        self.x = nn.Parameter(torch.as_tensor(at, dtype=torch.float64).clone())


def state_at(at, lr=0.1):
    model = Point(at)
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)})


def objective(function):
    return lambda model, batch, generator: function(model.x)[None]


def valley(x):
    return (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2


def test_the_coefficients_are_those_of_dormand_and_prince():
    theirs = scipy.integrate.RK45
    for i, row in enumerate(A[:-1]):
        assert np.allclose(row, theirs.A[i + 1, : i + 1], rtol=0, atol=1e-15)
    assert np.allclose(A[-1], theirs.B, rtol=0, atol=1e-15)
    assert np.allclose(np.abs(E), np.abs(theirs.E), rtol=0, atol=1e-15)
    assert abs(sum(E)) <= 1e-16


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-10])
def test_on_a_quadratic_the_flow_is_the_exponential(tolerance):
    rates = torch.tensor([1.0, 10.0], dtype=torch.float64)
    state = state_at([1.0, 1.0])
    step = gradient_flow(
        objective(lambda x: (rates * x**2).sum() / 2), GradientUpdate(), time=0.7, tolerance=tolerance
    )
    metrics = step(state, HERE)
    gap = (state.model.x.detach() - torch.exp(-0.7 * rates)).abs().max()
    assert gap <= 10 * tolerance
    assert metrics["time"] == 0.7
    assert metrics["loss"] == 5.5
    assert abs(metrics["grad_norm"] - math.sqrt(101)) <= 1e-12


def test_the_order_is_five():
    # one stretch of length h against the exponential: the error falls by 2^6 when h is halved
    errors = []
    for h in (0.4, 0.2, 0.1):
        (end,), stages = integrate(lambda y: [-y[0]], [torch.ones(1, dtype=torch.float64)], h, tolerance=0.9)
        assert stages == 7
        errors.append(abs(end.item() - math.exp(-h)))
    assert 50 <= errors[0] / errors[1] <= 80
    assert 50 <= errors[1] / errors[2] <= 80


def test_it_goes_where_another_integrator_goes():
    state = state_at([-1.0, 1.5])
    step = gradient_flow(objective(valley), GradientUpdate(), time=0.5, tolerance=1e-7)
    fit(state, lambda k: HERE, step, max_steps=3)

    def field(t, x):
        a, b = x
        return [2 * (1 - a) + 40 * a * (b - a**2), -20 * (b - a**2)]

    theirs = scipy.integrate.solve_ivp(field, (0, 1.5), [-1.0, 1.5], rtol=1e-11, atol=1e-12).y[:, -1]
    assert np.abs(state.model.x.detach().numpy() - theirs).max() <= 1e-5


def bowl(x):
    return (x[0] - 1) ** 2 + x[0] ** 2 * x[1] ** 2 + x[1] ** 2 / 2


def test_descent_strays_from_the_flow_by_order_eta():
    """The largest distance between gradient descent and the flow, at times k eta up to 1."""
    gaps, firsts = [], []
    for eta in (0.05, 0.025, 0.0125):
        one, other = state_at([-1.0, 1.5], lr=eta), state_at([-1.0, 1.5], lr=eta)
        euler = descent(objective(bowl), GradientUpdate())
        flow = gradient_flow(objective(bowl), GradientUpdate(), tolerance=1e-7)
        apart = []
        for _ in range(round(1 / eta)):
            euler(one, HERE)
            flow(other, HERE)
            apart.append(float((one.model.x - other.model.x).detach().norm()))
        gaps.append(max(apart))
        firsts.append(apart[0])
    ratios = [a / b for a, b in pairwise(gaps)]
    assert ratios == pytest.approx([2, 2], rel=0.35)
    assert abs(ratios[1] - 2) < abs(ratios[0] - 2)
    assert firsts[1] / firsts[2] == pytest.approx(4, rel=0.15)  # of one step it is of order eta^2


def test_without_a_time_the_rate_of_the_moment_is_the_time():
    state = state_at([1.0], lr=0.25)
    step = gradient_flow(objective(lambda x: (x**2).sum() / 2), GradientUpdate(), tolerance=1e-10)
    assert step(state, HERE)["time"] == 0.25
    state.optimizers[""].param_groups[0]["lr"] = 0.5  # as a schedule does
    assert step(state, HERE)["time"] == 0.5
    assert abs(state.model.x.item() - math.exp(-0.75)) <= 1e-9


def test_a_stiff_quadratic_takes_more_stages_and_stays_stable():
    def stages(curvature):
        rates = torch.tensor([1.0, curvature], dtype=torch.float64)
        state = state_at([1.0, 1.0])
        step = gradient_flow(objective(lambda x: (rates * x**2).sum() / 2), GradientUpdate(), time=1.0)
        count = step(state, HERE)["stages"]
        assert (state.model.x.detach() - torch.exp(-rates)).abs().max() <= 1e-4
        return count

    assert stages(300.0) > 5 * stages(1.0)


def test_a_stretch_that_goes_too_far_is_refused_and_shortened():
    # from x = 1 a stretch of 1 would reach beyond 1.5, where the loss is infinite
    def walled(x):
        return torch.where(x > 1.5, math.inf, 3 * (x - 1.4) ** 2).sum()

    state = state_at([1.0])
    gradient_flow(objective(walled), GradientUpdate(), time=1.0, tolerance=1e-8)(state, HERE)
    assert abs(state.model.x.item() - (1.4 - 0.4 * math.exp(-6))) <= 1e-6


def test_what_is_not_finite_at_the_weights_moves_nothing():
    state = state_at([1.0])
    with pytest.raises(NonFiniteError, match="loss inf at step 0"):
        gradient_flow(objective(lambda x: x.sum() * math.inf), GradientUpdate())(state, HERE)
    assert state.model.x.item() == 1.0


def test_a_tolerance_below_rounding_is_refused_in_words_and_moves_nothing(monkeypatch):
    monkeypatch.setattr("margin.engine.methods.gradient_flow.LIMIT", 30)
    state = state_at([-1.0, 1.5])
    step = gradient_flow(objective(valley), GradientUpdate(), time=1.0, tolerance=1e-30)
    with pytest.raises(ValueError, match=r"tolerance 1e-30 is not met, the flow came to .* in 30 stretches"):
        step(state, HERE)
    assert state.model.x.tolist() == [-1.0, 1.5]


@pytest.mark.parametrize(
    ("options", "descend", "message"),
    [
        ({"time": 0.0}, {}, r"time must be positive and finite: got 0\.0"),
        ({"time": math.nan}, {}, "time must be positive and finite: got nan"),
        ({"tolerance": 0.0}, {}, r"tolerance must be in \(0, 1\): got 0\.0"),
        ({}, {"clip": 1.0}, "gradient_flow does not move along the gradient: clip must be inf, got 1"),
        ({}, {"synchronized": True}, "gradient_flow needs whole weights"),
    ],
)
def test_what_does_not_fit_is_refused(options, descend, message):
    with pytest.raises(ValueError, match=message):
        gradient_flow(objective(valley), GradientUpdate(**descend), **options)


def test_several_rates_are_refused():
    state = state_at([1.0])
    spare = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    state.optimizers[""].add_param_group({"params": [spare], "lr": 0.5})
    with pytest.raises(ValueError, match=r"one time for all weights: got the learning rates \[0\.1, 0\.5\]"):
        gradient_flow(objective(lambda x: x.sum()), GradientUpdate())(state, HERE)


def test_the_parameters_alone_are_moved_and_pieces_make_no_difference():
    torch.manual_seed(0)
    x, y = torch.randn(9, 2, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    ends = []
    for pieces in (1, 4):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
        state = State({"model": model}, {"": torch.optim.AdamW(model.parameters(), lr=0.3)})
        flow = gradient_flow(
            lambda m, b, g: (m(b.inputs[0])[:, 0] - b.targets) ** 2, GradientUpdate(pieces=pieces)
        )
        fit(state, lambda k: Batch((x,), y), flow, max_steps=2)
        assert not state.optimizers[""].state
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert (ends[0] - ends[1]).abs().max() <= 1e-12
