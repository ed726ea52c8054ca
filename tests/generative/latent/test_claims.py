"""What latent-variable models promise: it holds, is attained, and what breaks it is seen or named."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from margin.core.findings import Subject, Verdict
from margin.core.types import Batch
from margin.generative.latent import claims as latent_claims
from margin.generative.latent.claims import (
    ascent,
    closed_form,
    descent,
    gplvm_demo,
    is_linear_gplvm,
    is_mixture,
    is_nmf,
    is_small_rbm,
    is_tiny_rbm,
    likelihood,
    mixture_demo,
    nmf_demo,
    rbm_demo,
    total,
    weighted_rows,
)
from margin.generative.latent.gplvm import negative_log_likelihood
from margin.generative.latent.mixture import GaussianMixture
from margin.generative.latent.mixture_learning import Parts, em_iteration
from margin.generative.latent.nmf import NMF, updated
from margin.generative.latent.rbm import RBM
from margin.nn.preprocessed import core_of


def of(subject: Subject, core: torch.nn.Module) -> Subject:
    return dataclasses.replace(subject, model=core.eval())


@pytest.mark.parametrize("covariance", ["full", "diagonal", "spherical"])
def test_em_ascends_from_anywhere_and_stays_at_a_fixed_point(covariance: Any) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        model = GaussianMixture(3, components=2, covariance=covariance).double()
        subject = of(mixture_demo(), model)
        assert is_mixture(subject)
        found = ascent(subject)
        assert found.verdict == Verdict.HOLDS
        assert float(found.value) > 1e-3
    x, weight = weighted_rows(subject, subject.train)
    parts = Parts(*(p.detach() for p in (model.log_weights, model.means, model.factors)))
    for _ in range(500):
        parts = em_iteration(x, weight, parts, covariance=covariance, floor=1e-6)
    with torch.no_grad():
        for place, value in zip((model.log_weights, model.means, model.factors), parts, strict=True):
            place.copy_(value)
    assert abs(float(ascent(subject).value)) < 1e-6


def test_a_variance_below_the_floor_is_refused_and_weights_that_are_not_finite_fail() -> None:
    subject = mixture_demo()
    core: Any = core_of(subject.model)
    with torch.no_grad():
        core.factors[1] *= 1e-4
    found = ascent(subject)
    assert found.verdict == Verdict.UNFOUNDED
    assert "factors" in found.premises[0].evidence
    subject = mixture_demo()
    with torch.no_grad():
        core_of(subject.model).means[0, 0] = math.nan
    assert ascent(subject).verdict in (Verdict.FAILED, Verdict.UNFOUNDED)


def test_em_with_a_wrong_mean_is_seen_to_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kinds: Any) -> Any:
        parts = em_iteration(*args, **kinds)
        return parts._replace(means=parts.means + 3.0)

    monkeypatch.setattr(latent_claims, "em_iteration", wrong)
    assert ascent(mixture_demo()).verdict == Verdict.VIOLATED


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_updates_descend_and_a_broken_one_is_seen(loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    subject = of(nmf_demo(), NMF(3, components=2, loss=loss, updates=1))
    assert is_nmf(subject)
    found = descent(subject)
    assert found.verdict == Verdict.HOLDS
    assert bool((found.value > 1e-6).all())
    with torch.no_grad():
        core_of(subject.model).parts[0, 1] = -0.1
    assert descent(subject).verdict == Verdict.UNFOUNDED
    true = updated

    def doubled(x: Tensor, Z: Tensor, B: Tensor, loss: Any) -> Tensor:
        return 2 * true(x, Z, B, loss)

    monkeypatch.setattr(latent_claims, "updated", doubled)
    assert descent(nmf_demo()).verdict == Verdict.VIOLATED


def test_probabilities_of_bits_sum_to_one_and_a_forgotten_bias_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = rbm_demo()
    assert is_tiny_rbm(subject)
    assert total(subject).verdict == Verdict.HOLDS
    with torch.no_grad():
        core_of(subject.model).visible.fill_(0.5)
    true = RBM.log_partition
    monkeypatch.setattr(RBM, "log_partition", lambda self: true(self) + 0.1)
    assert total(subject).verdict == Verdict.VIOLATED


def test_the_exact_likelihood_is_that_of_held_out_bits_by_weight() -> None:
    subject = rbm_demo()
    core: Any = core_of(subject.model)
    x = subject.test[0].inputs[0]
    weight = torch.arange(40).float()
    found = likelihood(dataclasses.replace(subject, test=(Batch((x,), weight=weight),)))
    exact = (weight * core.log_prob(x).detach()).sum() / weight.sum()
    assert float(found.value) == pytest.approx(float(exact), abs=1e-5)
    assert found.verdict == Verdict.MEASURED
    assert not is_small_rbm(of(subject, RBM(30, hidden_units=21)))
    assert is_small_rbm(of(subject, RBM(30, hidden_units=20)))
    assert not is_tiny_rbm(of(subject, RBM(15, hidden_units=2)))
    assert is_tiny_rbm(of(subject, RBM(14, hidden_units=30)))


def test_no_codes_beat_the_closed_form_which_is_attained() -> None:
    subject = gplvm_demo()
    core: Any = core_of(subject.model).double()
    assert is_linear_gplvm(subject)
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            core.latents.normal_()
        found = closed_form(subject)
        assert found.verdict == Verdict.HOLDS
        assert float(found.value) > float(found.low) + 0.01  # type: ignore[arg-type]
    Y = core.rows - core.mean
    spectrum, U = torch.linalg.eigh(Y @ Y.T / 3)
    noise = spectrum[:-1].sum() / (len(Y) - 1)
    with torch.no_grad():
        core.latents.copy_(U[:, -1:] * (spectrum[-1] - noise).sqrt())
        core.log_noise.copy_(noise.log() / 2)
    found = closed_form(subject)
    assert found.verdict == Verdict.HOLDS
    assert float(found.value) == pytest.approx(float(found.low), abs=1e-9)  # type: ignore[arg-type]


def test_a_likelihood_that_leaves_out_a_term_is_seen_and_exact_rows_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = gplvm_demo()
    core: Any = core_of(subject.model)
    true = negative_log_likelihood
    monkeypatch.setattr(latent_claims, "negative_log_likelihood", lambda Y, K: true(Y, K) - 1000.0)
    assert closed_form(subject).verdict == Verdict.VIOLATED
    with torch.no_grad():
        core.rows.copy_(torch.arange(len(core.rows))[:, None] * torch.ones(3))
        core.mean.copy_(core.rows.mean(0))
    found = closed_form(subject)
    assert found.verdict == Verdict.UNFOUNDED
    assert "rows" in found.premises[0].evidence
