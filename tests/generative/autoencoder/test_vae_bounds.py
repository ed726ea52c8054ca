"""Bounds on log p(x): exact where the guess is the posterior, rising with k, below quadrature, trained."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Normal

from margin.classic.factors.ppca import most_likely
from margin.core.types import Batch
from margin.data.preprocess import Standardize
from margin.generative.autoencoder import vae_bounds
from margin.generative.autoencoder.dense_vae import conditional_vae, dense_vae
from margin.generative.autoencoder.gaussian_codes import divergence
from margin.generative.autoencoder.linear_gaussian import expected_bound, marginal_log_prob
from margin.generative.autoencoder.vae import VAE
from margin.generative.autoencoder.vae_bounds import (
    all_log_weights,
    elbo,
    importance_bound,
    log_weights,
    negative_elbo,
    pieces,
)
from margin.nn.preprocessed import Preprocessed


def linear(seed: int = 0, d: int = 4, noise: float = 0.7) -> VAE:
    """A VAE of one affine map each way, of random weights."""
    torch.manual_seed(seed)
    model = dense_vae(d, code=2, hidden=()).double()
    with torch.no_grad():
        model.likelihood.log_noise.fill_(math.log(noise))
    return model


def parts(model: VAE) -> tuple[Tensor, Tensor, Tensor]:
    last = model.decoder[0]
    return last.weight.detach(), last.bias.detach(), model.likelihood.log_noise.detach().exp()


def exact(seed: int = 0) -> VAE:
    """Orthogonal columns, for which the posterior is diagonal, and the encoder that states it."""
    model = linear(seed)
    W, b, s = parts(model)
    with torch.no_grad():
        W = torch.linalg.qr(W).Q * torch.tensor([1.5, 0.8], dtype=torch.float64)
        variance = s**2 / (W.square().sum(0) + s**2)
        weight = (W * variance / s**2).T
        model.decoder[0].weight.copy_(W)
        head = model.encoder[1][0]
        head.weight.copy_(torch.cat((weight, torch.zeros_like(weight))))
        head.bias.copy_(torch.cat((-weight @ b, variance.log() / 2)))
    return model


def rows(n: int = 6, d: int = 4, seed: int = 5) -> Tensor:
    return 2 * torch.randn(n, d, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_with_the_posterior_as_guess_every_draw_weighs_the_likelihood(seed: int) -> None:
    model, x = exact(seed), rows()
    truth = marginal_log_prob(x, *parts(model))
    g = Generator().manual_seed(seed)
    with torch.no_grad():
        weights = log_weights(model, x, 5, g)
        torch.testing.assert_close(weights, truth.expand(5, 6), rtol=0, atol=1e-10)
        for k in (1, 2, 50):
            torch.testing.assert_close(importance_bound(model, x, k, g), truth, rtol=0, atol=1e-10)


@torch.no_grad()
def test_the_elbo_of_any_guess_is_its_closed_form_and_below_the_likelihood() -> None:
    model, x = linear(), rows()
    mean, log_scale = model.posterior(x)
    S = torch.diag_embed((2 * log_scale).exp())
    expected = expected_bound(x, *parts(model), mean, S)
    g = Generator().manual_seed(0)
    for draws in (
        all_log_weights(model, x, 800, g),
        torch.stack([model.bound(x, generator=g, draws=1) for _ in range(800)]),
    ):
        stderr = draws.std(0) / math.sqrt(800)  # 5 standard errors of 6 means: P < 1e-5
        assert bool(((draws.mean(0) - expected).abs() < 5 * stderr).all())
    assert bool(((elbo(model, x, 800, g) - expected).abs() < 5 * stderr).all())
    assert bool((expected < marginal_log_prob(x, *parts(model)) - 0.01).all())


@torch.no_grad()
def test_the_bound_rises_with_k_to_the_likelihood_and_not_above() -> None:
    model = exact()
    model.encoder[1][0].bias += torch.tensor([0.4, 0.4, 0.3, 0.3], dtype=torch.float64)  # wide and shifted
    x = model.sample(4000, generator=Generator().manual_seed(3))
    truth, g = marginal_log_prob(x, *parts(model)), Generator().manual_seed(0)
    off = [importance_bound(model, x, k, g) - truth for k in (1, 4, 16)]
    for lower, higher in pairwise(off):
        rise = higher - lower  # independent draws: 4 standard errors, P < 1e-4
        assert float(rise.mean()) > 4 * float(rise.std()) / math.sqrt(4000)
    off.append(importance_bound(model, x[:200], 1024, g) - truth[:200])
    assert all(float(o.mean()) < 4 * float(o.std()) / math.sqrt(len(o)) for o in off)
    assert float(off[-1].abs().mean()) < 0.05


@torch.no_grad()
def test_of_a_bent_decoder_it_tends_to_the_integral_over_codes() -> None:
    """p(x) = int N(z) p(x|z) dz by the trapezoid rule over z in [-9, 9]; here of bits, whose p sums to 1."""
    torch.manual_seed(0)
    model = dense_vae(3, code=1, hidden=(5,), activation="tanh", decoder="bernoulli").double()
    for parameter in model.decoder.parameters():
        parameter.mul_(3)
    pictures = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    z = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    prior = Normal(0.0, 1.0).log_prob(z)
    likelihood = torch.stack([model.log_likelihood(x.expand(len(z), 3), z[:, None]) for x in pictures])
    truth = torch.trapezoid((prior + likelihood).exp(), z, dim=1)
    assert float(truth.sum()) == pytest.approx(1.0, abs=1e-9)
    estimate = importance_bound(model, pictures, 20_000, Generator().manual_seed(0))
    torch.testing.assert_close(estimate, truth.log(), rtol=0, atol=0.03)
    lower = elbo(model, pictures, 500, Generator().manual_seed(0))
    assert bool((lower < truth.log() + 0.02).all())


@torch.no_grad()
def test_pieces_bound_the_memory_and_do_not_change_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pieces(10, 20_000) == [1] * 10
    assert pieces(10, 30_000) == [1] * 10
    assert pieces(10, 5_000) == [4, 4, 2]
    assert pieces(8, 5_000) == [4, 4]
    with pytest.raises(ValueError, match="at least 1: got 0"):
        pieces(0, 5)
    model, x = exact(), rows()
    truth = marginal_log_prob(x, *parts(model))
    monkeypatch.setattr(vae_bounds, "ROWS", 20)
    g = Generator().manual_seed(0)
    torch.testing.assert_close(importance_bound(model, x, 10, g), truth, rtol=0, atol=1e-10)
    assert all_log_weights(model, x, 10, g).shape == (10, 6)


def test_the_objective_is_in_model_units_and_beta_weighs_the_divergence_alone() -> None:
    model, x = linear(), rows()
    scale = Standardize(torch.ones(4, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64))
    whole, values = Preprocessed(scale, model), []
    for beta in (0.0, 1.0, 4.0):
        model.beta = beta
        values.append(negative_elbo(whole, Batch((x,)), Generator().manual_seed(0)))
    inside = (x - 1) / 2
    mean, log_scale = model.posterior(inside)
    kl = divergence(mean, log_scale)
    torch.testing.assert_close(values[1] - values[0], kl)
    torch.testing.assert_close(values[2] - values[1], 3 * kl)
    bound = model.bound(inside, generator=Generator().manual_seed(0), draws=1)
    torch.testing.assert_close(values[1], -bound)


@torch.no_grad()
def test_labels_reach_the_decoder_of_a_conditional_model_alone() -> None:
    torch.manual_seed(0)
    model = conditional_vae(4, 3, code=2, hidden=(6,)).double()
    x, label = rows(), torch.tensor([0, 1, 2, 0, 1, 2])
    given = negative_elbo(model, Batch((x,), label), Generator().manual_seed(0))
    assert not torch.equal(
        given, negative_elbo(model, Batch((x,), label.flip(0)), Generator().manual_seed(0))
    )
    # exact for the label, not for all: log p(x) = log mean_y p(x|y), by importance weights for each label
    by_label = [
        importance_bound(model, x, 3000, Generator().manual_seed(1), label.new_full((6,), y))
        for y in range(3)
    ]
    own = importance_bound(model, x, 3000, Generator().manual_seed(1), label)
    torch.testing.assert_close(own, torch.stack(by_label)[label, torch.arange(6)], rtol=1e-9, atol=1e-9)
    mixed = importance_bound(model, x, 3000, Generator().manual_seed(1))
    expected = torch.stack(by_label).logsumexp(0) - math.log(3)
    torch.testing.assert_close(mixed, expected, rtol=1e-9, atol=1e-9)
    ignored = negative_elbo(linear(), Batch((x,), label), Generator().manual_seed(0))
    assert torch.equal(ignored, negative_elbo(linear(), Batch((x,)), Generator().manual_seed(0)))


def test_a_linear_decoder_learns_probabilistic_pca() -> None:
    """The ELBO, fixed draws, 32 for each row, ends within 0.03 nats of Tipping and Bishop's maximum."""
    g = Generator().manual_seed(0)
    x = torch.randn(150, 4, generator=g).double() * torch.tensor([2.0, 1.2, 0.4, 0.3]).double()
    x = x @ torch.linalg.qr(torch.randn(4, 4, generator=g).double()).Q + 1
    centered = x - x.mean(0)
    spectrum = torch.linalg.svdvals(centered).square() / len(x)
    best = float(most_likely(spectrum, 2))
    torch.manual_seed(0)
    model, many = dense_vae(4, code=2, hidden=()).double(), x.repeat(32, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=150, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        mean = negative_elbo(model, Batch((many,)), Generator().manual_seed(1)).mean()
        mean.backward()
        return mean

    optimizer.step(loss)
    with torch.no_grad():
        likelihood = float(marginal_log_prob(x, *parts(model)).mean())
        mean, log_scale = model.posterior(x)
        S = torch.diag_embed((2 * log_scale).exp())
        bound = float(expected_bound(x, *parts(model), mean, S).mean())
    assert bound <= likelihood <= best + 1e-10
    assert best - bound < 0.03


def test_a_larger_beta_buys_a_smaller_rate_for_more_distortion() -> None:
    """At the minimum of D + beta R, fixed draws: for any model R falls and D rises with beta."""
    g = Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=g, dtype=torch.float64) * torch.tensor([2.0, 1.0, 0.3]).double()
    many, found = x.repeat(4, 1), []
    for beta in (0.5, 1.0, 2.0, 4.0):
        torch.manual_seed(0)
        model = dense_vae(3, code=2, hidden=(), beta=beta).double()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=50, line_search_fn="strong_wolfe")

        def loss(model: VAE = model, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            mean = negative_elbo(model, Batch((many,)), Generator().manual_seed(1)).mean()
            mean.backward()
            return mean

        optimizer.step(loss)
        rate = float(divergence(*model.posterior(many)).mean().detach())
        found.append((rate, float(loss().detach()) - beta * rate))
    for (rate, distortion), (less, more) in pairwise(found):
        assert less < rate - 0.05
        assert more > distortion + 0.05


def test_on_two_blobs_the_elbo_nears_the_entropy() -> None:
    """Two blobs 8 deviations apart have entropy log 2 + log(2 pi e s^2) = 2.145; a normal law pays 2.868."""
    torch.manual_seed(0)
    g = Generator().manual_seed(0)

    def draw(n: int) -> Tensor:
        side = 4.0 * torch.randint(0, 2, (n, 1), generator=g) - 2
        return torch.randn(n, 2, generator=g) / 2 + side * torch.tensor([1.0, 0.0])

    steps, model = 400, dense_vae(2, code=1, hidden=(64,), activation="tanh")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        negative_elbo(model, Batch((draw(128),)), g).mean().backward()
        optimizer.step(), schedule.step()
    entropy = math.log(2) + math.log(2 * math.pi * math.e / 4)
    with torch.no_grad():
        cost = negative_elbo(model, Batch((draw(4000),)), g)
    error = 4 * float(cost.std()) / math.sqrt(4000)  # P < 1e-4
    assert entropy - error < float(cost.mean()) < entropy + 0.5
