"""What a VAE tells of itself: its bounds against closed forms, a promise kept, attained and broken."""

import dataclasses
import math

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject, Verdict
from margin.core.types import Batch
from margin.generative.autoencoder import vae_claims
from margin.generative.autoencoder.dense_vae import conditional_vae, dense_vae
from margin.generative.autoencoder.linear_gaussian import marginal_log_prob, posterior
from margin.generative.autoencoder.vae import VAE
from margin.generative.autoencoder.vae_claims import (
    bends,
    bounds_of,
    collapse,
    demo,
    gap,
    is_linear_vae,
    is_vae,
    linear_demo,
    linear_gap,
    mean_with_error,
    rate_distortion,
    seen,
)
from margin.nn.preprocessed import core_of


def of(model: nn.Module, *batches: Batch) -> Subject:
    return dataclasses.replace(demo(), model=model.eval(), test=batches or demo().test)


@torch.no_grad()
def exact() -> VAE:
    """A linear VAE of one code whose encoder states the posterior."""
    torch.manual_seed(0)
    model = dense_vae(3, code=1, hidden=())
    last, head = model.decoder[0], model.encoder[1][0]
    mean, S = posterior(torch.eye(3), last.weight, last.bias, torch.tensor(1.0))
    at_zero = posterior(torch.zeros(1, 3), last.weight, last.bias, torch.tensor(1.0))[0]
    head.weight.copy_(torch.cat(((mean - at_zero).T, torch.zeros(1, 3))))
    head.bias.copy_(torch.cat((at_zero[0], S[0].log() / 2)))
    return model


def shown(finding: Finding) -> dict[str, float]:
    return dict(zip(finding.labels, finding.value.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_the_linear_promise_holds_for_any_encoder(seed: int) -> None:
    torch.manual_seed(seed)
    model = dense_vae(3, code=2, hidden=())
    with torch.no_grad():
        model.likelihood.log_noise.fill_(0.5)
        x = model.sample(30, generator=Generator().manual_seed(seed))
    found = linear_gap(of(model, Batch((x,))))
    assert found.verdict == Verdict.HOLDS
    assert found.value[0] < found.value[1] < found.value[2] < 0.05


def test_it_is_tight_where_the_encoder_states_the_posterior() -> None:
    found = linear_gap(of(exact()))
    assert found.verdict == Verdict.HOLDS
    assert float(found.value.abs().max()) < 1e-5
    assert found.tolerance < 0.011


def test_it_is_broken_by_a_likelihood_that_is_stated_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant of the importance weights that forgets log s: IWAE would be above log p(x)."""
    true = vae_claims.all_log_weights
    monkeypatch.setattr(
        vae_claims,
        "all_log_weights",
        lambda core, x, *rest: true(core, x, *rest) - core.posterior(x)[1].sum(1),
    )
    found = linear_gap(of(exact()))
    assert found.verdict == Verdict.VIOLATED


@pytest.mark.parametrize(("by", "verdict"), [(0.01, Verdict.HOLDS), (0.1, Verdict.VIOLATED)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_an_elbo_that_lacks_a_tenth_more_or_less_is_told(
    by: float, verdict: Verdict, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights off by a share of the divergence, around the tolerance of 0.05 of it and 0.01 nats."""
    subject = linear_demo()
    lack = -float(linear_gap(subject).low[0])
    assert lack > 1
    true = vae_claims.all_log_weights
    monkeypatch.setattr(vae_claims, "all_log_weights", lambda *given: true(*given) + sign * by * lack)
    assert linear_gap(subject).verdicts[0] == verdict


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        (dense_vae(3, code=2, hidden=(4,)), "decoder.1 (ReLU)"),
        (dense_vae(3, code=2, hidden=(), decoder="bernoulli"), "likelihood (bits)"),
        (dense_vae(3, code=2, hidden=(4,), activation="identity"), "decoder.1 (Identity)"),
    ],
)
def test_a_decoder_that_is_not_affine_is_refused_by_name(model: VAE, layer: str) -> None:
    subject = of(model)
    assert is_vae(subject)
    assert not is_linear_vae(subject)
    found = linear_gap(subject)
    assert found.verdict == Verdict.UNFOUNDED
    assert layer in found.premises[0].evidence


def test_a_decoder_that_reads_the_label_is_not_affine_in_the_code() -> None:
    assert "label" in bends(conditional_vae(3, 2, hidden=()))
    assert bends(dense_vae(3, hidden=())) == ""
    chain = dense_vae(3, hidden=())
    chain.decoder = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 3))
    assert bends(chain) == "decoder (2 affine maps)"


@torch.no_grad()
def test_the_gap_of_a_linear_decoder_is_the_closed_form() -> None:
    subject = linear_demo()
    core, x = core_of(subject.model), subject.test[0].inputs[0]
    last = core.decoder[0]
    truth = marginal_log_prob(x, last.weight, last.bias, core.likelihood.log_noise.exp())
    found = shown(gap(subject))
    assert found["ELBO"] < found["IWAE-16"] < found["IWAE-256"]
    assert found["IWAE-256"] == pytest.approx(float(truth.mean()), abs=0.5)
    assert found["gap"] == pytest.approx(found["IWAE-256"] - found["ELBO"], abs=1e-9)


