"""Certificates of examples: the best bound of each, monotone in the ball; radii of linear models exact."""

import math

import pytest
import torch
from torch import nn

from margin.core.types import Domain
from margin.robust.attacks.threat_models import Threat
from margin.robust.certificates import certify
from margin.robust.certificates.certify import certified, certified_radii
from margin.robust.certificates.intervals import margin_bounds
from margin.robust.certificates.linear_bounds import alpha_crown_margins, crown_margins

WIDE = Domain(torch.tensor(-50.0), torch.tensor(50.0))


def network(classes=3):
    torch.manual_seed(0)
    inner = [part for _ in range(3) for part in (nn.Linear(24, 24), nn.ReLU())]
    net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), *inner, nn.Linear(24, classes))
    for layer in net[::2]:
        layer.weight.data *= 2
    x, y = torch.randn(60, 4), None
    with torch.no_grad():
        y = net(x).argmax(1)
    return net, x, y


def balls(norm, *radii, unit=None):
    return [Threat(WIDE, eps, norm, unit) for eps in radii]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("columns", [0, 4])
def test_each_method_adds_to_the_cheaper_ones_and_larger_balls_hold_less(norm, columns, monkeypatch):
    monkeypatch.setattr(certify, "COLUMNS", columns)
    net, x, y = network()
    found = certified(net, x, y, balls(norm, 0.0, 0.01, 0.03, 0.06, 0.12, 0.25))
    assert (found.proved[:-1] >= found.proved[1:]).all() and found.proved[0].all()
    assert {0, 1, 2 if columns else 3} <= set(found.method.flatten().tolist())
    assert columns or not (found.method == 2).any()
    assert torch.equal(found.proved, found.method >= 0)
    for threat, row in zip(balls(norm, 0.01, 0.03), found.method[1:], strict=False):
        low, high = threat.hull(x)
        below = margin_bounds(net, low, high, y).scatter(1, y[:, None], torch.inf).amin(1)
        assert torch.equal(below > 0, row == 0)  # the cheapest bound that proves it is named
    if not columns:
        assert certified(net, x, y, balls(norm, 0.06), units=0).proved.sum() < found.proved[3].sum()
    assert ("CROWN with affine forms" if columns else "CROWN with tightened layers") in found.words()


def test_affine_forms_prove_what_tightened_layers_prove_and_no_input_of_more_coordinates_is_asked():
    net, x, y = network()
    found = certified(net, x, y, balls("linf", 0.06), units=0)
    assert (found.method == 2).sum() > 10
    wide = nn.Sequential(nn.Linear(certify.COLUMNS + 1, 4, bias=False), net)
    with torch.no_grad():
        wide[0].weight.copy_(torch.eye(4, certify.COLUMNS + 1))
        points = torch.cat((x, torch.zeros(60, certify.COLUMNS - 3)), 1)
    assert not (certified(wide, points, y, balls("linf", 0.06), units=0).method == 2).any()


def test_lipschitz_constants_prove_where_rotations_leave_linear_bounds_behind():
    """Four orthogonal layers and rectifiers of sixteen units: l2 lengths never grow, boxes and lines do."""
    torch.manual_seed(0)
    turns = [nn.utils.parametrizations.orthogonal(nn.Linear(16, 16, bias=False)) for _ in range(4)]
    net = nn.Sequential(*(part for turn in turns for part in (turn, nn.LeakyReLU(0.5))), nn.Linear(16, 3))
    with torch.no_grad():
        net[-1].weight.copy_(3 * torch.eye(3, 16))
        x = torch.randn(200, 16)
        y = net(x).argmax(1)
    found = certified(net, x, y, balls("l2", 0.05, 0.1, 0.2), units=0)
    assert (found.method == 4).any() and "Lipschitz constants" in found.words()
    assert not (certified(net, x, y, balls("linf", 0.05), units=0).method == 4).any()


def test_a_wrong_example_is_not_proved():
    net, x, y = network()
    found = certified(net, x, (y + 1) % 3, balls("linf", 0.0, 0.1))
    assert not found.proved.any() and (found.method == -1).all()


@pytest.mark.parametrize("kind", [2, 3])
def test_the_dearer_bounds_are_asked_of_hopeful_examples_alone(kind, monkeypatch):
    monkeypatch.setattr(certify, "COLUMNS", 4 if kind == 2 else 0)
    net, x, y = network()
    threats = balls("linf", 0.06)
    every = certified(net, x, y, threats)
    hopeful = torch.arange(60)[None] % 2 == 0
    some = certified(net, x, y, threats, hopeful=hopeful)
    assert torch.equal(some.method == kind, (every.method == kind) & hopeful)
    assert torch.equal(some.method, every.method.masked_fill(~hopeful & (every.method > 1), -1))
    assert (every.method == kind)[~hopeful].any()


