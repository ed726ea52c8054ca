"""Claims of bounds: their answers by other ways, and that a bound that is too small is seen."""

import math

import numpy as np
import pytest
import torch

from margin.core.findings import Verdict
from margin.theory.bounds import claims
from margin.theory.bounds.claims import (
    coverage,
    demo,
    donsker_varadhan,
    finite_class,
    moved_decisions,
    uniform,
)


def test_the_coverage_is_that_of_samples_drawn() -> None:
    """200,000 samples; five standard errors are .0025 at most: failure probability below 1e-5."""
    found = coverage(demo())
    wrong = moved_decisions(demo())[0].numpy()
    R, n = wrong.mean(), 100
    k = np.random.default_rng(0).binomial(n, R, 200_000)
    hoeffding = (k / n + math.sqrt(math.log(20) / (2 * n)) >= R).mean()
    assert float(found.value[2]) == pytest.approx(hoeffding, abs=0.0025)
    assert found.verdict is Verdict.HOLDS


@pytest.mark.parametrize("name", ["hoeffding_bound", "occam_bound", "rademacher_bound"])
def test_a_bound_that_is_the_empirical_risk_alone_is_violated(monkeypatch, name) -> None:
    monkeypatch.setattr(claims, name, lambda risk, *rest, **options: risk)
    assert finite_class(demo()).verdict is Verdict.VIOLATED
    if name != "rademacher_bound":
        assert coverage(demo()).verdict is Verdict.VIOLATED


def test_a_posterior_without_its_divergence_is_violated(monkeypatch) -> None:
    """The best of the class on the sample, bounded as if it had been chosen before, in samples of 30."""
    real = claims.pac_bayes_kl
    monkeypatch.setattr(claims, "pac_bayes_kl", lambda risk, kl, n, delta: real(risk, 0 * kl, 50 * n, delta))
    assert finite_class(demo(), n=30).verdict is Verdict.VIOLATED


def test_the_bounds_hold_for_all_classifiers_at_once() -> None:
    found = finite_class(demo())
    assert found.verdict is Verdict.HOLDS
    assert len(moved_decisions(demo())) == 1 + 3 * 4


def test_thresholds_stray_as_far_as_brute_force_says(monkeypatch) -> None:
    """One sample of twenty: the farthest of all thresholds, tried one after the other."""
    subject = demo()
    x = subject.test[0].inputs[0][:, 0]
    y = subject.test[0].targets == 0
    picked = torch.randint(300, (20,), generator=torch.Generator().manual_seed(claims.SEED))
    order = x.argsort()
    farthest = 0.0
    for t in [*x.tolist(), math.inf]:
        wrong = ((x >= t) != y)[order].double()
        farthest = max(farthest, abs(float(wrong[picked].mean() - wrong.mean())))
    for epsilon, share in ((farthest - 1e-9, 1.0), (farthest + 1e-9, 0.0)):
        monkeypatch.setattr(claims, "EPSILONS", (epsilon,))
        assert uniform(subject, n=20, draws=1).value.tolist() == [share]


def test_uniform_convergence_holds_and_its_violation_is_seen(monkeypatch) -> None:
    assert uniform(demo()).verdict is Verdict.HOLDS
    monkeypatch.setattr(claims, "EPSILONS", (0.005,))
    monkeypatch.setattr(claims, "vc_probability", lambda epsilon, growth, n: 0.1 + 0 * epsilon)
    assert uniform(demo()).verdict is Verdict.VIOLATED


def test_the_change_of_measure_is_tight_at_the_tilted_law(monkeypatch) -> None:
    assert donsker_varadhan(demo()).verdict is Verdict.HOLDS
    monkeypatch.setattr(
        claims, "change_of_measure", lambda x, q, p: -(q * x).sum(-1)
    )  # the divergence forgotten
    assert donsker_varadhan(demo()).verdict is Verdict.VIOLATED
