"""Exchangeable bits: the urn is the integral, its order does not matter, and two draws are no mixture."""

import itertools
import math

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import beta
from torch import Generator, Tensor

from margin.generative.latent.exchangeable import (
    beta_bernoulli_log_prob,
    urn,
    urn_log_prob,
    without_replacement,
)


def is_exchangeable(p: Tensor, tolerance: float = 1e-12) -> bool:
    """Whether a table of probabilities of sequences is the same under every permutation of its axes."""
    turned = (p.permute(order) for order in itertools.permutations(range(p.ndim)))
    return all(other.shape == p.shape and bool((other - p).abs().max() <= tolerance) for other in turned)


def pair_covariance(p: Tensor) -> Tensor:
    """The covariance of two bits, p(1, 1) - p(1) p'(1).

    Of a mixture of independent pairs of one law it is at least 0: the variance of the chance of a 1.

    Args:
        p: The probability of each pair.
    """
    return p[1, 1] - p[1].sum() * p[:, 1].sum()


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 2.0), (3.0, 1.7)])
def test_the_urn_is_the_integral_over_coins_for_all_sequences_of_four(a: float, b: float) -> None:
    law, total = beta(a, b), 0.0
    integrals = [quad(lambda z, s=s: z**s * (1 - z) ** (4 - s) * law.pdf(z), 0, 1)[0] for s in range(5)]
    for bits in itertools.product((0, 1), repeat=4):
        x, s = torch.tensor(bits), sum(bits)
        assert float(urn_log_prob(x, a, b).exp()) == pytest.approx(integrals[s], rel=1e-6)
        torch.testing.assert_close(urn_log_prob(x, a, b), beta_bernoulli_log_prob(x, a, b))
        total += float(urn_log_prob(x, a, b).exp())
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_urns_law_is_exchangeable_and_its_covariance_is_that_of_the_coins() -> None:
    p = torch.empty(2, 2, 2, 2).double()
    for bits in itertools.product((0, 1), repeat=4):
        p[bits] = urn_log_prob(torch.tensor(bits), 2.0, 3.0).exp()
    assert is_exchangeable(p)
    variance = 2 * 3 / (25 * 6)  # of Beta(2, 3)
    assert float(pair_covariance(p.sum((2, 3)))) == pytest.approx(variance, abs=1e-12)
    p[0, 1, 0, 0] += 1e-6
    assert not is_exchangeable(p)
    assert not is_exchangeable(torch.ones(2, 3).double())


def test_two_draws_without_replacement_are_exchangeable_and_no_mixture() -> None:
    p = without_replacement(1, 2)
    assert p.tolist() == [[0.0, 0.5], [0.5, 0.0]]
    for ones, total in ((1, 2), (3, 7), (50, 100)):
        p, share = without_replacement(ones, total), ones / total
        assert float(p.sum()) == pytest.approx(1.0)
        assert is_exchangeable(p)
        covariance = -share * (1 - share) / (total - 1)
        assert float(pair_covariance(p)) == pytest.approx(covariance, abs=1e-12)
    # any mixture of coins is on the other side
    g = Generator().manual_seed(0)
    for _ in range(100):
        w, z = torch.rand(5, generator=g).double(), torch.rand(5, generator=g).double()
        coins = torch.stack((1 - z, z))
        mixed = torch.einsum("ik,jk,k->ij", coins, coins, w / w.sum())
        assert float(pair_covariance(mixed)) >= 0
    assert float(pair_covariance(without_replacement(2, 2))) == 0.0


def test_drawn_sequences_have_the_urns_law() -> None:
    """Eight frequencies within 4.6 deviations: fails for one seed in 30,000."""
    n = 20_000
    drawn = urn(n, 3, 0.5, 1.5, generator=Generator().manual_seed(0))
    found = (drawn @ torch.tensor([4, 2, 1])).bincount(minlength=8) / n
    for k, bits in enumerate(itertools.product((0, 1), repeat=3)):
        p = float(urn_log_prob(torch.tensor(bits), 0.5, 1.5).exp())
        assert float(found[k]) == pytest.approx(p, abs=4.6 * math.sqrt(p * (1 - p) / n))


def test_what_is_no_urn_is_refused() -> None:
    for a, b in ((0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)):
        for ask in (urn_log_prob, beta_bernoulli_log_prob):
            with pytest.raises(ValueError, match="a and b must be positive and finite"):
                ask(torch.tensor([1]), a, b)
    for ones, total in ((0, 1), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="two draws need 2 bits or more"):
            without_replacement(ones, total)
