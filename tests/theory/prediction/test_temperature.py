"""Temperature scaling against scikit-learn's, hand cases, and logits that were made too sharp."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import Generator, nn

from margin.auditing.subject.outputs import PROBABILITIES
from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import BINARY
from margin.theory.prediction.calibration import expected_calibration_error
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.temperature import (
    Scored,
    best_temperature,
    demo,
    in_halves,
    temperature,
    temperature_limits,
)


def drawn(n, sharper=1.0, classes=3, seed=0):
    """Scores whose labels are drawn from their softmax, then multiplied."""
    g = Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, classes, generator=g).double()
    labels = torch.multinomial(scores.softmax(-1), 1, generator=g).squeeze(-1)
    return sharper * scores, labels


def scored(scores, labels, weight=None):
    weight = torch.ones(len(labels)).double() if weight is None else weight
    return Scored(scores, labels, weight, torch.arange(len(labels)))


def test_the_temperature_is_scikit_learns():
    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(C=100.0, max_iter=100).fit(X[:300] / 16, y[:300])
    fitted = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(
        X[300:900] / 16, y[300:900]
    )
    (calibrated,) = fitted.calibrated_classifiers_
    logits = torch.tensor(model.decision_function(X[300:900] / 16))
    found = temperature(stated(logits, torch.tensor(y[300:900])))
    assert found.value[0].item() == pytest.approx(1 / calibrated.calibrators[0].beta_, rel=1e-3)
    assert found.value[0].item() > 1.2


def test_a_hand_case_and_what_is_stated():
    found = temperature(demo())
    assert found.value[0].item() == pytest.approx(2, rel=1e-8)
    assert found.labels == ("temperature", "NLL gained", "ECE before", "ECE after")
    p = torch.tensor([0.81 / 0.82] * 60 + [0.36 / 0.52] * 60).double()  # of doubled logits
    happened = torch.tensor([1.0] * 54 + [0] * 6 + [1.0] * 36 + [0] * 24).double()
    assert found.value[2].item() == pytest.approx(expected_calibration_error(p, happened).item())
    assert found.verdict is Verdict.MEASURED
    ends = [e for pair in (found.printed, found.interval) for e in pair]
    assert all(0 < float(end[0]) < math.inf and 0 <= float(end[2]) <= 1 for end in ends)
    assert found.printed[0][3].item() > 0 and found.shown[0][3].item() == 0  # no -1e-17 by rounding


@pytest.mark.parametrize("sharper", [0.4, 1.0, 3.0])
def test_logits_made_too_sharp_or_too_flat_are_repaired(sharper):
    scores, labels = drawn(2000, sharper)
    found = temperature(stated(scores, labels))
    low, high = (end.tolist() for end in found.printed)
    assert low[0] <= sharper <= high[0] and high[0] / low[0] < 1.25
    if sharper == 1:
        assert abs(found.value[1].item()) < 2e-3
    else:
        assert low[1] > 0.01 and high[3] < low[2]  # log loss gained, and the calibration error is lower


def test_a_temperature_does_not_gain_on_the_examples_that_chose_it():
    # Calibrated scores: on the judged examples themselves a fit always gains, out of sample it loses.
    gains = [temperature(stated(*drawn(40, seed=k)), resamples=2).value[1].item() for k in range(30)]
    assert min(gains) < 0 and np.mean(gains) < 0


@pytest.mark.parametrize("n", [10, 30, 300])
def test_the_limits_of_a_temperature_cover_it(n):
    # 150 samples: more than 19 misses of an interval of 95 % have probability 6e-5.
    missed = 0
    for k in range(150):
        sample = scored(*drawn(n, 1.5, seed=1000 * n + k))
        ends = temperature_limits(sample, best_temperature(sample), 0.95)
        missed += not ends.low <= 1.5 <= ends.high
        assert 0 <= ends.low <= ends.value <= ends.high
    assert missed <= 19


def test_the_limits_are_where_the_likelihood_ratio_says():
    scores, labels = drawn(400, 2.0)
    sample = scored(scores, labels)

    def loss(beta):
        return -log_softmax(beta * scores.numpy(), 1)[np.arange(400), labels.numpy()].sum()

    least = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-10})
    T = best_temperature(sample)
    assert pytest.approx(1 / least.x, rel=1e-5) == T
    ends = temperature_limits(sample, T, 0.95)
    rises = [2 * (loss(1 / end) - least.fun) for end in ends[1:]]
    assert rises[0] == pytest.approx(rises[1], rel=1e-3)
    assert 1.9659**2 - 1e-3 < rises[0] < 1.2 * 1.9659**2  # t of 399 degrees, times max(1, J / I)


def test_weights_and_terms_of_one_example():
    scores, labels = drawn(60, 2.0)
    twice = scored(scores, labels, torch.where(torch.arange(60) < 20, 2.0, 1.0).double())
    copied = torch.cat((torch.arange(60), torch.arange(20)))
    assert best_temperature(twice) == pytest.approx(best_temperature(scored(scores[copied], labels[copied])))
    pairs = scored(scores, labels)._replace(example=torch.arange(60) // 2)
    first, second = in_halves(pairs, scores.argmax(-1) == labels)
    assert not set((first // 2).tolist()) & set((second // 2).tolist())
    assert len(first) + len(second) == 60 and abs(len(first) - len(second)) <= 2


def test_terms_of_an_example_count_as_often_as_they_are_independent():
    """400 draws limit T as well as 50 examples of 8 of them; 50 examples of 8 copies, as 50 draws do."""
    scores, labels = drawn(400, 2.0)
    single, places = scored(scores, labels), scored(scores, labels)._replace(example=torch.arange(400) // 8)
    T = best_temperature(single)
    whole, grouped = (temperature_limits(each, T, 0.95) for each in (single, places))
    assert 0.8 < (grouped.high - grouped.low) / (whole.high - whole.low) < 1.3
    some = scored(scores[:50], labels[:50])
    copied = scored(scores[:50].repeat_interleave(8, 0), labels[:50].repeat_interleave(8))
    copied = copied._replace(example=torch.arange(400) // 8)
    few, same = (temperature_limits(each, best_temperature(some), 0.95) for each in (some, copied))
    assert 0.8 < (same.high - same.low) / (few.high - few.low) <= 1.01


def test_probabilities_and_one_logit_have_the_same_temperature():
    scores, labels = drawn(200, 2.0)
    found = temperature(stated(scores, labels)).value
    given = temperature(stated(scores.softmax(-1), labels, task=PROBABILITIES)).value
    assert given.tolist() == pytest.approx(found.tolist(), rel=1e-6)
    two, of_two = drawn(200, 2.0, classes=2)
    single = temperature(stated(two[:, 1] - two[:, 0], of_two, task=BINARY)).value
    assert single.tolist() == pytest.approx(temperature(stated(two, of_two)).value.tolist(), rel=1e-6)


def test_what_no_temperature_can_repair_is_said():
    labels = torch.arange(30) % 3
    right = 3 * nn.functional.one_hot(labels, 3).double()
    with pytest.raises(NotAsked, match="two examples with a mistake"):
        temperature(stated(right, labels))
    backwards = temperature(stated(-right, labels))  # sure of what is never so: the flatter the better
    assert backwards.value[0].item() == pytest.approx(20) and math.isinf(backwards.printed[1][0].item())
    never = stated(torch.tensor([[1.0, 0.0]] * 4).double(), torch.tensor([1, 0, 1, 0]), task=PROBABILITIES)
    with pytest.raises(NotAsked, match="probability 0 in 2"):
        temperature(never)
    broken = right.clone()
    broken[2] = math.nan
    assert temperature(stated(broken, labels)).verdict is Verdict.FAILED
    odd = dataclasses.replace(PROBABILITIES, probabilities=lambda p: p)
    assert temperature(stated(right, labels, task=odd)).verdict is Verdict.UNFOUNDED
