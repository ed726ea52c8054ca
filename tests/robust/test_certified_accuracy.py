"""Certified accuracy with tightened layers: exact on a linear model in both norms; a wrong bound is seen."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import certified_accuracy
from margin.robust.certified_accuracy import (
    l2_certificate,
    l2_radius,
    linf_certificate,
    linf_radius,
    sound,
)
from margin.robust.sandwich import demo, linf_sandwich

SHARES = (0.0, 0.005, 0.02, 0.05, 0.1)


def subject():
    torch.manual_seed(0)
    inner = [part for _ in range(3) for part in (nn.Linear(24, 24), nn.ReLU())]
    net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), *inner, nn.Linear(24, 3))
    for layer in net[::2]:
        layer.weight.data *= 2
    x = torch.randn(60, 4).clamp(-2, 2)
    domain = Domain(torch.tensor(-2.0), torch.tensor(2.0))
    batch = Batch((x,), net(x).argmax(1).detach())
    return Subject(model=net, test=(batch,), task=CLASSES, objective=risk(CLASSES), domain=domain)


@pytest.mark.parametrize(
    ("ask", "size"), [(linf_certificate, 8 * 3.0), (l2_certificate, 8 * 2**0.5 * 5**0.5)]
)
def test_certificate_and_attack_meet_in_the_closed_form_of_a_linear_model(ask, size):
    x, y = demo().test[0].inputs[0].double(), demo().test[0].targets
    margin = (2 * y - 1) * (2 * x[:, 0] - x[:, 1])
    expected = [(margin > share * size).double().mean().item() for share in SHARES]
    finding = ask(demo(), shares=SHARES)
    assert len(set(expected)) >= 3
    assert finding.value.tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.low.tolist() == pytest.approx(expected, abs=1e-12)
    assert finding.verdict is Verdict.HOLDS


@pytest.mark.parametrize("ask", [linf_certificate, l2_certificate])
def test_tightened_layers_certify_more(ask):
    tight, plain = ask(subject(), shares=SHARES, limit=60), ask(subject(), shares=SHARES, limit=60, units=0)
    assert (tight.low >= plain.low).all() and (tight.low > plain.low).any()
    assert (tight.low <= tight.value).all()
    assert any("CROWN with tightened layers" in premise.evidence for premise in tight.premises)
    assert (
        torch.equal(linf_sandwich(subject(), shares=SHARES, limit=60).low, plain.low) or ask is l2_certificate
    )


def test_bounds_are_sound_and_a_wrong_one_is_seen(monkeypatch):
    assert sound(subject()).verdict is Verdict.HOLDS
    ask = certified_accuracy.crown_margins
    for shift in (0.5, -0.5):  # above the truth; below the interval bound
        monkeypatch.setattr(certified_accuracy, "crown_margins", lambda *a, shift=shift: ask(*a) + shift)
        assert sound(subject()).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(("ask", "length"), [(linf_radius, 3.0), (l2_radius, 5**0.5)])
def test_radii_of_a_linear_model_are_its_distances_by_every_bound_and_by_the_attack(ask, length):
    """m / ||w||_q, m = y (2 x_1 - x_2), at most the largest that is asked, 0 of a wrong example."""
    margins = torch.tensor([0.2, 0.4, 1.7, 3.0, 0.5, 0.04])
    right = torch.tensor([True, True, True, True, False, True])
    found = ask(demo(), share=0.1)
    most = 0.8 * (1 if length == 3 else 2**0.5)
    truth = (margins / length).clamp(max=most) * right
    assert found.high is not None
    torch.testing.assert_close(found.high, truth.mean().double().expand(4), rtol=0.05, atol=0)
    assert (found.value <= truth.mean() + 1e-9).all()
    exact = found.value[1 if length < 3 else 0 :]  # the box around a Euclidean ball is larger than it
    assert (exact >= truth.mean() - most / 128).all()
    assert found.verdict is Verdict.HOLDS
    assert (found.curves["radius"] <= truth + 1e-9).all()


@pytest.mark.parametrize("ask", [linf_radius, l2_radius])
def test_the_best_radius_is_that_of_the_best_bound_and_each_bound_is_named(ask):
    found = ask(subject(), limit=12)
    *proved, best = found.value.tolist()
    assert best >= max(proved) and len(set(proved)) == 3 and proved[1] > proved[0]
    assert "linear bounds: " in found.remarks[0]


def test_a_layer_without_a_constant_is_named_and_the_other_bounds_stand():
    asked = subject()
    asked.model.insert(1, nn.LayerNorm(24))
    found = l2_radius(asked, limit=6, share=0.002)
    assert any(
        "Lipschitz constants: no Lipschitz constant is known of layer_norm" in r for r in found.remarks
    )
    assert found.value[2] == 0 and found.value[0] > 0


@pytest.mark.parametrize("name", ["intervals", "linear bounds", "Lipschitz constants"])
def test_a_radius_beyond_an_adversarial_input_is_an_error_of_ours(name, monkeypatch):
    monkeypatch.setitem(certified_accuracy.BOUNDS, name, lambda model, ball, y, read: torch.ones(len(y), 3))
    found = l2_radius(subject(), limit=12)
    assert found.verdict is Verdict.FAILED and "proved right and broken" in found.failure
