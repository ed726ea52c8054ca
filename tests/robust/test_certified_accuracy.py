"""Certified accuracy with tightened layers: exact on a linear model in both norms; a wrong bound is seen."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import certified_accuracy
from margin.robust.certificates import certify
from margin.robust.certified_accuracy import (
    l1_sandwich,
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


@pytest.mark.parametrize("ask", [linf_certificate, l2_certificate])
@pytest.mark.parametrize(("options", "count"), [({}, 4), ({"ascents": 2}, 2), ({"ascents": 0}, 0)])
def test_moved_slopes_are_asked_of_four_examples_and_named(ask, options, count, monkeypatch):
    """A bound that proves all that it is asked stands in for them: its proofs are counted, and no others."""
    monkeypatch.setattr(certify, "alpha_crown_margins", lambda model, ball, *given, **work: torch.ones(1, 3))
    finding = ask(subject(), shares=(0.02, 0.1), limit=60, **options)
    (evidence,) = (premise.evidence for premise in finding.premises if "proofs" in premise.evidence)
    assert ("alpha-CROWN" in evidence) == (count > 0)
    assert count == 0 or f"alpha-CROWN: {count}" in evidence


def test_bounds_are_sound_and_a_wrong_one_is_seen(monkeypatch):
    assert sound(subject()).verdict is Verdict.HOLDS
    ask = certified_accuracy.crown_margins
    for shift in (0.5, -0.5):  # above the truth; below the interval bound
        monkeypatch.setattr(certified_accuracy, "crown_margins", lambda *a, shift=shift: ask(*a) + shift)
        assert sound(subject()).verdict is Verdict.VIOLATED


def table(rows=200):
    """A table of whole ages, real incomes, one of three cities and a member's mark, of a linear model."""
    generator = torch.Generator().manual_seed(0)
    age = torch.randint(18, 80, (rows, 1), generator=generator).float()
    income = 1 + 8 * torch.rand(rows, 1, generator=generator)
    city = torch.eye(3)[torch.randint(3, (rows,), generator=generator)]
    member = torch.randint(2, (rows, 1), generator=generator).float()
    encoding = {
        "format": "table",
        "columns": [
            {"name": "age", "kind": "number"},
            {"name": "income", "kind": "number"},
            {"name": "city", "kind": "category", "categories": ["rome", "paris", "oslo"]},
            {"name": "member", "kind": "boolean"},
        ],
    }
    model = nn.Linear(6, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * 6, [0.02, 0.3, 2.0, -2.0, 0.0, 0.8]]))
        model.bias.copy_(torch.tensor([0.0, -2.5]))
    x = torch.cat((age, income, city, member), 1)
    return Subject(
        model=model,
        test=(Batch((x,), model(x).argmax(1)),),
        task=CLASSES,
        objective=risk(CLASSES),
        domain=Domain(torch.tensor(0.0), torch.tensor(1000.0)),
        encoding=encoding,
    )


@pytest.mark.parametrize("claim", [linf_sandwich, l2_certificate, l1_sandwich])
def test_of_a_table_every_attacked_row_is_a_row_that_may_be(claim):
    subject, asked = table(), []
    x = subject.test[0].inputs[0]

    class Watching(nn.Module):
        def forward(self, y):
            if type(y) is torch.Tensor:  # not a bound on its way
                asked.append(y.detach().clone())
            return subject.model(y)

    found = claim(replace(subject, model=Watching()), shares=(0.0, 0.02, 0.1), limit=200)
    assert found.value[2] < found.value[1] < found.value[0] == 1
    assert any("each column's range" in remark for remark in found.remarks)
    assert found.labels[1].startswith("2% of each coordinate's range")
    rows = torch.cat([y for y in asked if y.shape[1:] == (6,)])
    free = rows[:, 1].unique().numel()
    assert free > 500  # incomes are moved
    whole = (rows[:, 0] == rows[:, 0].round()) & (rows[:, 5] == rows[:, 5].round())
    one = (rows[:, 2:5].sum(1) == 1) & ((rows[:, 2:5] == 0) | (rows[:, 2:5] == 1)).all(1)
    assert (whole & one).double().mean() > 0.9  # all but the corner at which bounds are checked
    low, high = x.amin(0), x.amax(0)
    assert ((rows >= low) & (rows <= high))[whole & one].all()


