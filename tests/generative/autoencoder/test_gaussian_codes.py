"""Divergences of normal codes against torch's, and gradients through a draw against closed forms."""

import math

import pytest
import torch
from torch import Generator
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from margin.generative.autoencoder.distributions import (
    divergence,
    divergence_by_coordinate,
    full_divergence,
    reparametrized,
)
from margin.math.probability.score_function import score_function_gradient


def codes(seed: int, batch: int = 5, m: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    g = Generator().manual_seed(seed)
    mean, log_scale = torch.randn(2, batch, m, generator=g, dtype=torch.float64)
    return 2 * mean, log_scale


@pytest.mark.parametrize("seed", range(5))
def test_the_diagonal_divergence_is_torchs(seed: int) -> None:
    mean, log_scale = codes(seed)
    q = Independent(Normal(mean, log_scale.exp()), 1)
    p = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    torch.testing.assert_close(divergence(mean, log_scale), kl_divergence(q, p), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_full_divergence_is_torchs_and_the_diagonals(seed: int) -> None:
    mean, log_scale = codes(seed)
    A = torch.randn(5, 4, 4, generator=Generator().manual_seed(seed), dtype=torch.float64)
    S = A @ A.mT + 0.1 * torch.eye(4, dtype=torch.float64)
    p = MultivariateNormal(torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64))
    expected = kl_divergence(MultivariateNormal(mean, S), p)
    torch.testing.assert_close(full_divergence(mean, S), expected, rtol=1e-11, atol=1e-11)
    diagonal = full_divergence(mean, torch.diag_embed((2 * log_scale).exp()))
    torch.testing.assert_close(diagonal, divergence(mean, log_scale), rtol=1e-12, atol=1e-12)


def test_it_is_summed_over_the_code_and_not_averaged() -> None:
    mean, log_scale = torch.ones(3, 10), torch.zeros(3, 10)
    assert divergence(mean, log_scale).tolist() == [5.0] * 3  # the mean over coordinates would be 0.5
    assert full_divergence(mean, torch.eye(10).expand(3, 10, 10)).tolist() == [5.0] * 3


def test_it_is_zero_at_the_standard_normal_alone_and_exact_beside_it() -> None:
    zero = torch.zeros(1, 3)
    assert float(divergence(zero, zero)) == 0.0
    for k in range(3):
        off = zero.clone()
        off[0, k] = 1e-4
        # to second order mu^2 / 2, and (log s)^2: in float32 s^2 - 1 - log s^2 would be lost in rounding
        assert float(divergence(off, zero)) == pytest.approx(5e-9, rel=1e-6)
        assert float(divergence(zero, off)) == pytest.approx(1e-8, rel=0.01)
    shares = divergence_by_coordinate(torch.tensor([[0.0, 2.0]]), torch.tensor([[math.log(2.0), 0.0]]))
    assert shares[0].tolist() == pytest.approx([(4 - math.log(4) - 1) / 2, 2.0])


def test_a_covariance_that_is_none_is_refused() -> None:
    S = torch.eye(2).repeat(3, 1, 1)
    S[1, 1, 1] = -1.0
    with pytest.raises(ValueError, match="positive definite: got one that is not at 1"):
        full_divergence(torch.zeros(3, 2), S)


def test_the_gradient_of_a_draws_square_is_two_mu_and_two_s() -> None:
    n, mu, s = 200_000, 0.7, 1.3
    mean = torch.full((n, 1), mu, dtype=torch.float64, requires_grad=True)
    log_scale = torch.full((n, 1), math.log(s), dtype=torch.float64, requires_grad=True)
    z = reparametrized(mean, log_scale, Generator().manual_seed(0))
    by_mean, by_log = torch.autograd.grad(z.square().sum(), (mean, log_scale))
    # dz/dlog s = s eps; P(a mean is off by more than 4 of its standard errors) < 1e-4 each
    for found, expected in ((by_mean, 2 * mu), (by_log / s, 2 * s)):
        assert abs(float(found.mean()) - expected) < 4 * float(found.std()) / math.sqrt(n)
    assert float(z.detach().var()) == pytest.approx(s**2, rel=0.02)


def test_its_variance_is_below_that_of_the_score() -> None:
    """Of d/dmu E z^2 at mu = 1, s = 1: 4 s^2 = 4 by the draw; z^2 (z - mu) has variance 30 by the score."""
    n = 40_000
    mean = torch.ones(n, 1, dtype=torch.float64, requires_grad=True)
    z = reparametrized(mean, torch.zeros(n, 1, dtype=torch.float64), Generator().manual_seed(1))
    (pathwise,) = torch.autograd.grad(z.square().sum(), mean)
    x = z.detach()[:, 0]
    score = score_function_gradient(
        x.square(), lambda mu, x: -(x - mu).square() / 2, torch.tensor(1.0, dtype=torch.float64), x
    )
    assert float(pathwise.var()) == pytest.approx(4.0, rel=0.05)
    assert n * float(score.stderr) ** 2 == pytest.approx(30.0, rel=0.15)
    assert abs(float(pathwise.mean() - score.value)) < 5 * math.sqrt(34 / n)


def test_one_seed_gives_one_draw_and_the_type_is_kept() -> None:
    mean, log_scale = codes(0)
    first, second = (reparametrized(mean, log_scale, Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.dtype == torch.float64
    assert not torch.equal(first, reparametrized(mean, log_scale, Generator().manual_seed(4)))
