"""APGD: checkpoints, halving, momentum and sparse steps by hand; optimum of linear models."""

import pytest
import torch
from torch import nn

from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust.attacks.apgd import _Walk, apgd, checkpoints
from margin.robust.attacks.gradient import Search, margin_loss, missed, pgd, ratio_loss
from margin.robust.attacks.threat_models import Threat

NORMS = ["linf", "l2", "l1"]
WIDE = Domain(torch.tensor(-1e6), torch.tensor(1e6))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def network():
    torch.manual_seed(0)
    layers = nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)
    model = nn.Sequential(*layers)
    for parameter in model.parameters():
        parameter.data *= 3
    x = torch.rand(100, 20)
    return model, Batch((x,), model(x).argmax(1))


def test_checkpoints_are_the_papers():
    # p: 0, .22, .41, .57, .70, .80, .87, .93, .99 (Croce & Hein, 2020, Section 3.2)
    assert checkpoints(100) == [22, 41, 58, 70, 80, 87, 93, 99]  # ceil(100 x .57) in floating point is 58
    assert checkpoints(10) == [3, 5, 6, 8, 9, 10]  # as is ceil(10 x .70)
    assert checkpoints(1) == [1]


def asked_points(slopes, steps, norm="linf", eps=1.0, start=0.0):
    """The iterates on a line along which the loss rises by the slope of each point; no random start."""
    points = []

    def loss(model, batch, _):
        x = batch.inputs[0]
        points.append(x.detach().clone())
        return slopes(x[:, 0])

    x = torch.zeros(1, 1, dtype=torch.float64)
    threat = Threat(WIDE, eps, norm)
    apgd(nn.Identity(), Batch((x,), torch.tensor([0])), loss, threat, generator(), steps=steps)
    return torch.cat(points[1:])[:, 0].tolist()


def test_a_step_has_the_momentum_of_the_last_but_the_first():
    y = asked_points(lambda x: -(x - 0.1).abs(), 40)
    start, first, second = y[0], y[1], y[2]
    clip = lambda v: max(-1.0, min(1.0, v))
    sign = lambda v: 1.0 if v < 0.1 else -1.0
    assert first == pytest.approx(clip(start + 2 * sign(start)))
    z = clip(first + 2 * sign(first))
    assert second == pytest.approx(clip(first + 0.75 * (z - first) + 0.25 * (first - start)))


def test_where_steps_do_not_pay_the_length_is_halved_until_the_peak_is_met():
    """A roof of ridge .1 in a ball of radius 1: with steps of 2 alone the ridge is never met."""
    y = asked_points(lambda x: -(x - 0.1).abs(), 40)
    assert min(abs(v - 0.1) for v in y) < 0.02
    late = [abs(a - b) for a, b in zip(y[-5:], y[-4:], strict=False)]
    assert max(late) < 0.2  # after the last checks the steps are short


@pytest.mark.parametrize("norm", NORMS)
def test_the_optimum_of_a_linear_model_is_reached_and_never_exceeded(norm):
    torch.manual_seed(1)
    model = nn.Linear(8, 2).double()
    x, y = torch.randn(30, 8).double(), torch.randint(0, 2, (30,))
    w = (model.weight[1] - model.weight[0]).detach()
    dual = {"linf": w.abs().sum(), "l2": w.norm(), "l1": w.abs().max()}[norm]
    clean = margin_loss(CLASSES)(model, Batch((x,), y), generator())
    threat = Threat(WIDE, 0.3, norm)
    found = apgd(model, Batch((x,), y), margin_loss(CLASSES), threat, generator(), steps=100)
    assert (found.loss <= clean + 0.3 * dual + 1e-9).all()
    torch.testing.assert_close(found.loss, clean + 0.3 * dual, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.05), ("l2", 0.15), ("l1", 0.4)])
def test_it_breaks_about_as_many_as_plain_ascent_of_as_many_steps(norm, eps):
    model, batch = network()
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), eps, norm)
    goal = missed(CLASSES)
    for loss in (margin_loss(CLASSES), ratio_loss(CLASSES), risk(CLASSES)):
        ours = apgd(model, batch, loss, threat, generator(), steps=40, goal=goal)
        plain = pgd(model, batch, loss, threat, generator(), search=Search(steps=40), goal=goal)
        assert int(ours.broken.sum()) >= int(plain.broken.sum()) - 3
        assert 20 < int(ours.broken.sum()) < 90
        assert torch.equal(model(ours.inputs).argmax(1) != batch.targets, ours.broken)


def test_restarts_break_no_less_and_a_wrong_example_is_not_moved():
    model, batch = network()
    batch = batch._replace(targets=(batch.targets + (torch.arange(100) < 5)) % 5)
    threat, goal = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), 0.03), missed(CLASSES)
    one, three = (
        apgd(model, batch, risk(CLASSES), threat, generator(), steps=10, restarts=k, goal=goal)
        for k in (1, 3)
    )
    assert not (one.broken & ~three.broken).any()
    assert torch.equal(one.inputs[:5], batch.inputs[0][:5]) and one.broken[:5].all()


@pytest.mark.parametrize("options", [{"steps": 0}, {"restarts": 0}])
def test_numbers_below_1_are_refused(options):
    model, batch = network()
    with pytest.raises(ValueError, match="at least 1"):
        apgd(model, batch, risk(CLASSES), Threat(WIDE, 0.1), generator(), **options)


def test_the_step_is_halved_where_few_steps_rose_or_nothing_was_gained_since_it_last_was_not():
    """Of four steps three rose, exactly the share, or four; with a gain or none; halved before or not."""
    x = torch.zeros(4, 2)
    walk = _Walk.begun(Batch((x,), torch.zeros(4).long()), x, torch.arange(4), Threat(WIDE, 1.0))
    walk.rises = torch.tensor([3.0, 4.0, 4.0, 4.0]).double()
    walk.checked_loss, walk.top_loss = torch.zeros(4), torch.tensor([1.0, 1.0, 0.0, 0.0])
    walk.halved = torch.tensor([False, False, False, True])
    walk.top, walk.y = x + 1, x + 2
    walk.check(4)
    assert walk.halved.tolist() == [True, False, True, False]
    assert walk.reach.tolist() == [1.0, 2.0, 1.0, 2.0]
    assert walk.y[:, 0].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert walk.rises.tolist() == [0.0] * 4 and torch.equal(walk.checked_loss, walk.top_loss)


def test_a_walk_that_went_back_has_no_momentum_and_one_that_did_not_keeps_it():
    """The last displacement of the first led away from where it stands: the second alone moves on by it."""
    x = torch.zeros(2, 3)
    threat = Threat(WIDE, 10.0)
    walk = _Walk.begun(Batch((x,), torch.zeros(2).long()), x, torch.arange(2), threat)
    walk.before, walk.y, walk.top = x + 1, x + 3, x + 5
    walk.rises, walk.top_loss = torch.tensor([0.0, 4.0]).double(), torch.ones(2)
    walk.top_gradient = walk.gradient = torch.zeros(2, 3)
    walk.check(4)
    walk.advance(threat, threat.around(x), first=False)
    assert walk.y[:, 0].tolist() == [5.0, 3.0 + 0.25 * (3.0 - 1.0)]
