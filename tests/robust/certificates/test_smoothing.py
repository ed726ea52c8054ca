"""Randomized smoothing against closed forms of a linear classifier, scipy's distributions and brute force."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import beta, binomtest, norm
from torch import Generator, nn

from margin.core.findings import Verdict
from margin.core.types import Batch, Domain
from margin.robust import smoothing_claims
from margin.robust.certificates import smoothing
from margin.robust.certificates.smoothing import (
    ABSTAINED,
    ceiling,
    certify,
    class_counts,
    draws_for,
    predict,
)
from margin.robust.smoothing_claims import coverage, demo, l2_smoothing, linear_radius

X = torch.tensor([[0.6, 0.8], [-0.3, -0.4], [0.0, 0.0], [6.0, 8.0]])
"""Points at distance 1, -1/2, 0 and 10 of the boundary 3 x_1 + 4 x_2 = 0."""


def seeded(seed=0):
    return Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("draws", "published"), [(100, 1.5005), (1000, 2.4633), (10_000, 3.1986), (100_000, 3.8115)]
)
def test_the_largest_radius_is_the_published_one(draws, published):
    """Cohen et al. (2019), Section 3.2.2, at alpha = 0.001."""
    assert ceiling(draws, 2.0, 0.001) == pytest.approx(2 * published, abs=2e-4)


def test_the_draws_that_a_radius_takes_are_the_least():
    for alpha in (0.001, 0.05, 0.3):
        for radius in (0.0, 0.7, 1.4):
            brute = next(n for n in range(1, 10_000) if norm.ppf(alpha ** (1 / n)) > radius)
            assert draws_for(alpha, 2 * radius, 2.0) == brute
    assert draws_for(0.001) == 10


def test_the_radius_is_that_of_the_binomial_bound_of_the_second_draws():
    """The counts come from the same generator, in the order of CERTIFY: kills one sample for both."""
    model, sigma, alpha = demo().model, 1.3, 0.01
    for seed in range(5):
        found = certify(model, X[:1], sigma, seeded(seed), select=1, draws=40, alpha=alpha)
        generator = seeded(seed)
        top = int(class_counts(model, X[0], sigma, 1, generator).argmax())
        hits = int(class_counts(model, X[0], sigma, 40, generator)[top])
        low = beta.ppf(alpha, hits, 41 - hits)
        assert found.probability.item() == pytest.approx(low)
        if low > 0.5:
            assert (found.classes.item(), found.radius.item()) == (top, pytest.approx(sigma * norm.ppf(low)))
        else:
            assert (found.classes.item(), found.radius.item()) == (ABSTAINED, 0.0)


def test_on_a_linear_classifier_the_radius_nears_the_distance_from_below():
    sigma, draws = 1.0, 20_000
    found = certify(demo().model, X, sigma, seeded(), draws=draws, alpha=1e-5)
    assert found.classes.tolist() == [1, 0, ABSTAINED, 1]
    # 1e-5 for each radius to be too large
    assert (found.radius[:3] <= torch.tensor([1.0, 0.5, 0.0])).all()
    assert found.radius[:2].tolist() == pytest.approx([1.0, 0.5], abs=0.07)
    assert found.radius[3] == pytest.approx(ceiling(draws, sigma, 1e-5), rel=1e-9)


@pytest.mark.parametrize("counts", [(60, 40), (61, 39), (39, 61), (50, 50), (30, 200, 31), (70, 0)])
def test_a_class_is_predicted_by_the_two_sided_test_of_the_two_most_frequent(counts, monkeypatch):
    """At 60 of 100 the one-sided test would tell, the two-sided one does not."""
    monkeypatch.setattr(smoothing, "class_counts", lambda *_: torch.tensor(counts))
    first, second = sorted(counts)[::-1][:2]
    tells = binomtest(first, first + second, 0.5, alternative="two-sided").pvalue <= 0.05
    expected = counts.index(first) if tells else ABSTAINED
    assert predict(nn.Identity(), X[:1], 1.0, seeded(), draws=100, alpha=0.05).tolist() == [expected]


def test_predictions_are_those_of_the_linear_classifier_or_abstentions():
    assert predict(demo().model, X, 1.0, seeded(), draws=2000).tolist() == [1, 0, ABSTAINED, 1]


def test_every_draw_counts_once_whatever_the_chunks(monkeypatch):
    counts = class_counts(demo().model, X[0], 2.0, 2345, seeded())
    assert counts.sum() == 2345
    monkeypatch.setattr(smoothing, "CHUNK", 100)
    other = class_counts(demo().model, X[0], 2.0, 2345, seeded(1))
    # two samples of Phi(1 / 2): 4 standard errors of their difference
    p = norm.cdf(0.5)
    assert abs(int(counts[1] - other[1])) < 4 * math.sqrt(2 * 2345 * p * (1 - p))
    assert abs(int(counts[1]) - 2345 * p) < 4 * math.sqrt(2345 * p * (1 - p))


def test_the_model_is_asked_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.9))
    before = torch.get_rng_state()
    certify(model, X, 0.5, seeded(), draws=20)
    predict(model, X, 0.5, seeded(), draws=20)
    assert all(module.training for module in model.modules())
    assert model[1].num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_options_by_which_nothing_could_be_certified_are_refused():
    model = demo().model
    with pytest.raises(ValueError, match="sigma must be positive and finite: got 0"):
        certify(model, X, 0.0, seeded())
    with pytest.raises(
        ValueError, match=r"draws must be at least 10 to certify any radius at alpha 0\.001: got 9"
    ):
        certify(model, X, 1.0, seeded(), draws=9)
    certify(model, X, 1.0, seeded(), draws=10)
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 0\.5\): got 0\.5"):
        predict(model, X, 1.0, seeded(), alpha=0.5)
    with pytest.raises(ValueError, match="select must be at least 1: got 0"):
        certify(model, X, 1.0, seeded(), select=0)
    with pytest.raises(ValueError, match="one score a class, no NaN"):
        certify(nn.Linear(2, 2), X * torch.nan, 1.0, seeded())


# claims


def test_the_radius_of_a_linear_classifier_is_its_distance(monkeypatch):
    assert linear_radius(demo()).verdict is Verdict.HOLDS
    wide = smoothing.class_counts
    monkeypatch.setattr(
        smoothing_claims, "class_counts", lambda m, x, sigma, *rest: wide(m, x, 1.3 * sigma, *rest)
    )
    assert linear_radius(demo()).verdict is Verdict.VIOLATED


def test_certified_radii_cover_the_distance_as_often_as_they_say(monkeypatch):
    """1,000 runs; radii that are stated half as large again cover too seldom."""
    finding = coverage(demo())
    assert finding.verdict is Verdict.HOLDS
    assert 0.9 < float(finding.value) < 1
    true = smoothing.certify

    def boasting(*given, **options):
        found = true(*given, **options)
        return found._replace(radius=1.5 * found.radius)

    monkeypatch.setattr(smoothing_claims, "certify", boasting)
    assert coverage(demo()).verdict is Verdict.VIOLATED


def test_the_certified_share_is_below_that_of_the_exact_distances():
    finding = l2_smoothing(demo())
    # sigma is 1; the five right examples have distances 1.1, 1.1, .9, 1, 1, and the last is wrong
    exact = [5 / 6, 5 / 6, 5 / 6, 2 / 6, 0.0, 0.0]
    assert finding.failure == ""
    assert all(value <= most + 1e-12 for value, most in zip(finding.value.tolist(), exact, strict=True))
    assert finding.value[:3].tolist() == pytest.approx([5 / 6] * 3)
    assert finding.verdict is Verdict.MEASURED
    assert "1,000 draws certify at most 2.463" in finding.remarks[0]


def test_where_the_sides_of_the_domain_differ_each_coordinate_is_measured_in_its_own():
    """Where inputs are scaled by (1, 1/10) and the weights back, nothing changes."""
    plain = demo()
    unit = torch.tensor([1.0, 0.1])
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(plain.model.weight / unit)
    batch = plain.test[0]
    scaled = replace(
        plain,
        model=model,
        test=(Batch((batch.inputs[0] * unit,), batch.targets),),
        domain=Domain(-5 * unit, 5 * unit),
    )
    assert l2_smoothing(scaled).value.tolist() == l2_smoothing(plain).value.tolist()


def test_a_false_certificate_is_found_by_attacking_it(monkeypatch):
    true = smoothing.certify

    def boasting(*given, **options):
        found = true(*given, **options)
        return found._replace(radius=3 * found.radius)

    monkeypatch.setattr(smoothing_claims, "certify", boasting)
    finding = l2_smoothing(demo())
    assert finding.verdict is Verdict.FAILED
    assert "within its radius the smoothed class of example 0 changes" in finding.failure


def test_the_facts_are_asked_of_linear_classifiers_of_two_classes_alone():
    plain = demo()
    for model, linear in (
        (nn.Sequential(nn.Flatten(), nn.Linear(2, 2)), True),
        (nn.Linear(2, 3), False),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), False),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), False),
    ):
        assert smoothing_claims.is_linear(replace(plain, model=model)) is linear
