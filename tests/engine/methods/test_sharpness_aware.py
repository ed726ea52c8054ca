"""Sharpness-aware minimization: its formula by hand, what it leaves alone, what it refuses."""

import math

import pytest
import torch
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import GradientUpdate, NonFiniteError, State, descent, fit, risk
from margin.engine.methods.flat_minima import sam

HERE = Batch((torch.zeros(1, dtype=torch.float64),))
CURVATURES = torch.tensor([1.0, 10.0], dtype=torch.float64)


class Point(nn.Module):
    def __init__(self, *at):
        super().__init__()
        self.x = nn.Parameter(torch.tensor(at, dtype=torch.float64))


def quadratic(model, batch, generator):
    return ((CURVATURES * model.x**2).sum() / 2)[None]


def state_at(*at, lr=0.1):
    model = Point(*at)
    return State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=lr)})


def test_it_descends_along_the_gradient_at_the_ascended_point():
    state = state_at(2.0, -1.0)
    metrics = sam(quadratic, GradientUpdate(), rho=0.3)(state, HERE)
    x = torch.tensor([2.0, -1.0], dtype=torch.float64)
    g = CURVATURES * x
    up = x + 0.3 * g / g.norm()
    assert (state.model.x - (x - 0.1 * CURVATURES * up)).abs().max() <= 1e-14
    assert abs(metrics["loss"] - 7.0) <= 1e-14
    assert abs(metrics["sharpness"] - ((CURVATURES * up**2).sum() / 2 - 7)) <= 1e-13


def test_without_a_radius_it_is_descent_to_the_bit():
    one, other = state_at(2.0, -1.0), state_at(2.0, -1.0)
    fit(one, lambda k: HERE, sam(quadratic, GradientUpdate(), rho=0.0), max_steps=5)
    fit(other, lambda k: HERE, descent(quadratic, GradientUpdate()), max_steps=5)
    assert torch.equal(one.model.x, other.model.x)


def test_where_the_gradient_is_zero_nothing_moves():
    state = state_at(0.0, 0.0)
    metrics = sam(quadratic, GradientUpdate(), rho=0.3)(state, HERE)
    assert torch.equal(state.model.x.detach(), torch.zeros(2, dtype=torch.float64))
    assert metrics["sharpness"] == 0


def network(batch_norm=True):
    torch.manual_seed(0)
    norm = [nn.BatchNorm1d(8)] if batch_norm else [nn.Tanh()]
    model = nn.Sequential(nn.Linear(4, 8), *norm, nn.Dropout(0.3), nn.Linear(8, 3)).double()
    x = torch.randn(12, 4, dtype=torch.float64)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.1)})
    return state, Batch((x,), torch.arange(12) % 3)


def test_batch_statistics_are_those_of_one_pass_at_the_weights_themselves():
    (one, batch), (other, _) = network(), network()
    fit(one, lambda k: batch, sam(risk(CLASSES), GradientUpdate(), rho=0.5), max_steps=1)
    fit(other, lambda k: batch, descent(risk(CLASSES), GradientUpdate()), max_steps=1)
    assert all(torch.equal(a, b) for a, b in zip(one.model.buffers(), other.model.buffers(), strict=True))


def test_examples_of_weight_zero_count_for_nothing():
    (one, batch), (other, _) = network(batch_norm=False), network(batch_norm=False)
    one.model[2].p = other.model[2].p = 0.0
    weight = torch.ones(12, dtype=torch.float64)
    weight[7:] = 0
    sam(risk(CLASSES), GradientUpdate())(one, batch._replace(weight=weight))
    sam(risk(CLASSES), GradientUpdate(pieces=3))(other, Batch((batch.inputs[0][:7],), batch.targets[:7]))
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-14


def test_a_loss_that_is_infinite_up_the_hill_moves_nothing():
    def cliff(model, batch, generator):
        return torch.where(model.x > 1.1, math.inf, model.x**2)

    state = state_at(1.0)
    with pytest.raises(NonFiniteError, match="loss inf at step 0"):
        sam(cliff, GradientUpdate(), rho=0.2)(state, HERE)
    assert state.model.x.item() == 1.0


@pytest.mark.parametrize("rho", [-0.1, math.inf, math.nan])
def test_a_radius_out_of_range_is_refused(rho):
    with pytest.raises(ValueError, match="rho must be at least 0 and finite: got"):
        sam(quadratic, GradientUpdate(), rho=rho)


def test_the_gradient_that_is_clipped_is_the_one_at_the_ascended_point():
    state = state_at(2.0, -1.0)
    metrics = sam(quadratic, GradientUpdate(clip=1.0), rho=0.3)(state, HERE)
    moved = state.model.x.detach() - torch.tensor([2.0, -1.0], dtype=torch.float64)
    assert abs(moved.norm() - 0.1) <= 1e-6
    assert metrics["grad_norm"] > 10
