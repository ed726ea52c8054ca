r"""The evidence of a Laplace approximation, and the prior and the noise that make it largest.

MacKay (1992), "A practical Bayesian framework for backpropagation networks", Equations 2.8 to 2.14; Immer et
al. (2021), Equation 3. With the eigenvalues of the curvature the evidence is a sum, and both variances at its
maximum are roots of one monotone function of one number: no learning rate, no iteration count.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

HALVINGS = 200
"""Steps of the bisection, of an interval of the logarithm: rounding ends it earlier."""

RANGE = (1e-12, 1e12)
"""Where the ratio of the noise's variance to the prior's is looked for."""


class Fit(NamedTuple):
    """What the evidence needs to know of a network at its weights.

    Args:
        eigenvalues: Of the Gauss-Newton matrix of the loss at noise 1.
        squares: The squared norm of the weights.
        loss: Of values the weighted sum of squared errors, above 0; of classes that of the cross-entropies.
        total: The weight of all examples.
        values: Whether it is a model of values, with noise, or of classes.
    """

    eigenvalues: Float[Tensor, " weights"]
    squares: Float[Tensor, ""]
    loss: Float[Tensor, ""]
    total: Float[Tensor, ""]
    values: bool


def log_likelihood(fit: Fit, noise: Tensor) -> Float[Tensor, ""]:
    """Of the training examples at the weights, in nats."""
    if not fit.values:
        return -fit.loss
    return -(fit.total * (2 * math.pi * noise).log() + fit.loss / noise) / 2


def log_evidence(fit: Fit, noise: Tensor, prior: Tensor) -> Float[Tensor, ""]:
    r"""The log marginal likelihood, by a Gaussian around the weights.

    .. math:: \log p(y \mid \theta) + \tfrac P2 \log d - \tfrac d2 \|\theta\|^2
        - \tfrac12 \sum_j \log(\lambda_j / s^2 + d)

    Args:
        fit: At the maximum of the joint density of values and weights.
        noise: s^2; of classes 1.
        prior: d, the precision of a weight.

    Reference: MacKay 1992, Equation 2.11; Immer et al. 2021, Equation 3.
    """
    shrunk = fit.eigenvalues / noise + prior
    occam = (len(shrunk) * prior.log() - shrunk.log().sum()) / 2
    return log_likelihood(fit, noise) - prior * fit.squares / 2 + occam


def determined(fit: Fit, ratio: Tensor) -> Float[Tensor, ""]:
    """How many weights the data decide: the sum of l / (l + ratio), ratio the noise's variance times d."""
    return (fit.eigenvalues / (fit.eigenvalues + ratio)).sum()


def most_evident(fit: Fit) -> tuple[Tensor, Tensor]:
    r"""The noise and the prior's precision of largest evidence, at these weights.

    .. math:: d = \gamma / \|\theta\|^2, \quad s^2 = E / (N - \gamma), \quad
        \gamma = \sum_j \lambda_j / (\lambda_j + d s^2)

    Both sides depend on r = d s^2 alone, and what is to be 0 rises with it: bisection finds the root. Of
    classes s^2 = 1. Where there is no root in :data:`RANGE` the end of it is taken.

    Reference: MacKay 1992, Equations 2.13 and 2.14; Bishop 2006, Equations 3.91 to 3.95.
    """
    one = torch.ones_like(fit.loss)

    def found(ratio: Tensor) -> tuple[Tensor, Tensor]:
        if not fit.values:
            return one, ratio
        noise = fit.loss / (fit.total - determined(fit, ratio))
        return noise, ratio / noise

    def rises(ratio: Tensor) -> bool:
        """Whether the root lies above."""
        gamma = determined(fit, ratio)
        if fit.values and bool(gamma >= fit.total):
            return True
        return bool(found(ratio)[1] * fit.squares < gamma)

    low, high = (torch.tensor(math.log(end), dtype=fit.loss.dtype) for end in RANGE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle.exp()) else (low, middle)
        if bool(high - low < 1e-14 * high.abs().clamp_min(1)):
            break
    return found(high.exp())
