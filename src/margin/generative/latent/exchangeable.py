"""Exchangeable bits (de Finetti 1937): mixtures of coins, and draws without replacement that are none.

An infinite sequence whose law does not depend on the order is a mixture of independent ones. A finite one
need not be: mixtures have covariances of at least 0.
"""

import itertools

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def _parameters(a: float, b: float) -> tuple[Tensor, Tensor]:
    if not (0 < a < float("inf") and 0 < b < float("inf")):
        raise ValueError(f"a and b must be positive and finite: got {a}, {b}")
    return torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)


def urn_log_prob(bits: Int[Tensor, " length"], a: float, b: float) -> Float[Tensor, ""]:
    """The log-probability of bits drawn from an urn, each put back with another of its kind, in nats.

    Args:
        bits: Of 0 and 1, in order.
        a: Ones in the urn at first, positive.
        b: Zeros.

    Raises:
        ValueError: A number is not positive and finite.

    Reference: Eggenberger and Polya 1923, Section 2; Blackwell and MacQueen 1973, Section 2.
    """
    one, zero = _parameters(a, b)
    before = torch.arange(len(bits)).double()
    ones = bits.double().cumsum(0) - bits
    chance = torch.where(bits > 0, one + ones, zero + before - ones) / (one + zero + before)
    return chance.log().sum()


def beta_bernoulli_log_prob(bits: Int[Tensor, " length"], a: float, b: float) -> Float[Tensor, ""]:
    r"""The same as a mixture of coins: log of :math:`\int z^s (1 - z)^{n - s} \mathrm{Beta}(z; a, b) dz`.

    Args:
        bits: Of 0 and 1; s of n are 1.
        a: Of the Beta law of z, positive.
        b: Its other parameter.

    Raises:
        ValueError: A parameter is not positive and finite.

    Reference: Bernardo and Smith 1994, Section 4.3.1, Proposition 4.1.
    """
    one, zero = _parameters(a, b)
    s, n = bits.double().sum(), len(bits)

    def log_beta(x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()

    return log_beta(one + s, zero + n - s) - log_beta(one, zero)


def urn(count: int, length: int, a: float, b: float, *, generator: Generator) -> Int[Tensor, "count length"]:
    """Sequences of bits drawn from urns.

    Args:
        count: Urns.
        length: Draws from each.
        a: Ones in an urn at first, positive.
        b: Zeros.
        generator: What is drawn from.

    Raises:
        ValueError: A number is not positive and finite.
    """
    one, zero = _parameters(a, b)
    u = torch.rand(count, length, generator=generator, dtype=torch.float64)
    bits, ones = torch.zeros(count, length, dtype=torch.int64), torch.zeros(count, dtype=torch.float64)
    for n in range(length):
        bits[:, n] = (u[:, n] < (one + ones) / (one + zero + n)).long()
        ones += bits[:, n]
    return bits


def is_exchangeable(p: Float[Tensor, "*outcomes"], tolerance: float = 1e-12) -> bool:
    """Whether a table of probabilities of sequences is the same under every permutation of its axes."""
    turned = (p.permute(order) for order in itertools.permutations(range(p.ndim)))
    return all(other.shape == p.shape and bool((other - p).abs().max() <= tolerance) for other in turned)


def pair_covariance(p: Float[Tensor, "2 2"]) -> Float[Tensor, ""]:
    """The covariance of two bits, p(1, 1) - p(1) p'(1).

    Of a mixture of independent pairs of one law it is at least 0: the variance of the chance of a 1.

    Args:
        p: The probability of each pair.
    """
    return p[1, 1] - p[1].sum() * p[:, 1].sum()


def without_replacement(ones: int, total: int) -> Float[Tensor, "2 2"]:
    """The law of two draws without replacement from ``total`` bits, ``ones`` of them 1: exchangeable.

    Its covariance is -p(1 - p) / (total - 1), below 0, so it is no mixture of independent pairs.

    Args:
        ones: From 0 to total.
        total: At least 2.

    Raises:
        ValueError: Two cannot be drawn, or there are more ones than bits.

    Reference: Diaconis and Freedman 1980, Section 1.
    """
    if not (total >= 2 and 0 <= ones <= total):
        raise ValueError(f"two draws need 2 bits or more, and ones among them: got {ones} ones of {total}")
    kinds = torch.tensor([total - ones, ones], dtype=torch.float64)
    return (kinds[:, None] * kinds - kinds.diag()) / (total * (total - 1))