def test_bounds_of_groups_are_their_definition() -> None:
    w = torch.randn(12, 5, generator=Generator().manual_seed(0), dtype=torch.float64)
    by_hand = torch.stack([w[i : i + 4].exp().mean(0).log() for i in (0, 4, 8)]).mean(0)
    torch.testing.assert_close(bounds_of(w, 4), by_hand)
    torch.testing.assert_close(bounds_of(w, 1), w.mean(0))


def test_means_are_weighted_and_their_errors_are_those_of_examples() -> None:
    terms, weight = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([1.0, 1.0, 2.0])
    mean, stderr = mean_with_error(terms, weight.double())
    assert float(mean) == 3.75
    doubled = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert mean_with_error(doubled, torch.ones(2).double())[0].tolist() == [1.5, 3.0]
    x = torch.randn(10_000, generator=Generator().manual_seed(0))
    assert float(mean_with_error(x, torch.ones(10_000).double())[1]) == pytest.approx(0.01, rel=0.05)
    assert float(stderr) > 0


def test_rows_of_weight_zero_are_left_out_and_no_more_than_the_limit_are_taken() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    subject = of(
        demo().model, Batch((x,), weight=torch.tensor([1.0, 0.0, 2.0, 1.0])), Batch((x + 100,)), Batch((x,))
    )
    assert seen(subject, 11).x[:, 0].tolist() == [0.0, 6, 9, 100, 103, 106, 109, 0, 3, 6, 9]
    assert seen(subject, 11).weight.tolist() == [1.0, 2.0, *[1.0] * 9]
    found = seen(subject, 5)
    assert len(found.x) == 5 and found.label is None
    assert found.words == "5 of 11 held-out examples, drawn at random"
    labeled = of(conditional_vae(3, 2), Batch((x,), torch.tensor([0, 1, 0, 1])))
    some = seen(labeled, 3)
    assert some.label.tolist() == [int(value / 3) % 2 for value in some.x[:, 0].tolist()]


def test_a_file_sorted_by_class_does_not_give_one_class() -> None:
    # 300 of each of two classes: of 100 drawn the share of one is 1/2 with standard deviation 0.046.
    x = torch.arange(2.0).repeat_interleave(300)[:, None].expand(600, 3)
    subject = of(demo().model, *(Batch((part,)) for part in x.split(64)))
    assert abs(float(seen(subject, 100).x.mean()) - 0.5) < 5 * 0.046
    assert "100 of 600 held-out examples, drawn at random" in gap(subject).statement


@torch.no_grad()
def test_rate_and_distortion_sum_to_the_negative_elbo_in_closed_form() -> None:
    found = rate_distortion(of(exact()))
    x = demo().test[0].inputs[0]
    last = exact().decoder[0]
    truth = marginal_log_prob(x, last.weight, last.bias, torch.tensor(1.0))
    assert float(found.value.sum()) == pytest.approx(-float(truth.mean()), abs=0.2)
    assert float(found.curves["nats of each coordinate"].sum()) == pytest.approx(float(found.value[0]))


@torch.no_grad()
def test_a_coordinate_that_says_nothing_is_counted_as_unused() -> None:
    torch.manual_seed(0)
    model = dense_vae(3, code=4, hidden=())
    head = model.encoder[1][0]
    head.weight.zero_(), head.bias.zero_()
    x = torch.randn(500, 3, generator=Generator().manual_seed(0))
    x = (x - x.mean(0)) / x.std(0, correction=0)
    # variances of the means: 1, 0.0101, 0.0099, 0, beside the edge of 0.01
    for k, variance in enumerate((1.0, 0.0101, 0.0099)):
        head.weight[k, 0] = math.sqrt(variance)
    found = collapse(of(model, Batch((x,))))
    assert float(found.value) == 0.5
    assert found.curves["variance of each mean"].tolist() == pytest.approx([1, 0.0101, 0.0099, 0], abs=1e-5)


@pytest.mark.parametrize("ask", [gap, rate_distortion, collapse, linear_gap])
def test_weights_that_are_not_finite_fail(ask: object) -> None:
    model = exact()
    with torch.no_grad():
        model.encoder[1][0].weight.fill_(math.nan)
    found = ask(of(model))  # type: ignore[operator]
    assert found.verdict == Verdict.FAILED
    assert "not finite" in found.failure


def test_bits_and_labels_are_judged_too() -> None:
    g = Generator().manual_seed(0)
    x = torch.rand(20, 3, generator=g)
    for model in (
        dense_vae(3, code=2, decoder="bernoulli"),
        conditional_vae(3, 2, code=2, decoder="bernoulli"),
    ):
        subject = of(model, Batch((x,), torch.randint(0, 2, (20,), generator=g)))
        for ask in (gap, rate_distortion, collapse):
            values: Tensor = ask(subject).value
            assert bool(values.isfinite().all())
    assert "given their labels" in gap(subject).statement
