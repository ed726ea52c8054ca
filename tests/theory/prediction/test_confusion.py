"""Confusion, recall, precision, balanced accuracy and F1 against scikit-learn, hand cases and simulation."""

import math

import pytest
import torch
from sklearn import metrics
from torch import Generator

from margin.core.findings import Verdict
from margin.core.tasks import HALFSPACE
from margin.theory.prediction.confusion import (
    Classified,
    balanced,
    balanced_accuracy,
    confusion_matrix,
    f1,
    macro_f1,
    precision,
    recall,
)
from margin.theory.prediction.held_out import stated, wilson

CLAIMS = [recall, precision, balanced, f1]


def drawn(seed, n=200, classes=4, unequal=False):
    generator = Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    scores = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    scores[torch.arange(n), labels] += 1
    weight = torch.rand(n, generator=generator) + 0.1 if unequal else None
    return scores, labels, weight


def answers(predicted, classes):
    return torch.nn.functional.one_hot(torch.tensor(predicted), classes).double()


@pytest.mark.parametrize("unequal", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_scikit_learns(seed, unequal):
    scores, labels, weight = drawn(seed, unequal=unequal)
    subject = stated(scores, labels, weight)
    y, p = labels.numpy(), scores.argmax(1).numpy()
    given = {"sample_weight": None if weight is None else weight.double().numpy()}
    matrix = metrics.confusion_matrix(y, p, **given)
    found = recall(subject)
    assert found.curves["confusion"].numpy() == pytest.approx(matrix, abs=1e-12)
    expected = metrics.recall_score(y, p, average=None, **given)
    assert found.value.numpy() == pytest.approx(expected, abs=1e-12)
    expected = metrics.precision_score(y, p, average=None, **given)
    assert precision(subject).value.numpy() == pytest.approx(expected, abs=1e-12)
    expected = metrics.balanced_accuracy_score(y, p, **given)
    assert balanced(subject).value.item() == pytest.approx(expected, abs=1e-12)
    expected = metrics.f1_score(y, p, average="macro", **given)
    assert f1(subject).value.item() == pytest.approx(expected, abs=1e-12)


def test_rows_are_true_and_columns_predicted():
    found = confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]), 2)
    assert found.tolist() == [[0, 2], [1, 0]]


def test_each_cells_limits_are_those_of_its_share_of_the_row():
    labels = torch.tensor([0] * 10 + [1] * 5)
    predicted = [0] * 8 + [1] * 2 + [1] * 5
    curves = recall(stated(answers(predicted, 3), labels)).curves
    for (i, j), (share, n) in {(0, 0): (0.8, 10), (0, 1): (0.2, 10), (1, 1): (1, 5), (1, 0): (0, 5)}.items():
        ends = (float(curves["row share low"][i, j]), float(curves["row share high"][i, j]))
        assert ends == pytest.approx(wilson(share, n), abs=1e-12)
    assert curves["row share"][2].isnan().all()  # no example of class 2
    assert curves["row share low"][2].isnan().all()


def test_a_class_that_is_absent_is_left_out_and_named():
    labels = torch.tensor([0, 0, 1, 1])
    found = recall(stated(answers([0, 1, 1, 1], 3), labels))
    assert found.labels == ("class 0", "class 1")
    assert "without a held-out example: class 2" in found.statement
    assert found.verdict == Verdict.MEASURED
    found = precision(stated(answers([1, 1, 1, 2], 3), labels))
    assert found.labels == ("class 1", "class 2")
    assert found.value.tolist() == pytest.approx([1 / 3, 0])
    assert "never predicted: class 0" in found.statement


def test_a_class_that_is_only_predicted_scores_0_and_one_that_is_neither_does_not_count():
    labels, predicted = torch.tensor([0, 0, 0, 0]), [0, 0, 1, 1]
    value = f1(stated(answers(predicted, 3), labels)).value.item()
    assert value == pytest.approx((2 / 3 + 0) / 2)
    assert value == pytest.approx(metrics.f1_score(labels, predicted, average="macro"), abs=1e-12)
    assert balanced(stated(answers(predicted, 3), labels)).value.item() == pytest.approx(0.5)


@pytest.mark.parametrize(("wrong", "value"), [(0, 1.0), (1, 0.0)])
def test_all_right_and_all_wrong_leave_room(wrong, value):
    labels = torch.arange(20) % 2
    subject = stated(answers(((labels + wrong) % 2).tolist(), 2), labels)
    for claim in (balanced, f1):
        found = claim(subject)
        low, high = (float(end) for end in found.interval)
        assert found.value.item() == value
        assert low <= value <= high
        assert 0.1 < high - low < 0.5
    # Ten a class, z^2 / 4 successes and failures added to each: two independent shares of one variance.
    z2 = 1.959963984540054**2
    share = (10 * value + z2 / 4) / (10 + z2 / 2)
    half = math.sqrt(z2 * share * (1 - share) / (10 + z2 / 2) / 2)
    ends = [max(share - half, 0.0), min(share + half, 1.0)]
    assert [float(end) for end in balanced(subject).interval] == pytest.approx(ends, abs=1e-12)


