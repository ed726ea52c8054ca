"""Baselines: hand cases, scikit-learn's R2, and models that are worse than a constant."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import nn

from margin.core.catalog import claims
from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import BINARY, CODES, VALUES
from margin.core.types import Batch
from margin.theory.prediction.baselines import constant, constant_demo, values_demo
from margin.theory.prediction.differences import paired_difference
from margin.theory.prediction.held_out import stated


def predicting(predicted, labels, train_labels=None, classes=3, weight=None):
    subject = stated(nn.functional.one_hot(predicted, classes).double(), labels, weight)
    if train_labels is None:
        return subject
    train = Batch((torch.zeros(len(train_labels), classes).double(),), train_labels)
    return dataclasses.replace(subject, train=[train])


LABELS = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)


def test_accuracy_is_compared_with_the_training_parts_commonest_class():
    predicted = LABELS.clone()
    predicted[40:60] = 2  # right on 40 of 0, 20 of 1 and 20 of 2
    found = constant(predicting(predicted, LABELS, torch.tensor([1, 1, 0])))
    assert found.value.item() == pytest.approx(0.8 - 0.3)
    # against 30 of class 1, of which the model has 20: ahead on 60, behind on 10
    assert [end.item() for end in found.printed] == pytest.approx(paired_difference(0.6, 0.1, 100)[1:])
    assert found.verdict is Verdict.HOLDS and found.sample == ""
    assert "80.0% less 30.0%" in found.statement and "'class 1'" in found.statement
    own = constant(predicting(predicted, LABELS))
    assert own.value.item() == pytest.approx(0.8 - 0.5)  # of the held-out part itself, class 0 is commonest
    assert own.sample == "the constant is the held-out part's own"


def test_the_training_parts_weights_count():
    subject = predicting(LABELS, LABELS, torch.tensor([0, 1, 1]))
    (train,) = subject.train
    weighted = dataclasses.replace(subject, train=[train._replace(weight=torch.tensor([3.0, 1.0, 1.0]))])
    assert constant(subject).value.item() == pytest.approx(1 - 0.3)
    assert constant(weighted).value.item() == pytest.approx(1 - 0.5)


@pytest.mark.parametrize(
    ("predicted", "verdict"),
    [
        (LABELS, Verdict.HOLDS),
        ((LABELS + 1) % 3, Verdict.VIOLATED),  # labels in another order
        (torch.zeros_like(LABELS), Verdict.INCONCLUSIVE),  # the constant itself
        (torch.arange(100) % 3, Verdict.INCONCLUSIVE),  # untrained
    ],
)
def test_a_model_that_learned_other_labels_violates_it(predicted, verdict):
    assert constant(predicting(predicted, LABELS, LABELS)).verdict is verdict


def test_one_logit_and_an_answer_that_is_not_finite():
    labels = torch.tensor([0, 1] * 20)
    right = constant(stated(labels.double() - 0.5, labels, task=BINARY))
    assert right.value.item() == pytest.approx(0.5)
    logits = nn.functional.one_hot(labels, 2).double()
    logits[3] = math.nan
    found = constant(stated(logits, labels))
    assert found.verdict is Verdict.FAILED and "index 3" in found.failure


def test_the_gain_over_the_mean_is_r2_where_both_parts_have_one_mean():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(60, 2)) * [1.0, 5.0] + [0.0, 3.0]
    f = y + rng.normal(size=(60, 2)) * [0.5, 2.0]
    subject = stated(torch.tensor(f), torch.tensor(y), task=VALUES)
    found = constant(dataclasses.replace(subject, train=subject.test))
    assert found.value.item() == pytest.approx(r2_score(y, f, multioutput="variance_weighted"))
    assert found.verdict is Verdict.HOLDS
    single = stated(torch.tensor(f[:, 0]), torch.tensor(y[:, 0]), task=VALUES)
    assert constant(single).value.item() == pytest.approx(r2_score(y[:, 0], f[:, 0]))
    shifted = dataclasses.replace(single, train=[Batch((torch.zeros(2).double(),), torch.tensor([1.0, 4.0]))])
    other = 1 - ((y[:, 0] - f[:, 0]) ** 2).sum() / ((y[:, 0] - 2.5) ** 2).sum()
    assert constant(shifted).value.item() == pytest.approx(other)


def test_values_of_the_wrong_sign_violate_it_and_the_mean_itself_does_not():
    y = torch.linspace(-1, 1, 50).double() ** 3
    wrong = stated(-3 * y, y, task=VALUES)
    assert constant(dataclasses.replace(wrong, train=wrong.test)).verdict is Verdict.VIOLATED
    mean = stated(torch.full_like(y, float(y.mean())), y, task=VALUES)
    assert constant(mean).verdict is not Verdict.VIOLATED
    assert constant(mean).value.item() == pytest.approx(0, abs=1e-12)
    assert constant(stated(y, y, task=VALUES)).value.item() == 1  # nothing is left
    with pytest.raises(NotAsked, match="makes no error"):
        constant(stated(y, torch.ones_like(y), task=VALUES))
    assert constant(stated(y / 0, y, task=VALUES)).verdict is Verdict.FAILED


def test_the_interval_of_the_gain_covers_it():
    # Errors of variance 1/4 of targets about .3 that vary by 1: 1 - .25 / 1.09. Of 500 samples the interval
    # misses 9 % at n = 10, 6 % at 30 and 5 % at 300; more have probability 1e-4 or less.
    rng = np.random.default_rng(1998)
    for n, most in ((10, 75), (30, 52), (300, 46)):
        missed = 0
        for _ in range(500):
            y = torch.tensor(rng.normal(size=n))
            subject = stated(y + 0.5 * torch.tensor(rng.normal(size=n)), y, task=VALUES)
            train = Batch((torch.zeros(1).double(),), torch.tensor([0.3]).double())
            low, high = constant(dataclasses.replace(subject, train=[train])).printed
            missed += not float(low) <= 1 - 0.25 / 1.09 <= float(high) <= 1
        assert missed <= most


def test_it_is_asked_of_classes_and_values_alone():
    claim = claims()["theory/baseline.constant"]
    assert claim.refusal(constant_demo()) == claim.refusal(values_demo()) == ""
    codes = dataclasses.replace(constant_demo(), task=CODES)
    assert "class labels, or predictions of real values" in claim.refusal(codes)
    assert claim.question == "right" and not claim.by_name
