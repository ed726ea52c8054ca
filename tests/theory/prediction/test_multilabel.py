import pytest
import torch
from scipy.stats import beta
from sklearn.metrics import accuracy_score

from margin.core.findings import Subject
from margin.core.tasks import MULTILABEL
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.prediction.multilabel import by_label, demo, has_several_labels, subset
from margin.theory.prediction.risk import accuracy, loss


def _drawn(seed=0, n=40, labels=5):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, labels, generator=generator) > 0.6).long()
    z = torch.randn(n, labels, generator=generator) + 1.5 * y
    return z, y


def _subject(z, y, weight=None, cut=17):
    parts = [slice(0, cut), slice(cut, None)]
    batches = [Batch((z[p],), y[p], None if weight is None else weight[p]) for p in parts]
    return Subject(model=torch.nn.Identity(), test=batches, task=MULTILABEL, objective=risk(MULTILABEL))


def test_the_demonstration_is_counted_by_hand():
    assert by_label(demo()).value.tolist() == [1.0, 6 / 8, 7 / 8]
    assert subset(demo()).value.item() == 6 / 8


def test_shares_are_those_of_scikit_learn():
    z, y = _drawn()
    found = (z > 0).long()
    subject = _subject(z, y)
    expected = [accuracy_score(y[:, k], found[:, k]) for k in range(5)]
    assert by_label(subject).value.tolist() == pytest.approx(expected, rel=1e-12)
    whole = subset(subject)
    share = accuracy_score(y, found)
    assert whole.value.item() == pytest.approx(share, rel=1e-12)
    k = round(share * 40)
    assert whole.interval[0].item() == pytest.approx(beta.ppf(0.025, k, 41 - k), rel=1e-9)
    assert whole.interval[1].item() == pytest.approx(beta.ppf(0.975, k + 1, 40 - k), rel=1e-9)
    assert accuracy(subject).value.item() == pytest.approx((found == y).double().mean().item(), rel=1e-6)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits(z.double(), y.double())
    assert loss(subject).value.item() == pytest.approx(cross_entropy.item(), rel=1e-6)


def test_a_label_that_is_left_out_counts_for_nothing():
    z, y = _drawn()
    weight = torch.ones(40, 5)
    weight[:10, 2] = 0
    weight[3] = 0
    wrong = torch.where(weight > 0, z, 100 * (1 - 2 * y.float()))  # wrong wherever it is left out
    subject = _subject(wrong, y, weight)
    right = ((z > 0).long() == y) & (weight > 0)
    assert by_label(subject).value.tolist() == pytest.approx((right.sum(0) / (weight > 0).sum(0)).tolist())
    rows = [i for i in range(40) if i != 3]
    whole = sum(bool((right[i] | (weight[i] == 0)).all()) for i in rows) / 39
    assert subset(subject).value.item() == pytest.approx(whole)


def test_only_a_row_of_labels_is_asked():
    z, y = _drawn()
    assert has_several_labels(_subject(z, y))
    assert not has_several_labels(_subject(z[:, 0], y[:, 0]))


def test_an_output_that_is_no_number_fails():
    z, y = _drawn()
    z[5, 1] = torch.nan
    for found in (by_label(_subject(z, y)), subset(_subject(z, y))):
        assert str(found.verdict) == "failed" and "1 of 200 terms" in found.failure
