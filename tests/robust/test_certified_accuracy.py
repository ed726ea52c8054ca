"""Certified accuracy with tightened layers: exact on a linear model in both norms; a wrong bound is seen."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import certified_accuracy
from margin.robust.certified_accuracy import l2_certificate, linf_certificate, sound
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