def test_terms_of_one_example_are_one_draw():
    scores, labels, _ = drawn(3, n=60)
    once = stated(scores, labels)
    often = stated(scores[:, None].expand(-1, 7, -1).contiguous(), labels[:, None].expand(-1, 7).contiguous())
    for claim in CLAIMS:
        a, b = claim(once), claim(often)
        for one, other in zip((a.value, *a.interval), (b.value, *b.interval), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


# five to nine seconds: a coverage is a share, of 2,000 intervals here
@pytest.mark.parametrize(
    ("measure", "n", "prior", "matrix"),
    [
        (balanced_accuracy, 30, [0.5, 0.3, 0.2], [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.05, 0.1, 0.85]]),
        (balanced_accuracy, 60, [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]]),
        (balanced_accuracy, 300, [0.6, 0.3, 0.1], [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.02, 0.08, 0.9]]),
        (macro_f1, 30, [0.5, 0.3, 0.2], [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.05, 0.1, 0.85]]),
        (macro_f1, 60, [0.8, 0.2], [[0.9, 0.1], [0.2, 0.8]]),
        (macro_f1, 300, [0.4, 0.3, 0.3], [[0.98, 0.01, 0.01], [0.01, 0.98, 0.01], [0.03, 0.02, 0.95]]),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(measure, n, prior, matrix):
    # 2,000 samples: at a coverage of 95 % the share lies in 93 .. 97 % but for 1 in 25,000 seeds.
    generator = Generator().manual_seed(1)
    prior, matrix = torch.tensor(prior).double(), torch.tensor(matrix).double()
    joint = prior[:, None] * matrix
    if measure is balanced_accuracy:
        truth = float(matrix.diagonal().mean())
    else:
        truth = float((2 * joint.diagonal() / (joint.sum(0) + joint.sum(1))).mean())
    ones, index, classes = torch.ones(n).double(), torch.arange(n), len(prior)
    cells = torch.multinomial(joint.flatten(), 2000 * n, True, generator=generator).reshape(2000, n)
    # the order of equally weighted examples changes nothing, so samples of one table are asked once
    samples, times = cells.sort(1).values.unique(dim=0, return_counts=True)
    covered = 0
    for sample, count in zip(samples, times.tolist(), strict=True):
        found = measure(Classified(sample // classes, sample % classes, ones, index, classes, n))
        covered += count * (found.low <= truth <= found.high)
    assert 0.93 <= covered / 2000 <= 0.97


@pytest.mark.parametrize("measure", [balanced_accuracy, macro_f1])
def test_the_order_of_the_examples_changes_nothing(measure):
    cells = torch.randint(9, (40,), generator=Generator().manual_seed(3))
    parts = [cells, cells.sort().values]
    ones, index = torch.ones(40).double(), torch.arange(40)
    one, other = (measure(Classified(c // 3, c % 3, ones, index, 3, 40))[:3] for c in parts)
    assert one == pytest.approx(other, abs=1e-12)


def test_without_the_correlation_of_classes_the_limits_of_f1_would_be_too_narrow():
    # Two classes, symmetric: an error lowers both F1 alike, so their mean is as uncertain as either.
    labels = torch.tensor([0] * 50 + [1] * 50)
    predicted = labels.clone()
    predicted[45:55] = 1 - predicted[45:55]
    found = macro_f1(Classified(labels, predicted, torch.ones(100).double(), torch.arange(100), 2, 100))
    low = wilson(45 / 55, 55)[0]
    assert found.value == pytest.approx(0.9)
    alone = 0.9 - 2 * low / (1 + low)
    assert alone / math.sqrt(2) * 1.05 < found.value - found.low < alone


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_cannot_be_read_fails_or_is_refused(claim):
    scores, labels, _ = drawn(4, n=8)
    scores[3, 1] = math.nan
    found = claim(stated(scores, labels))
    assert found.verdict == Verdict.FAILED
    assert "1 of 8" in found.failure
    found.as_json()
    assert claim(stated(scores[:0], labels[:0])).verdict == Verdict.FAILED
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.3"):
        claim(stated(scores, labels + 1))
    with pytest.raises(ValueError, match="level must lie in"):
        claim(stated(*drawn(4, n=8)[:2]), level=1.0)


def test_signed_scores_have_two_classes():
    subject = stated(torch.tensor([1.0, -2.0, 3.0, -1.0]), torch.tensor([1, 0, 0, 0]), task=HALFSPACE)
    assert recall(subject).value.tolist() == pytest.approx([2 / 3, 1])
