"""Inequalities on held-out answers: hand cases, random cases, equality cases, and answers that are none."""

import math

import pytest
import torch
from sklearn.metrics import mutual_info_score

from margin.core.findings import NotAsked, Verdict
from margin.core.tasks import BINARY, HALFSPACE, VALUES
from margin.theory.prediction.held_out import stated
from margin.theory.prediction.risk import chebyshev, jensen, label_information
from margin.theory.prediction.risk import inequality_demo as demo


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def random_subject(seed, *, n=200, classes=4, weighted=True):
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=g, dtype=torch.float64) * 2
    weight = torch.randint(0, 4, (n,), generator=g).double() if weighted else None
    return stated(logits, torch.randint(0, classes, (n,), generator=g), weight)


def test_the_demonstration_is_as_computed_by_hand():
    # probabilities of the truth: 0.9 six times, 0.6, 0.4; true against predicted: [[4, 0], [1, 3]] / 8
    found = jensen(demo())
    assert float(found.value) == pytest.approx(0.8, abs=1e-15)
    assert float(found.low) == pytest.approx((0.9**6 * 0.6 * 0.4) ** (1 / 8), abs=1e-15)
    bits = label_information(demo())
    given_0 = -(0.8 * math.log2(0.8) + 0.2 * math.log2(0.2))
    assert float(bits.value) == pytest.approx(1 - 5 / 8 * given_0, abs=1e-15)
    assert float(bits.high) == pytest.approx(
        -(5 / 8 * math.log2(5 / 8) + 3 / 8 * math.log2(3 / 8)), abs=1e-15
    )
    losses = -f64([0.9] * 6 + [0.6, 0.4]).log()
    z = (losses - losses.mean()) / losses.std(correction=0)
    assert chebyshev(demo()).value.tolist() == [float((z.abs() >= k).double().mean()) for k in (2, 3, 5)]
    assert chebyshev(demo()).value.tolist() == [0.125, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_all_three_hold_for_random_answers_with_weights(seed):
    for ask in (chebyshev, jensen, label_information):
        assert ask(random_subject(seed)).verdict == Verdict.HOLDS


def test_a_weight_counts_an_example_that_often():
    weighted = random_subject(3)
    (batch,) = weighted.test
    times = batch.weight.long()
    copied = stated(batch.inputs[0].repeat_interleave(times, 0), batch.targets.repeat_interleave(times))
    for ask in (chebyshev, jensen, label_information):
        torch.testing.assert_close(ask(weighted).value, ask(copied).value)


def test_chebyshev_is_tight_for_losses_of_three_values():
    # losses 1, 25 and 49 with weights 1, 6 and 1: mean 25, deviation 12, and both ends at exactly 2 of it
    outputs, targets = f64([1.0, 5.0, 7.0]), torch.zeros(3, dtype=torch.float64)
    found = chebyshev(stated(outputs, targets, f64([1.0, 6.0, 1.0]), task=VALUES))
    assert found.value.tolist() == [0.25, 0, 0]
    assert found.high.tolist() == pytest.approx([1 / 4, 1 / 9, 1 / 25])
    assert found.verdict == Verdict.HOLDS
    # with more weight at the ends they lie nearer than 2 deviations
    assert chebyshev(stated(outputs, targets, f64([1.0, 5.0, 1.0]), task=VALUES)).value.tolist() == [0, 0, 0]


def test_losses_without_spread_are_not_asked_about_it():
    same = stated(torch.ones(5).double(), torch.zeros(5).double(), task=VALUES)
    with pytest.raises(NotAsked, match="the losses are all equal"):
        chebyshev(same)


def test_jensen_is_tight_where_every_example_is_given_the_same():
    logits = f64([[0.7, 0.3]]).log().expand(6, 2)
    found = jensen(stated(logits, torch.zeros(6).long()))
    assert float(found.value) == pytest.approx(0.7, abs=1e-15)
    assert float(found.low) == pytest.approx(0.7, abs=1e-15)
    assert found.verdict == Verdict.HOLDS
    assert float(jensen(demo()).value - jensen(demo()).low) > 0.02


def test_one_example_given_nothing_leaves_no_promise():
    logits = torch.stack((f64([0.0, -math.inf]), f64([0.0, 0.0])))
    found = jensen(stated(logits, torch.tensor([1, 0])))
    assert float(found.value) == 0.25
    assert float(found.low) == 0
    assert found.verdict == Verdict.VACUOUS


def test_the_probabilities_of_a_single_logit_are_read_as_such():
    z, labels = f64([2.0, -1.0, 0.5]), torch.tensor([1, 0, 0])
    found = jensen(stated(z, labels, task=BINARY))
    expected = (torch.tensor([2.0, 1.0, -0.5]).double().sigmoid()).mean()
    assert float(found.value) == pytest.approx(float(expected), abs=1e-15)


def test_label_information_is_scikit_learns_and_tight_for_a_permutation():
    subject = random_subject(0, weighted=False)
    (batch,) = subject.test
    predicted = batch.inputs[0].argmax(1)
    expected = mutual_info_score(batch.targets.numpy(), predicted.numpy()) / math.log(2)
    assert float(label_information(subject).value) == pytest.approx(expected, abs=1e-12)
    # a model that takes every class for the next is never right and tells everything
    labels = torch.arange(4).repeat(5)
    wrong = torch.eye(4, dtype=torch.float64)[(labels + 1) % 4]
    found = label_information(stated(wrong, labels))
    assert float(found.value) == pytest.approx(2, abs=1e-12)
    assert float(found.high) == pytest.approx(2, abs=1e-12)


def test_a_model_that_always_says_the_same_tells_nothing():
    labels = torch.tensor([0] * 9 + [1])
    found = label_information(stated(f64([[1.0, 0.0]]).expand(10, 2), labels))
    assert float(found.value) == 0
    assert float(found.high) == 0
    assert found.verdict == Verdict.HOLDS


def test_answers_that_are_no_numbers_fail():
    logits = torch.zeros(4, 2).double()
    logits[2, 0] = math.nan
    subject = stated(logits, torch.tensor([0, 1, 0, 1]))
    for ask in (chebyshev, jensen, label_information):
        found = ask(subject)
        assert found.verdict == Verdict.FAILED
        assert "not finite for 1 of 4 terms, the first of index 2" in found.failure
    nothing = stated(torch.zeros(2, 2).double(), torch.tensor([0, 1]), torch.zeros(2).double())
    for ask in (chebyshev, jensen, label_information):
        assert ask(nothing).failure == "no held-out example has a weight above 0"


def test_tasks_without_probabilities_or_classes_are_refused():
    scores = stated(f64([1.0, -1.0]), torch.tensor([1, 0]), task=HALFSPACE)
    with pytest.raises(ValueError, match="this needs a task with probabilities: got task 'halfspace'"):
        jensen(scores)
    values = stated(f64([1.0]), f64([1.0]), task=VALUES)
    with pytest.raises(ValueError, match="this needs a task with classes: got task 'values'"):
        label_information(values)
