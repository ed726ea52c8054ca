"""Mixtures of Gaussians of equal weight: what a sampled, averaged or exact posterior predicts of one number.

A Gaussian process predicts one Gaussian, an ensemble of M members the mean of M, a chain of S draws the mean
of S. Density, distribution function and quantiles are the mixture's own, not those of a Gaussian of its two
first moments. McLachlan and Peel (2000), Section 1.2.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Row = Float[Tensor, " rows"]

HALVINGS = 60
"""Steps of the bisection for a quantile: the interval shrinks to 2^-60 of its width."""

LEAST = 1e-6
"""The least variance that two outputs state."""


class Mixture(NamedTuple):
    r"""The law (1/S) sum_s N(m_s, v_s) of each of several numbers.

    Args:
        means: m_s, one component a row.
        variances: v_s >= 0; where all are 0 the law has no density.
    """

    means: Float[Tensor, "components rows"]
    variances: Float[Tensor, "components rows"]

    @property
    def mean(self) -> Row:
        """The expectation."""
        return self.means.mean(0)

    @property
    def variance(self) -> Row:
        """The law of total variance: the mean of the variances and the (biased) variance of the means."""
        return self.variances.mean(0) + self.means.var(0, correction=0)

    def log_density(self, y: Row) -> Row:
        """The log-density at y, in nats; infinite or NaN where every variance is 0."""
        squares = (y - self.means).square() / self.variances
        each = -(squares + self.variances.log() + math.log(2 * math.pi)) / 2
        return each.logsumexp(0) - math.log(len(self.means))

    def cdf(self, y: Row) -> Row:
        """The probability of a number up to y: uniform on [0, 1] at draws of the law itself."""
        z = (y - self.means) / self.variances.sqrt()
        z = torch.where(self.variances > 0, z, torch.where(y >= self.means, torch.inf, -torch.inf))
        return torch.special.ndtr(z).mean(0)

    def quantile(self, level: float) -> Row:
        """The number up to which the law has this probability, by bisection; of one component in closed form.

        Args:
            level: In (0, 1).

        Raises:
            ValueError: The level is not in (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be in (0, 1): got {level}")
        z = float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64)))
        each = self.means + z * self.variances.sqrt()
        low, high = each.amin(0), each.amax(0)  # a mixture's quantile lies between those of its components
        if len(each) == 1:
            return low
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def moved(self, shift: Tensor, scale: Tensor) -> "Mixture":
        """The law of shift + scale y: from a model's unit to the user's.

        Args:
            shift: What is added.
            scale: What it is multiplied by first.
        """
        return Mixture(shift + scale * self.means, scale.square() * self.variances)


def law_of(outputs: Float[Tensor, "components rows 2"]) -> Mixture:
    """The mixture of the laws N(m, softplus(u) + 1e-6), (m, u) the outputs of each component of a network.

    Reference: Lakshminarayanan, Pritzel and Blundell 2017, Section 2.2.1.
    """
    return Mixture(outputs[..., 0], F.softplus(outputs[..., 1]) + LEAST)
