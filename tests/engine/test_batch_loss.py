"""The loss of a batch asked again and again: one function, whatever is drawn, normalized, weighted or cut."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.batch_loss import BatchLoss, elsewhere, norm_of, put
from margin.engine.loop import GradientUpdate, NonFiniteError, State, risk

OBJECTIVE = risk(CLASSES)


def made(*layers, pieces=1, weight=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 3)).double().train()
    x = torch.randn(12, 4, dtype=torch.float64)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.5)}, step=3)
    batch = Batch((x,), torch.arange(12) % 3, weight)
    return state, BatchLoss(state, OBJECTIVE, GradientUpdate(pieces=pieces), batch), batch


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_gradient_and_loss_are_the_weighted_means(pieces):
    weight = torch.arange(12, dtype=torch.float64) % 4
    state, asked, batch = made(nn.Tanh(), pieces=pieces, weight=weight)
    losses = F.cross_entropy(state.model(*batch.inputs), batch.targets, reduction="none")
    mean = (losses * weight).sum() / weight.sum()
    expected = torch.autograd.grad(mean, list(state.model.parameters()))
    grads, loss = asked.gradient()
    assert abs(loss - mean.item()) <= 1e-14
    assert abs(asked.value() - loss) <= 1e-14
    assert all((a - b).abs().max() <= 1e-14 for a, b in zip(grads, expected, strict=True))
    if pieces == 1:
        assert abs(asked.differentiable().item() - loss) <= 1e-14


def test_every_answer_sees_the_same_draws_and_the_statistics_are_counted_once():
    state, asked, batch = made(nn.BatchNorm1d(8), nn.Dropout(0.5))
    noise = []

    def noisy(model, batch, generator):
        noise.append(torch.rand((), generator=generator).item())
        return OBJECTIVE(model, batch, generator)

    asked.objective = noisy
    torch.manual_seed(5)
    asked = BatchLoss(state, noisy, GradientUpdate(), batch)
    first, loss = asked.gradient()
    running = state.model[1].running_mean.clone()
    second, again = asked.gradient()
    assert loss == again == asked.value()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert len(set(noise)) == 1
    assert state.model[1].num_batches_tracked == 1
    assert torch.equal(state.model[1].running_mean, running)
    other = BatchLoss(state, noisy, GradientUpdate(), batch)  # the draws go on
    assert other.value() != loss


def test_a_parameter_without_a_part_in_the_loss_has_no_gradient():
    state, _, batch = made(nn.Tanh())
    spare = nn.Parameter(torch.ones(2, dtype=torch.float64))
    state.optimizers[""].add_param_group({"params": [spare]})
    grads, _ = BatchLoss(state, OBJECTIVE, GradientUpdate(), batch).gradient()
    assert grads[-1] is None
    assert all(g is not None for g in grads[:-1])


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_finite_is_refused(bad):
    state, _, batch = made(nn.Tanh())

    def objective(model, batch, generator):
        return OBJECTIVE(model, batch, generator) + bad

    asked = BatchLoss(state, objective, GradientUpdate(), batch)
    with pytest.raises(NonFiniteError, match="at step 3: every gradient is finite"):
        asked.gradient()

    def kinked(model, batch, generator):
        w = model[2].weight
        return OBJECTIVE(model, batch, generator) + (w.sum() - w.sum().detach()).abs().sqrt()

    with pytest.raises(NonFiniteError, match=r"the first gradient concerned is that of 2\.weight"):
        BatchLoss(state, kinked, GradientUpdate(), batch).gradient()


def test_a_gradient_whose_squares_overflow_is_finite():
    grads = [torch.tensor([3e30]), None, torch.tensor([4e30])]
    assert abs(norm_of(grads) / 5e30 - 1) <= 1e-6
    model = nn.Linear(1, 1, bias=False)
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=0.5)})
    asked = BatchLoss(
        state, lambda m, b, g: m(b.inputs[0])[:, 0], GradientUpdate(), Batch((torch.tensor([[1e30]]),))
    )
    assert abs(norm_of(asked.gradient()[0]) / 1e30 - 1) <= 1e-6


def test_parameters_come_back_to_the_bit():
    _, asked, _ = made(nn.Tanh())
    before = [p.detach().clone() for p in asked.parameters]

    def moved():
        with elsewhere(asked.parameters) as values:
            assert all(torch.equal(a, b) for a, b in zip(values, before, strict=True))
            put(asked.parameters, [p + 1 / 3 for p in before])
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        moved()
    assert all(torch.equal(a, b) for a, b in zip(asked.parameters, before, strict=True))
