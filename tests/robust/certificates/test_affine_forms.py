"""Affine forms: exact of affine maps, sound of others layer by layer, and of single precision."""

import pytest
import torch
import torch.nn.functional as F
from tests.robust.certificates.test_linear_bounds import NORMS, ball, moved, network
from torch import nn

from margin.robust.certificates.affine_forms import identity, mapped, within
from margin.robust.certificates.intervals import bounds
from margin.robust.certificates.linear_bounds import relaxed
from margin.robust.certificates.tape import Tape


def layers(net, at, columns):
    """Each result's box, cut by affine forms over the ball, and the tape."""
    tape = Tape()
    bounds(net, at.low, at.high, tape=tape)
    return relaxed(tape, at, columns=columns).boxes, tape


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["ReLU", "Tanh", "GELU", "graph_mean", "average"])
def test_every_layer_holds_its_samples_and_none_is_wider_than_by_intervals(name, norm):
    net, x = network(name)
    eps = {"linf": 0.05, "l2": 0.2, "l1": 0.4}[norm]
    at = ball(x, eps, norm)
    cut, tape = layers(net, at, 64)
    whole, _ = layers(net, at, 0)
    for point in moved(x, eps, norm, 100).double():
        for value, box in zip(tape.values(point, len(cut) - 1), cut, strict=True):
            assert (value >= box.low).all() and (value <= box.high).all()
    widths = [((a.high - a.low).sum(), (b.high - b.low).sum()) for a, b in zip(cut, whole, strict=True)]
    assert all(a <= b * (1 + 1e-4) for a, b in widths) and any(a < 0.8 * b for a, b in widths)


@pytest.mark.parametrize("norm", NORMS)
def test_of_an_affine_map_they_are_the_dual_norm(norm):
    """Two layers, whose product has other norms than its factors: w x_0 -+ eps ||w||_q."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 30), nn.Linear(30, 4), nn.ReLU())
    x, eps = torch.randn(3, 5), 0.3
    at = ball(x, eps, norm)
    box = layers(net, at, 5)[0][2]
    w = (net[1].weight.double() @ net[0].weight.double()).detach()
    far = eps * w.norm(p={"linf": 1, "l2": 2, "l1": torch.inf}[norm], dim=1)
    middle = net[:2].double()(x.double()).detach()
    for end, sign in ((box.low, -1), (box.high, 1)):
        error = sign * (end - (middle + sign * far))
        assert (error >= 0).all() and (error < 3e-5).all()


def test_single_precision_is_covered():
    """Columns of single precision near 1e8 that cancel to 1: the box must hold what they round away."""
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False), nn.ReLU())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 3.0], [1e-8, 0.0]]))
        net[1].weight.copy_(torch.tensor([[1e8, 1.0]]))
    at = ball(torch.tensor([[1.0, -1.0 / 3]]), 0.1)
    box = layers(net, at, 2)[0][2]
    exact = net[:2].double()
    for corner in (at.low, at.high, torch.stack((at.low[:, 0], at.high[:, 1]), 1)):
        value = exact(corner)
        assert box.low <= value <= box.high


def test_the_rest_holds_the_rounding_of_the_model_and_that_of_the_columns():
    """Each is gamma |w| r around 0, gamma = 10 u of two products and eight operations: kills one alone."""
    net = nn.Linear(2, 2, bias=False)
    at, tape = ball(torch.zeros(1, 2), 1.0), Tape()
    bounds(net, at.low, at.high, tape=tape)
    first, boxes = identity(at, torch.float32), tape.boxes
    form = mapped(tape.calls[1], [first], [boxes[0]], boxes[1], None, at)
    gamma = 10 * 2.0**-24 * net.weight.double().abs().sum(1)
    assert (form.rest >= 1.99 * gamma).all() and (form.rest <= 2.5 * gamma).all()


def test_a_function_without_a_form_ends_it_and_a_constant_beside_it_does_not():
    at, tape = ball(torch.rand(2, 3), 0.1), Tape()

    class Both(nn.Module):
        def forward(self, x):
            return F.softmax(x, 1) + x

    bounds(Both(), at.low, at.high, tape=tape)
    first = identity(at, torch.float32)
    call, boxes = tape.calls[1], tape.boxes
    assert mapped(call, [first], [boxes[0]], boxes[1], None, at) is None
    both = mapped(tape.calls[2], [None, first], [boxes[1], boxes[0]], boxes[2], None, at)
    found = within(both, at, boxes[2])
    assert (found.low >= boxes[2].low).all()
    torch.testing.assert_close(both.rest, (boxes[1].high - boxes[1].low) / 2, rtol=1e-4, atol=1e-5)
    assert torch.equal(both.columns, first.columns)
