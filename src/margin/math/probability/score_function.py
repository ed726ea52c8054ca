"""The gradient of an expectation by the score of its law: the log-derivative trick (Williams 1992).

Nothing need be known of f but its values: it may be no function that can be differentiated.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class ScoreGradient(NamedTuple):
    """An estimated gradient, its standard error, and the mean score, which is 0 up to its own error."""

    value: Tensor
    stderr: Tensor
    score: Tensor
    score_stderr: Tensor


def scores(
    log_density: Callable[[Tensor, Tensor], Tensor], theta: Float[Tensor, "*shape"], samples: Tensor
) -> Float[Tensor, " n *shape"]:
    r"""The score of each sample, :math:`\nabla_\theta \log p_\theta(x_i)`.

    Args:
        log_density: ``(theta, x) -> log p_theta(x)``, a scalar for one sample.
        theta: Where the gradient is taken.
        samples: One a row.

    Reference: Casella and Berger 2002, Section 7.3.2 (the score has mean 0).
    """
    return torch.func.vmap(torch.func.grad(log_density), in_dims=(None, 0))(theta, samples)


def score_function_gradient(
    values: Float[Tensor, " n"],
    log_density: Callable[[Tensor, Tensor], Tensor],
    theta: Float[Tensor, "*shape"],
    samples: Tensor,
    *,
    baseline: float = 0.0,
) -> ScoreGradient:
    r"""An unbiased estimate of the gradient of E[f(x)], x from p_theta, with its error.

    .. math:: \nabla_\theta\, \mathbb{E}_{p_\theta}[f] = \mathbb{E}[(f - b)\, \nabla_\theta \log p_\theta]
        \quad\text{because}\quad \nabla_\theta p_\theta = p_\theta \nabla_\theta \log p_\theta

    for any constant b, as the score has mean 0; b near the mean of f makes the error smaller. A b that is
    computed from the same samples biases the estimate by a share of about 1 / n.

    Args:
        values: f of each sample; f does not depend on theta.
        log_density: ``(theta, x) -> log p_theta(x)``, a scalar for one sample.
        theta: Where the gradient is taken.
        samples: Independent draws from p_theta, one a row; at least two.
        baseline: b.

    Raises:
        ValueError: There are fewer than two samples, not one value for each, or b is not finite.

    Reference: Williams 1992, Theorem 1; Glynn 1987; Mohamed, Rosca, Figurnov and Mnih 2020, Section 4.
    """
    if len(samples) < 2 or len(values) != len(samples):
        raise ValueError(
            f"a value for each of two samples or more: got {len(values)} values, {len(samples)} samples"
        )
    if not math.isfinite(baseline):
        raise ValueError(f"baseline must be finite: got {baseline}")
    score = scores(log_density, theta, samples)
    terms = (values - baseline).reshape(-1, *[1] * theta.ndim) * score
    root = math.sqrt(len(samples))
    return ScoreGradient(terms.mean(0), terms.std(0) / root, score.mean(0), score.std(0) / root)
