"""Claims about attacks: they hold on linear models, a broken premise is refuted, a broken formula is seen."""

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import BINARY, CLASSES
from margin.core.types import Batch, Domain
from margin.engine.loop import risk
from margin.robust import attack_claims
from margin.robust.attack_claims import fgsm_optimal, linear_exact, one_step, projection_laws
from margin.robust.attacks.apgd import apgd
from margin.robust.attacks.carlini import Descent, carlini_wagner
from margin.robust.attacks.ensemble import Budget, ensemble
from margin.robust.attacks.gradient import fgsm, margin_loss, pgd
from margin.robust.attacks.minimal import boundary_attack, deepfool
from margin.robust.attacks.square import square
from margin.robust.attacks.threat_models import Threat

BOX = Domain(torch.tensor(-1.0), torch.tensor(1.0))


def subject(model, *, task=CLASSES, count=50, features=10):
    x = 0.9 * (2 * torch.rand(count, features, generator=torch.Generator().manual_seed(1)) - 1)
    with torch.no_grad():
        y = task.classes(model(x)).argmax(1)
    return Subject(model=model, test=(Batch((x,), y),), task=task, objective=risk(task), domain=BOX)


def linear(classes=3):
    torch.manual_seed(0)
    return nn.Linear(10, classes)


def bent():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 2))


class Logit(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = linear(1)

    def forward(self, x):
        return self.linear(x)[:, 0]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_linear_model_is_attacked_exactly_in_all_norms(classes):
    found = linear_exact(subject(linear(classes)))
    assert found.verdict is Verdict.HOLDS and found.labels == ("linf", "l2", "l1")
    assert (found.value > 0.2).all() and (found.value < 0.8).all()


def test_a_wrong_distance_is_violated_and_a_bent_model_is_unfounded(monkeypatch):
    assert linear_exact(subject(bent())).verdict is Verdict.UNFOUNDED
    true = attack_claims._distances
    monkeypatch.setattr(attack_claims, "_distances", lambda *given: 1.3 * true(*given))
    assert linear_exact(subject(linear())).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("made", [(linear(2), CLASSES), (Logit(), BINARY)], ids=["two scores", "one logit"])
def test_one_signed_step_is_the_worst_of_logistic_regression(made):
    model, task = made
    found = fgsm_optimal(subject(model, task=task), share=0.2)
    assert found.verdict is Verdict.HOLDS and found.value < 1e-5
    assert (subject(model, task=task).test[0].inputs[0].abs() > 0.6).any()  # the domain cuts some steps


def test_the_worst_loss_is_refused_for_more_classes_and_for_a_bent_model(monkeypatch):
    assert fgsm_optimal(subject(bent())).verdict is Verdict.UNFOUNDED
    assert fgsm_optimal(subject(linear(2))).verdict is Verdict.HOLDS
    monkeypatch.setattr(attack_claims, "fgsm", lambda model, batch, loss, threat: batch.inputs[0])
    assert fgsm_optimal(subject(linear(2))).verdict is Verdict.VIOLATED
    monkeypatch.undo()
    three = fgsm_optimal(subject(linear(3)))
    assert three.verdict is Verdict.UNFOUNDED
    assert any("two classes" in p.text and p.status == "refuted" for p in three.premises)


def test_one_step_is_one_step_in_every_norm_and_for_any_model(monkeypatch):
    found = one_step(subject(bent()), share=0.1)
    assert found.verdict is Verdict.HOLDS and (found.value == 0).all()
    monkeypatch.setattr(attack_claims, "fgsm", lambda model, batch, loss, threat: batch.inputs[0])
    assert one_step(subject(bent()), share=0.1).verdict is Verdict.VIOLATED


def test_projections_obey_their_laws_and_a_wrong_one_is_seen(monkeypatch):
    found = projection_laws(subject(bent()))
    assert found.verdict is Verdict.HOLDS and len(found.labels) == 6
    scaled = lambda v, radius: v / v.abs().sum(1, keepdim=True) * radius[:, None]
    monkeypatch.setattr(attack_claims, "project_l1", scaled)
    assert projection_laws(subject(bent())).verdict is Verdict.VIOLATED


def test_bad_options_are_refused():
    for ask in (linear_exact, fgsm_optimal, one_step):
        with pytest.raises(ValueError, match="a limit of at least 1"):
            ask(subject(linear(2)), limit=0)
    with pytest.raises(ValueError, match="points of at least 1"):
        projection_laws(subject(linear(2)), points=0)


SHORT = Budget(steps=3, boundary=2, targets=1, queries=3)
ATTACKS = {
    "fgsm": lambda m, b, t, g: fgsm(m, b, margin_loss(CLASSES), t),
    "pgd": lambda m, b, t, g: pgd(m, b, margin_loss(CLASSES), t, g).inputs,
    "apgd": lambda m, b, t, g: apgd(m, b, margin_loss(CLASSES), t, g, steps=3).inputs,
    "square": lambda m, b, t, g: square(m, b, margin_loss(CLASSES), t, g, queries=3).inputs,
    "deepfool": lambda m, b, t, g: deepfool(m, b, CLASSES, t).inputs,
    "boundary": lambda m, b, t, g: boundary_attack(m, b, CLASSES, t, steps=3).inputs,
    "carlini": lambda m, b, t, g: (
        carlini_wagner(m, b, CLASSES, t, descent=Descent(steps=60, searches=3, lr=0.02, constant=1.0)).inputs
    ),
    "ensemble": lambda m, b, t, g: ensemble(m, b, CLASSES, t, g, budget=SHORT).inputs,
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_epsilon_0_returns_the_bits_and_the_modes_and_buffers_of_the_model_stay(name, norm):
    if name == "carlini" and norm != "l2":
        return  # it has one norm
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 3))
    model[2].eval()
    flags = [m.training for m in model.modules()]
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.rand(20, 10, generator=torch.Generator().manual_seed(2)) * 1.7 - 0.85
    x[0, 0] = -0.0
    batch = Batch((x.clone(),), torch.arange(20) % 3)
    for eps in (0.0, 0.2):
        y = ATTACKS[name](model, batch, Threat(BOX, eps, norm), torch.Generator().manual_seed(0))
        assert [m.training for m in model.modules()] == flags
        assert all(torch.equal(kept[k], v) for k, v in model.state_dict().items())
        assert torch.equal(batch.inputs[0], x)
        if eps == 0:
            assert torch.equal(y.view(torch.int32), x.view(torch.int32))
        else:
            assert not torch.equal(y, x) and Threat(BOX, eps, norm).size(y, x).max() <= eps * (1 + 1e-6)
