"""Memorization: Newcombe's published gap, a network that has stored random labels, and R2 of both parts."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import r2_score
from torch import nn

from margin.core.catalog import claims
from margin.core.findings import NotAsked, Subject, Verdict
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.prediction.held_out import losses_of, stated
from margin.theory.prediction.memorization import accuracy, demo, training_part, values_demo
from margin.theory.prediction.risk import gap


def test_the_gap_of_two_accuracies_has_the_published_interval():
    found = accuracy(demo())
    assert found.value.tolist() == pytest.approx([0.8, 0.6, 0.2])
    low, high = found.printed
    assert (low[2].item(), high[2].item()) == pytest.approx((0.0524, 0.3339), abs=5e-5)  # Newcombe 1998
    for k, (right, n) in enumerate(((56, 70), (48, 80))):
        exact = binomtest(right, n).proportion_ci(method="exact")
        assert (low[k].item(), high[k].item()) == pytest.approx((exact.low, exact.high), abs=1e-10)
    assert found.labels == ("training", "held-out", "gap") and found.verdict is Verdict.MEASURED


class Storing(nn.Module):
    """The nearest stored example's label: it has learned by heart whatever it was given."""

    def __init__(self, x, y):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("y", y)
        self.rows = [0]

    def forward(self, x):
        self.rows[0] += len(x)
        return nn.functional.one_hot(self.y[torch.cdist(x, self.x).argmin(1)], 2).to(x.dtype)


def storing(n, signal, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * n, 2, generator=g)
    y = (x[:, 0] > 0).long() if signal else torch.randint(2, (2 * n,), generator=g)
    batches = [Batch((x[:n],), y[:n]), Batch((x[n:],), y[n:])]
    model = Storing(x[:n], y[:n])
    return Subject(model=model, train=batches[:1], test=batches[1:], task=CLASSES, objective=risk(CLASSES))


def test_stored_random_labels_show_and_learned_ones_do_not():
    by_heart, learned = accuracy(storing(200, signal=False)), accuracy(storing(200, signal=True))
    assert by_heart.value[0].item() == 1 and by_heart.printed[0][2].item() > 0.3
    assert learned.value[0].item() == 1 and learned.printed[1][2].item() < 0.12
    small = accuracy(storing(2, signal=False)).printed
    assert all(-1 <= end <= 1 for ends in small for end in ends.tolist())


def test_the_training_part_runs_once_and_is_drawn_where_it_is_large():
    subject = storing(60, signal=True)
    accuracy(subject)
    accuracy(subject)
    assert subject.model.rows == [120]
    losses_of(subject, "train")  # as the generalization gap needs
    assert subject.model.rows == [120]
    few = dataclasses.replace(subject, most_answered=20)
    assert accuracy(few).sample == "20 training examples drawn"
    assert sum(len(b.inputs[0]) for b in training_part(few).test) == 20
    assert accuracy(subject).sample == ""


@pytest.mark.parametrize("first", [accuracy, gap])
@pytest.mark.parametrize("second", [accuracy, gap])
def test_one_draw_of_training_examples_whichever_claim_asks_first(first, second):
    """Asked alone, before or after another: the same finding, and 7 training and 60 held-out rows in all."""

    def few():
        return dataclasses.replace(storing(60, signal=True), most_answered=7)

    alone, both = few(), few()
    first(both)
    found, expected = second(both), second(alone)
    assert alone.model.rows == both.model.rows == [67]
    assert torch.equal(found.value, expected.value)
    assert all(map(torch.equal, found.printed, expected.printed))
    assert (found.sample, found.statement) == (expected.sample, expected.statement)
    assert "7 " in found.sample and "training examples drawn" in found.sample


def test_outputs_too_large_to_be_kept_are_computed_anew(monkeypatch):
    """Mutant: outputs that were not kept are taken from what is."""
    monkeypatch.setattr("margin.theory.prediction.held_out.KEPT", 100)
    assert accuracy(storing(60, signal=True)).value[0].item() == 1


def test_of_values_the_gap_is_that_of_r2():
    found = accuracy(values_demo())
    y = np.arange(10.0)
    expected = [r2_score(y, y + np.eye(10)[0]), r2_score(y, y + 2)]
    assert found.value.tolist() == pytest.approx([*expected, expected[0] - expected[1]])
    low, high = (ends.tolist() for ends in found.printed)
    v = found.value.tolist()
    assert low[2] == pytest.approx(v[2] - math.hypot(v[0] - low[0], high[1] - v[1]))
    assert high[2] == pytest.approx(v[2] + math.hypot(high[0] - v[0], v[1] - low[1]))
    assert max(high[:2]) <= 1
    with pytest.raises(NotAsked, match="constant"):
        accuracy(dataclasses.replace(values_demo(), test=stated(y := torch.ones(5).double(), y).test))


@pytest.mark.parametrize("broken", ["train", "test"])
def test_an_answer_that_is_not_finite_fails_and_names_the_part(broken):
    subject = demo()
    (batch,) = getattr(subject, broken)
    bad = batch.inputs[0].clone()
    bad[4] = math.nan
    found = accuracy(dataclasses.replace(subject, **{broken: [batch._replace(inputs=(bad,))]}))
    assert found.verdict is Verdict.FAILED and "index 4" in found.failure
    assert ("training" in found.failure) == (broken == "train")


def test_it_needs_the_training_examples():
    claim = claims()["theory/memorization.accuracy"]
    assert claim.refusal(dataclasses.replace(demo(), train=())) == "needs the training examples"
    assert claim.refusal(values_demo()) == "" and claim.question == "memorized"
    assert VALUES.classes is None