def test_of_a_table_a_share_is_of_each_columns_own_range():
    # At 2 % the city and the mark stand, the age of a range of 61 moves by a year, the income of 8 by .16: a
    # row of margin above .02 + .3 * .16 stands, one below falls.
    subject = table()
    x = subject.test[0].inputs[0]
    scores = subject.model(x)
    margin = (scores[:, 1] - scores[:, 0]).abs()
    spread = (x[:, 1].amax() - x[:, 1].amin()) * 0.02
    found = linf_sandwich(subject, shares=(0.0, 0.02), limit=200)
    years = ((x[:, 0].amax() - x[:, 0].amin()) * 0.02).floor()
    stands = margin > 0.02 * years + 0.3 * spread
    room = (x[:, 1] > x[:, 1].amin() + spread) & (x[:, 1] < x[:, 1].amax() - spread)
    assert stands[room].double().mean() < 1
    assert found.value[1].item() == pytest.approx(stands.double().mean().item(), abs=0.02)


def test_the_l1_sandwich_meets_in_the_closed_form_of_a_linear_model():
    # m > eps max |w_i| = 2 eps; the sum of the sides of the plane is 16.
    shares = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1)
    x, y = demo().test[0].inputs[0].double(), demo().test[0].targets
    margin = (2 * y - 1) * (2 * x[:, 0] - x[:, 1])
    expected = [(margin > share * 16 * 2).double().mean().item() for share in shares]
    assert len(set(expected)) >= 4
    found = l1_sandwich(demo(), shares=shares)
    assert found.value.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.low.tolist() == pytest.approx(expected, abs=1e-12)
    assert found.verdicts[1] is Verdict.HOLDS


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


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_the_bounds_of_one_layer_are_attained_and_loose_ones_are_seen(kind, monkeypatch):
    """Beside a brute force over all 64 corners of six inputs; a rule that is off by a thousandth fails."""
    torch.manual_seed(0)
    first = nn.Linear(6, 5) if kind == "dense" else nn.Conv1d(1, 2, 3, padding=1)
    middle = nn.Identity() if kind == "dense" else nn.Unflatten(1, (1, 6))
    model = nn.Sequential(middle, first, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    x = torch.randn(4, 6)
    model(x)
    one = replace(subject(), model=model, test=[Batch((x,), torch.zeros(4, dtype=torch.long))], train=())
    found = certified_accuracy.one_layer(one)
    assert found.verdict is Verdict.HOLDS and "first " + type(first).__name__ in found.statement
    layer, z = certified_accuracy._entered(one, 4)
    box = certified_accuracy.bounds(layer, z - 0.1, z + 0.1)
    corners = torch.cartesian_prod(*[torch.tensor([-0.1, 0.1], dtype=torch.float64)] * 6)
    values = torch.stack([layer(z + corner.view(z.shape[1:])) for corner in corners])
    assert torch.allclose(values.amin(0), box.low, atol=1e-12)
    assert torch.allclose(values.amax(0), box.high, atol=1e-12)
    real = certified_accuracy.bounds

    def loose(*given):
        made = real(*given)
        return made.like(made.low - 1e-3, made.high)

    monkeypatch.setattr(certified_accuracy, "bounds", loose)
    assert certified_accuracy.one_layer(one).verdict is Verdict.VIOLATED


def test_a_model_without_such_a_layer_is_not_asked():
    x = torch.rand(4, 3)
    one = replace(subject(), model=nn.Softplus(), test=[Batch((x,), torch.zeros(4, dtype=torch.long))])
    with pytest.raises(NotAsked, match="no dense or convolution layer was called"):
        certified_accuracy.one_layer(one)
