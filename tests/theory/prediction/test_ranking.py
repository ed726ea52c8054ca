"""AUROC against scikit-learn, counts over all pairs, DeLong's formula in numpy, and simulation."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn import metrics
from torch import Generator

from margin.auditing.subject.outputs import PROBABILITIES
from margin.core.findings import Verdict
from margin.core.tasks import CLASSES, HALFSPACE
from margin.theory.prediction.held_out import Terms, stated
from margin.theory.prediction.ranking import (
    area,
    area_by_class,
    auroc,
    has_many_classes,
    newcombe,
    one_against_rest,
    placements,
    roc_curve,
)


def simple(n):
    ones = torch.ones(n, dtype=torch.float64)
    return Terms(ones, ones, torch.arange(n))


def drawn(seed, n=150, ties=False):
    generator = Generator().manual_seed(seed)
    positive = torch.rand(n, generator=generator) < 0.3
    scores = torch.randn(n, generator=generator, dtype=torch.float64) + positive
    return (scores * 2).round() if ties else scores, positive


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_scikit_learns_ties_counting_half(seed, ties):
    scores, positive = drawn(seed, ties=ties)
    weight = torch.rand(len(scores), generator=Generator().manual_seed(9), dtype=torch.float64)
    for w in (torch.ones_like(weight), weight):
        expected = metrics.roc_auc_score(positive, scores, sample_weight=w)
        assert placements(scores, positive, w).area == pytest.approx(expected, abs=1e-12)


def test_a_tie_counts_half():
    scores, positive = torch.tensor([1.0, 1.0, 0.0, 2.0]).double(), torch.tensor([True, False, False, False])
    # pairs: 1 = 1 (a half), 1 > 0 (one), 1 < 2 (none)
    assert placements(scores, positive, torch.ones(4).double()).area == pytest.approx(0.5)


@pytest.mark.parametrize("ties", [False, True])
def test_the_variance_is_delongs(ties):
    scores, positive = drawn(5, n=60, ties=ties)
    x, y = scores[positive].numpy(), scores[~positive].numpy()
    pairs = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])
    a = pairs.mean()
    variance = pairs.mean(1).var(ddof=1) / len(x) + pairs.mean(0).var(ddof=1) / len(y)
    found = auroc(scores, positive, simple(60), 60)
    assert float(found.direction.norm()) == pytest.approx(math.sqrt(variance), rel=1e-10)
    half = norm.ppf(0.975) * math.sqrt(variance) / (a * (1 - a))
    ends = 1 / (1 + np.exp(-(np.log(a / (1 - a)) + np.array([-half, half]))))
    assert found[:3] == pytest.approx((a, *ends), abs=1e-10)


def test_apart_or_tied_the_limits_are_those_of_the_score_test():
    positive = torch.arange(12) % 3 == 0
    scores = positive.double()
    apart = auroc(scores, positive, simple(12), 12)
    assert apart.value == 1
    assert apart.high == 1
    # (1 - t)^2 = z^2 t (1 - t) (1 + 5 ((1 - t)/(2 - t) + t/(1 + t))) / 32 at the lower limit
    t, z2 = apart.low, norm.ppf(0.975) ** 2
    rest = z2 * t * (1 - t) * (1 + 5 * ((1 - t) / (2 - t) + t / (1 + t))) / 32
    assert (1 - t) ** 2 == pytest.approx(rest, rel=1e-9)
    assert 0.4 < t < 0.95
    reversed_ = auroc(-scores, positive, simple(12), 12)
    assert reversed_[:3] == pytest.approx((0, 0, 1 - t), abs=1e-12)
    tied = auroc(torch.zeros(12).double(), positive, simple(12), 12)
    assert tied.value == 0.5
    assert tied[1:3] == pytest.approx(newcombe(0.5, 4, 8))
    assert 0.5 - tied.low == pytest.approx(tied.high - 0.5)


def test_one_positive_alone_has_no_variance_of_its_own():
    scores, positive = torch.tensor([3.0, 1.0, 2.0, 4.0]).double(), torch.tensor([True, False, False, False])
    found = auroc(scores, positive, simple(4), 4)
    assert found[:3] == pytest.approx((2 / 3, *newcombe(2 / 3, 1, 3)))


@pytest.mark.parametrize("all_of", [True, False])
def test_a_ranking_needs_both_kinds(all_of):
    with pytest.raises(ValueError, match="needs positives and negatives: got 3"):
        placements(torch.arange(3).double(), torch.full((3,), all_of), torch.ones(3).double())


@pytest.mark.parametrize(
    ("n", "share", "shift"), [(40, 0.5, 1.0), (100, 0.2, 1.5), (100, 0.5, 2.5), (400, 0.3, 0.3)]
)
def test_the_interval_covers_the_truth_as_often_as_it_says(n, share, shift):
    # Normal scores: the area is Phi(shift / sqrt 2). 2,000 samples, as for the confusion matrix.
    generator, truth, covered = Generator().manual_seed(0), norm.cdf(shift / math.sqrt(2)), 0
    for _ in range(2000):
        positive = torch.rand(n, generator=generator) < share
        scores = torch.randn(n, generator=generator, dtype=torch.float64) + shift * positive
        found = auroc(scores, positive, simple(n), n)
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / 2000 <= 0.97


@pytest.mark.parametrize("seed", range(3))
def test_one_against_rest_is_scikit_learns(seed):
    generator = Generator().manual_seed(seed)
    labels = torch.randint(4, (120,), generator=generator)
    logits = torch.randn(120, 4, generator=generator, dtype=torch.float64)
    subject = stated(logits, labels)
    p = logits.softmax(1).numpy()
    expected = metrics.roc_auc_score(labels, p, multi_class="ovr", average=None)
    assert area_by_class(subject).value.numpy() == pytest.approx(expected, abs=1e-12)
    assert area(subject).value.item() == pytest.approx(expected.mean(), abs=1e-12)
    assert area_by_class(subject).labels == tuple(f"class {k}" for k in range(4))


def test_log_odds_tell_apart_what_a_rounded_softmax_ties():
    logits = torch.tensor([[0.0, 50.0], [0.0, 60.0]]).double()
    assert float(logits.softmax(1)[:, 1].diff()) == 0
    assert float(one_against_rest(logits)[:, 1].diff()) == 10
    three = torch.cat((logits, torch.zeros(2, 1).double()), 1)
    assert one_against_rest(three).sigmoid().numpy() == pytest.approx(three.softmax(1).numpy(), abs=1e-12)


def test_two_classes_are_ranked_by_class_1_and_signed_scores_by_themselves():
    scores, positive = drawn(7)
    logits = torch.stack((torch.zeros_like(scores), scores), 1)
    expected = metrics.roc_auc_score(positive, scores)
    for subject in (
        stated(logits, positive.long()),
        stated(scores, positive.long(), task=HALFSPACE),
    ):
        found = area(subject)
        assert found.value.item() == pytest.approx(expected, abs=1e-12)
        assert found.value.ndim == 0
        assert not has_many_classes(subject)


def test_the_curve_encloses_the_area():
    scores, positive = drawn(8, ties=True)
    false, true = roc_curve(scores, positive, torch.ones(len(scores)).double())
    expected = metrics.roc_curve(positive, scores, drop_intermediate=False)
    assert false.numpy() == pytest.approx(expected[0])
    assert true.numpy() == pytest.approx(expected[1])


def test_a_class_that_is_absent_is_left_out_and_one_class_alone_fails():
    labels = torch.tensor([0, 0, 2, 2, 2])
    logits = torch.randn(5, 3, generator=Generator().manual_seed(0)).double()
    subject = stated(logits, labels)
    assert area_by_class(subject).labels == ("class 0", "class 2")
    assert "the 2 classes that occur" in area(subject).statement
    for claim in (area, area_by_class):
        found = claim(stated(logits, torch.ones(5).long()))
        assert found.verdict == Verdict.FAILED
        assert found.failure.endswith("all that are held out are of class 1")
        logits_with_nan = logits.clone()
        logits_with_nan[2, 0] = math.nan
        assert claim(stated(logits_with_nan, labels)).verdict == Verdict.FAILED
        assert claim(stated(logits[:0], labels[:0])).verdict == Verdict.FAILED
        found.as_json()


def test_terms_of_one_example_are_one_draw():
    generator = Generator().manual_seed(2)
    logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (40,), generator=generator)
    once = stated(logits, labels)
    often = stated(logits[:, None].expand(-1, 5, -1).contiguous(), labels[:, None].expand(-1, 5).contiguous())
    for claim in (area, area_by_class):
        a, b = claim(once), claim(often)
        for one, other in zip((a.value, *a.interval), (b.value, *b.interval), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stated_as", ["probabilities", "their logarithms"])
def test_equal_probabilities_are_ties(dtype, stated_as):
    """Shares of 10 votes of four classes, as of a forest: scikit-learn's area, in which ties count half.

    Sums of the other classes' shares round to different numbers for equal shares: ranked by log-odds of
    them a tie was broken, and the area was another.
    """
    generator = Generator().manual_seed(3)
    labels = torch.randint(4, (400,), generator=generator)
    p = torch.full((400, 4), 0.2).scatter(1, labels[:, None], 0.4)
    votes = torch.multinomial(p, 10, replacement=True, generator=generator)
    shares = torch.nn.functional.one_hot(votes, 4).sum(1).to(dtype) / 10
    if stated_as == "probabilities":
        found = area_by_class(stated(shares, labels, task=PROBABILITIES))
    else:
        shares = (shares + 0.01) / 1.04
        found = area_by_class(stated(shares.log(), labels, task=CLASSES))
    ranks = [metrics.roc_auc_score(labels == k, (100 * shares[:, k]).round()) for k in range(4)]
    assert found.value.tolist() == pytest.approx(ranks, abs=1e-12)
    assert len(shares[:, 0].unique()) <= 11


def test_stated_probabilities_are_ranked_as_they_are_beside_a_class_of_probability_0():
    """Mutant: log-odds of them, whose error beside log 0 would tie what differs by millionths."""
    generator = Generator().manual_seed(5)
    p = 0.5 + 2e-6 * torch.randperm(60, generator=generator).float()
    shares = torch.stack((p, 1 - p, torch.zeros(60)), 1)
    labels = (p + 3e-5 * torch.randn(60, generator=generator) < 0.50006).long()
    found = area_by_class(stated(shares, labels, task=PROBABILITIES))
    expected = [metrics.roc_auc_score(labels == k, shares[:, k]) for k in (0, 1)]
    assert found.value.tolist() == pytest.approx(expected, abs=1e-12)
    assert 0.6 < expected[0] < 0.99
