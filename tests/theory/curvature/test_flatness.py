"""Sharpness in a box: closed forms, a lower bound of brute force, and what rescaling does to it."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Generator, nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.loss_slices import adaptive_sharpness, box_ascent, box_sharpness, demo
from margin.theory.curvature.trained_weights import demo as indefinite
from margin.theory.curvature.trained_weights import sharpness


def relu(bias=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=bias), nn.ReLU(), nn.Linear(8, 3, bias=bias)).double()
    generator = Generator().manual_seed(1)
    x = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    batches = [Batch((x,), torch.randint(3, (30,), generator=generator))]
    return Subject(model=model, test=batches, train=batches, task=CLASSES, objective=risk(CLASSES))


def rescaled(subject, a):
    model = relu().model
    model.load_state_dict(subject.model.state_dict())
    with torch.no_grad():
        model[0].weight *= a
        model[2].weight /= a
    return dataclasses.replace(subject, model=model)


def test_closed_forms():
    # (w - 2)^2 at its minimum: the box has half-width epsilon (2 + 1), the loss rises by its square.
    assert box_sharpness(demo(), epsilon=0.1).value.item() == pytest.approx(0.09, rel=1e-9)
    assert adaptive_sharpness(demo(), epsilon=0.1).value.item() == pytest.approx(0.04, rel=1e-9)
    moved = demo()
    with torch.no_grad():
        moved.model.weight.fill_(3.0)  # loss 1; the far corner is 3.4
    assert box_sharpness(moved, epsilon=0.1).value.item() == pytest.approx((1.4**2 - 1) / 2, rel=1e-9)


def test_a_linear_loss_is_highest_at_the_first_corner():
    batch = [Batch((torch.tensor([[2.0, -1.0]]).double(),), torch.zeros(1, 1).double())]
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 1.0]]))
    found = box_ascent(model, batch, lambda m, b, g: m(*b.inputs)[:, 0], epsilon=0.5, steps=1)
    assert found.loss == 5 and found.highest == 5 + 2 * 0.5 * 4 + 1 * 0.5 * 2


def test_it_is_a_lower_bound_close_to_brute_force():
    generator = Generator().manual_seed(3)
    X = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(20, 1, generator=generator, dtype=torch.float64)
    model = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():  # of some weights the ascent ends at a corner that is not the highest
        model.weight.uniform_(-0.5, 0.5, generator=generator)
    found = box_ascent(model, [Batch((X,), y)], risk(VALUES), epsilon=0.3)
    w = model.weight.detach()
    # A convex loss is highest at a corner.
    corners = [
        (X @ (w + 0.3 * (w.abs() + 1) * torch.tensor(signs)).T - y).square().mean().item()
        for signs in itertools.product((-1.0, 1.0), repeat=3)
    ]
    assert found.highest <= max(corners) + 1e-12
    assert found.highest == pytest.approx(max(corners), rel=1e-9)


@pytest.mark.parametrize("box", ["absolute", "relative"])
def test_no_weight_leaves_its_box(box):
    subject = relu()
    seen = []
    (batch,) = subject.train
    start = [p.detach().clone() for p in subject.model.parameters()]

    def spying(model, batch, generator):
        seen.append([p.detach().clone() for p in model.parameters()])
        return risk(CLASSES)(model, batch, generator)

    box_ascent(subject.model, [batch], spying, epsilon=0.05, box=box)
    one = 1.0 if box == "absolute" else 0.0
    for weights in seen:
        for p, center in zip(weights, start, strict=True):
            assert bool(((p - center).abs() <= 0.05 * (center.abs() + one) * (1 + 1e-12)).all())
    for p, center in zip(subject.model.parameters(), start, strict=True):
        assert torch.equal(p, center)


def test_rescaling_changes_keskars_sharpness_and_the_largest_eigenvalue_but_not_the_adaptive_one():
    # Dinh et al. 2017: relu(a W1 x) W2 / a is one function for all a > 0.
    subject = relu()
    other = rescaled(subject, 20.0)
    (batch,) = subject.train
    torch.testing.assert_close(other.model(*batch.inputs), subject.model(*batch.inputs))
    assert box_sharpness(other).value > 3 * box_sharpness(subject).value
    assert sharpness(other).value[0] > 10 * sharpness(subject).value[0]
    assert adaptive_sharpness(other).value.item() == pytest.approx(
        adaptive_sharpness(subject).value.item(), rel=1e-9
    )


def test_a_larger_box_is_sharper_and_it_is_only_a_lower_bound():
    values = [box_sharpness(relu(True), epsilon=e).value.item() for e in (1e-4, 1e-3, 1e-2)]
    assert 0 < values[0] < values[1] < values[2]
    found = box_sharpness(relu(True))
    assert found.kind == "lower" and math.isinf(found.verdict_interval[1].item())


def test_batches_and_weights_are_one_mean():
    subject = relu(True)
    (batch,) = subject.train
    weight = torch.rand(30, generator=Generator().manual_seed(2), dtype=torch.float64)
    whole = [batch._replace(weight=weight)]
    parts = [
        Batch((batch.inputs[0][i : i + 7],), batch.targets[i : i + 7], weight[i : i + 7])
        for i in range(0, 30, 7)
    ]
    one, other = (box_ascent(subject.model, b, risk(CLASSES)) for b in (whole, parts))
    assert one.loss == pytest.approx(other.loss, rel=1e-12)
    assert one.highest == pytest.approx(other.highest, rel=1e-9)


def test_what_it_refuses():
    for options in ({"epsilon": 0.0}, {"epsilon": math.nan}, {"steps": 0}):
        with pytest.raises(ValueError, match="epsilon must be above 0, steps at least 1"):
            box_sharpness(demo(), **options)
    with pytest.raises(ValueError, match="the model has none"):
        box_ascent(nn.Identity(), demo().train, lambda m, b, g: b.inputs[0])
    assert "a loss above -1" in box_sharpness(indefinite()).failure
    subject = relu()
    with torch.no_grad():
        subject.model[0].weight[0, 0] = math.nan
    assert box_sharpness(subject).verdict == Verdict.FAILED
