"""Linear decoders: the closed forms against torch's multivariate normal, each other, and PPCA."""

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from margin.classic.factors.ppca import PPCA
from margin.generative.autoencoder.vae_bounds import expected_bound, marginal_log_prob, posterior


def model(seed: int = 0, d: int = 5, m: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(seed)
    W = torch.randn(d, m, generator=g, dtype=torch.float64)
    b = torch.randn(d, generator=g, dtype=torch.float64)
    x = 2 * torch.randn(7, d, generator=g, dtype=torch.float64)
    return x, W, b, torch.tensor(0.6, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_the_marginal_is_the_dense_normals_and_probabilistic_pcas(seed: int) -> None:
    x, W, b, s = model(seed)
    dense = MultivariateNormal(b, W @ W.T + s**2 * torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(marginal_log_prob(x, W, b, s), dense.log_prob(x), rtol=1e-12, atol=1e-11)
    ppca = PPCA(5).double()
    with torch.no_grad():
        ppca.mean.copy_(b), ppca.loadings.copy_(W), ppca.noise_variance.copy_(s**2)
    torch.testing.assert_close(marginal_log_prob(x, W, b, s), ppca.log_prob(x).detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_posterior_is_bayes_rule(seed: int) -> None:
    """log p(z) + log p(x|z) - log p(x) = log p(z|x), at any z."""
    x, W, b, s = model(seed)
    mean, S = posterior(x, W, b, s)
    z = torch.randn(7, 2, generator=Generator().manual_seed(9), dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    joint = MultivariateNormal(torch.zeros(2, dtype=torch.float64), eye).log_prob(z)
    joint = joint + torch.distributions.Normal(z @ W.T + b, s).log_prob(x).sum(1)
    expected = joint - marginal_log_prob(x, W, b, s)
    torch.testing.assert_close(MultivariateNormal(mean, S).log_prob(z), expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_with_the_exact_posterior_the_elbo_is_the_likelihood(seed: int) -> None:
    x, W, b, s = model(seed)
    mean, S = posterior(x, W, b, s)
    bound = expected_bound(x, W, b, s, mean, S.expand(7, 2, 2))
    torch.testing.assert_close(bound, marginal_log_prob(x, W, b, s), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_with_another_guess_the_gap_is_its_divergence_from_the_posterior(seed: int) -> None:
    x, W, b, s = model(seed)
    mean, S = posterior(x, W, b, s)
    g = Generator().manual_seed(seed + 10)
    guess = mean + torch.randn(7, 2, generator=g, dtype=torch.float64)
    scales = torch.rand(7, 2, generator=g, dtype=torch.float64) + 0.1
    Q = torch.diag_embed(scales.square())
    gap = marginal_log_prob(x, W, b, s) - expected_bound(x, W, b, s, guess, Q)
    expected = kl_divergence(MultivariateNormal(guess, Q), MultivariateNormal(mean, S.expand(7, 2, 2)))
    torch.testing.assert_close(gap, expected, rtol=0, atol=1e-10)
    assert bool((gap > 0.01).all())