def test_moved_slopes_prove_more_of_the_few_that_lack_least(monkeypatch):
    """What they prove holds at 500 corners of the ball; asked are at most so many, over both balls."""
    monkeypatch.setattr(certify, "COLUMNS", 0)
    monkeypatch.setattr(certify, "STEPS", 5)
    asked = []

    def counted(model, ball, *given, **work):
        asked.append(ball.x[0])
        return alpha_crown_margins(model, ball, *given, **work)

    monkeypatch.setattr(certify, "alpha_crown_margins", counted)
    net, x, y = network()
    threats = balls("linf", 0.16, 0.17)
    plain, found = certified(net, x, y, threats), certified(net, x, y, threats, ascents=8)
    assert len(asked) == 8 and "alpha-CROWN" in found.words()
    more = found.proved & ~plain.proved
    assert (found.method[more] == 5).all() and (found.proved >= plain.proved).all() and more[0].any()
    tight = crown_margins(net, certify.ball_of(x, threats[0]), y, units=certify.UNITS)
    least = tight.scatter(1, y[:, None], torch.inf).amin(1).masked_fill(plain.proved[0], -torch.inf)
    assert torch.equal(torch.stack(asked), x[least.argsort(descending=True)[:8]].double())
    draws = torch.Generator().manual_seed(0)
    for _ in range(500):
        corner = x + threats[0].eps * (2 * torch.randint(2, x.shape, generator=draws) - 1)
        with torch.no_grad():
            assert (net(corner).argmax(1) == y)[found.proved[0]].all()


def test_what_no_attack_left_is_not_asked_of_moved_slopes(monkeypatch):
    monkeypatch.setattr(certify, "COLUMNS", 0)
    monkeypatch.setattr(certify, "STEPS", 5)
    net, x, y = network()
    every = certified(net, x, y, balls("linf", 0.16), ascents=1)
    assert (every.method == 5).any()
    some = certified(net, x, y, balls("linf", 0.16), hopeful=every.method != 5, ascents=1)
    assert not (some.method == 5)[every.method == 5].any()
    assert not (certified(net, x, y, balls("linf", 0.16), ascents=1, units=0).method > 2).any()


def test_what_is_not_proved_in_a_ball_is_not_tried_in_a_larger_one():
    """The dearer bounds, asked of the larger ball alone, would prove there what nothing proved inside."""
    net, x, y = network()
    hopeful = torch.tensor([[False], [True]]).expand(2, 60)
    found = certified(net, x, y, balls("linf", 0.06, 0.0601), hopeful=hopeful, units=0)
    assert (found.proved[0] >= found.proved[1]).all() and not found.proved[0].all()


@pytest.mark.parametrize("classes", [2, 3])
def test_every_rival_must_be_beaten_not_the_strongest_at_the_input_alone(classes):
    """f = (0, -1, -1.01 - 3 x): at 0 class 1 is the strongest rival, at -.5 class 2 is and wins."""
    net = nn.Linear(1, classes).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0], [0.0], [-3.0]])[:classes])
        net.bias.copy_(torch.tensor([0.0, -1.0, -1.01])[:classes])
    model = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), net).double()
    with torch.no_grad():
        model[0].weight.fill_(1.0), model[0].bias.zero_()
    found = certified(model, torch.zeros(1, 1).double(), torch.tensor([0]), balls("linf", 0.2, 0.5))
    assert found.proved[:, 0].tolist() == [True, classes == 2]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_radii_of_a_linear_model_are_its_distances(norm):
    """|f| / ||w||_q, cut by the largest radius that is asked; each coordinate in its own unit."""
    torch.manual_seed(1)
    net, unit = nn.Linear(3, 2).double(), torch.tensor([1.0, 0.5, 2.0])
    x = torch.randn(20, 3).double()
    with torch.no_grad():
        out = net(x)
    y = out.argmax(1)
    w = (net.weight[1] - net.weight[0]).detach() * unit
    far = (out[:, 1] - out[:, 0]).abs() / w.norm(p={"linf": 1, "l2": 2}[norm])
    found = certified_radii(net, x, y, balls(norm, 1.0, unit=unit)[0], steps=10)
    expected = far.clamp(max=1.0)
    assert (found <= expected).all() and (found >= expected - 2.0**-10 - 1e-9).all()
    assert (expected == 1).any() and (expected < 1).any()
    assert not certified_radii(net, x, 1 - y, balls(norm, 1.0, unit=unit)[0]).any()


def test_examples_are_bounded_in_parts_that_fit(monkeypatch):
    net, x, y = network()
    threats = balls("linf", 0.03, 0.06)
    whole, sizes = certified(net, x, y, threats), []
    ask = certify.crown_margins
    monkeypatch.setattr(certify, "HELD", 500)
    monkeypatch.setattr(
        certify, "crown_margins", lambda m, b, *a, **k: (sizes.append(len(b.x)), ask(m, b, *a, **k))[1]
    )
    assert torch.equal(certified(net, x, y, threats).method, whole.method)
    assert max(sizes) <= 500 // 150 and len(sizes) > 10


def test_a_bound_that_is_not_a_number_proves_nothing():
    class Nan(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()[0]

        def forward(self, x):
            return self.net(x) * torch.tensor(math.nan)

    _, x, y = network()
    assert not certified(Nan(), x, y, balls("linf", 0.0, 0.1)).proved.any()


def test_asking_leaves_no_trace():
    net, x, y = network()
    net = nn.Sequential(net, nn.BatchNorm1d(3)).train()
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    certified(net, x, y, balls("l2", 0.1))
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and all(m.training for m in net.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert all(p.grad is None for p in net.parameters())
