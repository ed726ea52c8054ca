"""What the claims about predictions run of a model: its outputs once and its losses once, for all of them."""

from dataclasses import replace

import torch
from torch import nn

from margin.auditing.asking.answers import ask
from margin.core import catalog
from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.prediction.calibration import has_two_classes
from margin.theory.prediction.held_out import held_out_answers, held_out_losses
from margin.theory.prediction.risk import accuracy

PREDICTION = ("risk.accuracy", "risk.loss", "confusion", "ranking", "calibration", "margins")


class Counting(nn.Module):
    """A linear model that counts the rows of its forward in a list, which is no buffer."""

    def __init__(self):
        super().__init__()
        self.linear, self.rows = nn.Linear(4, 3), [0]

    def forward(self, x):
        self.rows[0] += len(x)
        return self.linear(x)


def subject_of():
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    y = torch.arange(60) % 3
    batches = [Batch((a,), b) for a, b in zip(x.split(25), y.split(25), strict=True)]
    return Subject(model=Counting(), test=batches, task=CLASSES, objective=risk(CLASSES))


def test_prediction_claims_together_run_each_example_twice():
    subject = subject_of()
    names = [n for n in catalog.claims() if n.removeprefix("theory/").startswith(PREDICTION)]
    asked = [catalog.claims()[n] for n in names if n.startswith("theory/")]
    for claim in asked:
        claim.refusal(subject)
    assert subject.model.rows == [1]  # which of them apply is told by one example
    found = {}
    for claim in asked:
        if not claim.refusal(subject):
            found[claim.name] = catalog.resolve(claim.ask)(subject)
    assert {"theory/risk.accuracy", "theory/risk.loss", "theory/calibration.ece"} <= found.keys()
    assert len(found) >= 9
    assert subject.model.rows[0] <= 1 + 2 * 60
    # The same as a subject that has kept nothing.
    fresh = accuracy(replace(subject))
    assert torch.equal(fresh.value, found["theory/risk.accuracy"].value)


def test_an_audit_keeps_nothing_and_a_change_of_the_model_is_seen():
    subject = subject_of()
    before = held_out_answers(subject).outputs
    assert held_out_answers(subject).outputs is before
    losses = held_out_losses(subject).values
    with torch.no_grad():
        subject.model.linear.weight.mul_(2)
    assert not torch.equal(held_out_answers(subject).outputs, before)
    assert not torch.equal(held_out_losses(subject).values, losses)
    assert replace(subject, test=subject.test[:1]).kept == {}
    assert not has_two_classes(subject)
    ask(subject, [catalog.claims()["theory/risk.accuracy"]])
    assert subject.kept == {}


def test_what_is_kept_of_all_passes_together_is_bounded(monkeypatch):
    """60 examples of 3 logits, a label, an example: their losses are kept beside them, and nothing more."""
    outputs, losses = 60 * (3 * 4 + 8 + 8) + 8, 60 * 8  # a weight of 1 for all, and of the losses the values
    for bound, again in ((outputs, 1), (outputs + losses - 1, 1), (outputs + losses, 0)):
        monkeypatch.setattr("margin.theory.prediction.held_out.KEPT", bound)
        subject = subject_of()
        answers, first = held_out_answers(subject), held_out_losses(subject)
        assert held_out_answers(subject).outputs is answers.outputs
        assert (held_out_losses(subject).values is not first.values) == again
        assert subject.model.rows == [60]
    monkeypatch.setattr("margin.theory.prediction.held_out.KEPT", outputs - 1)
    subject = subject_of()
    assert held_out_answers(subject).outputs is not held_out_answers(subject).outputs


def test_weights_that_are_all_1_are_one_number():
    whole, uneven = subject_of(), subject_of()
    weight = torch.tensor([1.0, 2.0] * 30).double()
    uneven = replace(
        uneven,
        test=[Batch(b.inputs, b.targets, w) for b, w in zip(uneven.test, weight.split(25), strict=True)],
    )
    assert held_out_answers(whole).weight.untyped_storage().nbytes() == 8
    assert held_out_answers(whole).weight.tolist() == [1.0] * 60
    assert held_out_answers(uneven).weight.equal(weight)
