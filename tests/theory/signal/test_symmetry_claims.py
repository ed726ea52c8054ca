"""Re-labelling hidden units does nothing to a subject's outputs, and brings two networks nearer."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.feedforward.mlp.model import MLP
from margin.theory.signal import symmetry
from margin.theory.signal.symmetry_claims import (
    alignment,
    demo,
    has_alike_beside,
    has_hidden_units,
    permutation,
)
from margin.vision.convnets.lenet5 import LeNet5


def subject_of(model, x=None, beside=None):
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)) if x is None else x
    batch = Batch((x,), torch.arange(len(x)) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), beside=beside)


def test_the_demonstrations_are_as_planted():
    found = permutation(demo())
    assert found.verdict == Verdict.HOLDS
    assert found.labels == ("0: 8 units", "3: 6 units")
    assert f"10^{math.log10(math.factorial(8) * math.factorial(6)):.4g} settings" in found.statement
    found = alignment(demo())
    assert found.value.item() == 0
    assert found.verdict == Verdict.HOLDS


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_it_holds_for_networks_in_float32_and_in_training_mode(norm):
    torch.manual_seed(0)
    model = MLP(4, 3, hidden=(30, 20), norm=norm, dropout=0.5).train()
    assert permutation(subject_of(model)).verdict == Verdict.HOLDS


def test_it_holds_for_images():
    subject = subject_of(LeNet5(1, 10), torch.rand(5, 1, 8, 8))
    assert has_hidden_units(subject)
    found = permutation(subject)
    assert len(found.value) == 4
    assert found.verdict == Verdict.HOLDS


def test_a_permutation_on_one_side_only_is_a_violation(monkeypatch):
    whole = symmetry.slots
    monkeypatch.setattr(symmetry, "slots", lambda *args: [slot for slot in whole(*args) if slot.axis == 0])
    assert permutation(demo()).verdict == Verdict.VIOLATED


def test_outputs_that_are_no_numbers_fail():
    model = copy.deepcopy(demo().model)
    with torch.no_grad():
        model[5].bias[0] = math.nan
    finding = permutation(replace(demo(), model=model))
    assert finding.verdict == Verdict.FAILED
    assert finding.failure == "an output is not finite"


def test_two_trainings_come_nearer_and_the_same_weights_have_no_distance():
    torch.manual_seed(1)
    one, two = (MLP(4, 3, hidden=(30,)) for _ in range(2))
    finding = alignment(subject_of(one, beside=two))
    assert 0.5 < finding.value.item() < 0.98
    assert finding.verdict == Verdict.HOLDS
    same = alignment(subject_of(one, beside=copy.deepcopy(one)))
    assert same.verdict == Verdict.FAILED
    assert same.failure == "the two models have the same weights in the same order"


@pytest.mark.parametrize(
    ("model", "beside", "hidden", "alike"),
    [
        (MLP(4, 3), MLP(4, 3), True, True),
        (MLP(4, 3), None, True, False),
        (MLP(4, 3), MLP(4, 3, hidden=(64,)), True, False),
        (MLP(4, 3), nn.Linear(4, 3), True, False),
        (nn.Linear(4, 3), nn.Linear(4, 3), False, False),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(1), nn.Linear(4, 3)), None, False, False),
    ],
)
def test_they_are_asked_only_of_networks_with_hidden_units(model, beside, hidden, alike):
    subject = subject_of(model, beside=beside)
    assert has_hidden_units(subject) == hidden
    assert has_alike_beside(subject) == alike


def test_without_a_second_model_there_is_nothing_to_align():
    with pytest.raises(ValueError, match="a second model beside the first: got none"):
        alignment(subject_of(MLP(4, 3)))


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_weights_whose_distance_is_no_number_fail(value):
    for broken in ("model", "beside"):
        pair = {"model": copy.deepcopy(demo().model), "beside": copy.deepcopy(demo().model)}
        with torch.no_grad():
            pair[broken][0].weight[0, 0] = value
        found = alignment(replace(demo(), **pair))
        assert found.verdict == Verdict.FAILED
        assert found.failure == "a weight of one of the two models is not finite, or too large"


def test_another_activation_is_another_kind_of_model():
    torch.manual_seed(0)
    one, two = MLP(4, 3, hidden=(8,)), MLP(4, 3, hidden=(8,), activation="tanh")
    assert not has_alike_beside(subject_of(one, beside=two))
