"""The learning-rate range test against the recurrence of a quadratic, and what it leaves behind: nothing."""

import copy
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.trained_weights import Quadratic
from margin.theory.dynamics.range_test import Sweep, demo, range_test, sweep


def value(model, batch, generator):
    return model(*batch.inputs)


def parabola(curvature, **fields):
    zeros = torch.zeros(4, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    A = torch.tensor([[curvature]], dtype=torch.float64)
    return Subject(model=Quadratic(A), test=[batch], train=[batch], task=VALUES, objective=value, **fields)


def net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    x = torch.randn(90, 3, generator=Generator().manual_seed(1))
    batch = Batch((x,), x.argmax(1))
    return Subject(model=model, test=[batch], train=[batch], task=CLASSES, objective=risk(CLASSES))


@pytest.mark.parametrize("curvature", [0.5, 2.0, 30.0])
def test_a_parabola_follows_its_recurrence(curvature):
    subject = parabola(curvature)
    found = sweep(subject.model, subject.train, value, low=1e-4, high=100.0, steps=121)
    w, expected = 1.0, []
    for rate in (1e-4 * 10 ** (i / 20) for i in range(121)):
        w *= 1 - rate * curvature
        expected.append(curvature * w * w / 2)
        if expected[-1] > curvature:  # twice what it was at first
            break
    assert found.losses.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert found.before == curvature / 2 and found.diverged
    # no rate below 2 / curvature raises the loss, and beyond it must grow from where it had fallen to
    assert float(found.rates[-1]) > 2 / curvature
    assert 1 / curvature / 1.13 < found.lowest < 2 / curvature * 1.13


@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_the_sweep_ends_once_the_loss_has_risen_by_its_magnitude_at_first(shift):
    subject = parabola(2.0)  # w^2, from 1

    def shifted(model, batch, generator):
        return value(model, batch, generator) + shift

    found = sweep(subject.model, subject.train, shifted, low=1.03, high=1.05, steps=40)
    w, count = 1.0, 0
    while w * w + shift <= 1 + shift + abs(1 + shift):
        w *= 1 - 2 * 1.03 * (1.05 / 1.03) ** (count / 39)
        count += 1
    assert len(found.losses) == count and found.diverged
    assert float(found.losses[-2]) <= 1 + shift + abs(1 + shift) < float(found.losses[-1])


def test_rates_rise_geometrically_between_the_ends():
    found = sweep(parabola(1e-9).model, parabola(1e-9).train, value, low=0.01, high=1.0, steps=5)
    assert found.rates.tolist() == pytest.approx([0.01, 0.1**1.5, 0.1, 0.1**0.5, 1.0])
    assert not found.diverged


def test_the_steepest_fall_is_the_middle_of_three_steps():
    rates = torch.tensor([1.0, 2, 4, 8, 16, 32]).double()
    losses = torch.tensor([9.0, 8, 5, 1, 0.5, 0.4]).double()  # falls 1, 1, 3, 4, .5, .1
    assert Sweep(rates, losses, 10.0, False).steepest == 4  # (1 + 3 + 4) / 3
    assert Sweep(rates, losses, 10.0, False).lowest == 32
    back = Sweep(rates, torch.tensor([9.0, 8, 5, 30, 12, 10]).double(), 10.0, True)
    assert back.steepest == 4 and back.lowest == 4  # what falls after it has risen is no rate to begin with
    rising = Sweep(rates, 10 + rates, 10.0, True)
    assert math.isnan(rising.steepest) and math.isnan(rising.lowest)
    broken = Sweep(rates, torch.cat((losses[:5], torch.tensor([math.nan]).double())), 10.0, True)
    assert broken.steepest == 4 and broken.lowest == 16


def test_the_sweep_begins_where_the_training_began():
    trained = parabola(2.0)
    initial = copy.deepcopy(trained.model)
    with torch.no_grad():
        initial.w.fill_(3.0)
    found = range_test(parabola(2.0, initial=initial))
    assert "from the initial weights" in found.statement and "It was 9 at first" in found.statement
    assert "from the trained weights" in range_test(trained).statement


def test_the_answer_carries_a_step_of_the_rate():
    found = range_test(demo())
    factor = 1e6 ** (1 / 99)
    low, high = found.interval
    assert torch.allclose(high[:2] / found.value[:2], torch.tensor(factor).double())
    assert torch.allclose(found.value / low, torch.tensor(factor).double())
    assert float(high[2]) == float(found.value[2])
    calm = range_test(demo(), high=0.5)
    assert "does not diverge up to 0.5" in calm.statement
    assert float(calm.interval[1][2]) == math.inf and float(calm.interval[0][2]) == float(calm.value[2])


def test_a_network_learns_on_the_way_and_is_left_alone():
    subject = net()
    before = copy.deepcopy(subject.model.state_dict())
    rng = torch.get_rng_state()
    one, two = range_test(subject), range_test(subject)
    assert torch.equal(one.value, two.value)
    assert one.verdict == Verdict.MEASURED
    steepest, lowest, last = one.value.tolist()
    assert 1e-3 < steepest <= lowest <= last
    after = subject.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(p.grad is None for p in subject.model.parameters()) and subject.model.training
    assert torch.equal(rng, torch.get_rng_state())


def test_batches_are_whole_where_examples_read_each_other():
    seen = []

    def counted(model, batch, generator):
        seen.append(len(batch.inputs[0]))
        return risk(CLASSES)(model, batch, generator)

    subject = net()
    sweep(subject.model, subject.train, counted, steps=4, batch_size=None)
    assert set(seen) == {90}
    seen.clear()
    sweep(subject.model, subject.train, counted, steps=4, batch_size=40)
    assert seen[1::2] == [40, 40, 10, 40]  # between them the loss is watched


def test_a_weight_of_0_and_a_frozen_parameter_have_no_part():
    (batch,) = net().train
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    weight = (torch.arange(90) < 10).float()
    seen = []

    def watched(model, batch, generator):
        seen.append(model[0].weight.detach().clone())
        return risk(CLASSES)(model, batch, generator)

    options = {"steps": 5, "low": 0.01, "high": 0.5, "batch_size": None}
    found = sweep(model, [batch._replace(weight=weight)], watched, **options)
    assert all(torch.equal(w, model[0].weight) for w in seen)
    few = Batch((batch.inputs[0][:10],), batch.targets[:10])
    alone = sweep(model, [few], risk(CLASSES), **options)
    assert torch.allclose(found.losses, alone.losses, rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"low": 0.0}, {"low": 2.0, "high": 1.0}, {"steps": 2}, {"batch_size": 0}, {"high": math.inf}]
)
def test_an_option_out_of_range_is_refused(options):
    with pytest.raises(ValueError, match="low must be above 0 and below high, steps at least 3"):
        sweep(demo().model, demo().train, value, **options)


def test_what_cannot_be_swept_is_refused_or_fails():
    subject = demo()
    with pytest.raises(ValueError, match="needs examples"):
        sweep(subject.model, [], value)
    subject.model.requires_grad_(False)
    with pytest.raises(ValueError, match="needs parameters that require a gradient"):
        sweep(subject.model, subject.train, value)
    assert range_test(parabola(math.nan)).verdict == Verdict.FAILED
    resting = parabola(2.0)
    with torch.no_grad():
        resting.model.w.zero_()
    found = range_test(resting)
    assert found.verdict == Verdict.UNFOUNDED and found.premises[0].text == "the loss falls at some rate"
