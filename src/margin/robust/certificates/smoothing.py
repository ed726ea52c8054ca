r"""Randomized smoothing: a classifier made certifiable by Gaussian noise (Cohen, Rosenfeld & Kolter, 2019).

.. math:: g(x) = \arg\max_c \mathbb P(f(x + \mathcal N(0, \sigma^2 I)) = c)

If its class A has probability at least p > 1/2, g is constant in the Euclidean ball of radius
:math:`\sigma\,\Phi^{-1}(p)` around x (Theorem 1). The probability is bounded by Clopper and Pearson from
draws, so each radius holds with probability 1 - alpha. It is a certificate of g, not of f; the noise is cut
by no domain.
"""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.engine.evaluation import eval_mode
from margin.theory.prediction.risk import clopper_pearson

CHUNK = 1000
"""Noisy inputs at once."""

ABSTAINED = -1
"""The class of an example at which no class is stated."""


class Smoothed(NamedTuple):
    """What is stated of the smoothed classifier at each example.

    Args:
        classes: Its class, -1 where it abstains.
        radius: The Euclidean radius in which it is constant; 0 where it abstains.
        probability: The lower confidence bound of the class's probability under noise.
    """

    classes: Int[Tensor, " n"]
    radius: Float[Tensor, " n"]
    probability: Float[Tensor, " n"]


def ceiling(draws: int, sigma: float, alpha: float) -> float:
    r"""The largest radius that n draws can certify, :math:`\sigma\,\Phi^{-1}(\alpha^{1/n})`; at least 0.

    It is reached where every draw has the same class (Cohen et al., 2019, Section 3.2.2).
    """
    share = alpha ** (1 / draws)
    return sigma * NormalDist().inv_cdf(share) if 0.5 < share < 1 else 0.0


def draws_for(alpha: float, radius: float = 0.0, sigma: float = 1.0) -> int:
    """The least number of draws that can certify more than a radius: alpha^(1 / n) > Phi(radius / sigma)."""
    return math.floor(math.log(alpha) / math.log(NormalDist().cdf(radius / sigma))) + 1


def check_noise(sigma: float, draws: int, alpha: float) -> None:
    """Refuse options by which nothing could be certified.

    Raises:
        ValueError: sigma is not positive, alpha is no probability, or the draws are too few for any radius.
    """
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma must be positive and finite: got {sigma}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must be in (0, 0.5): got {alpha}")
    if draws < 1 or ceiling(draws, sigma, alpha) == 0:
        raise ValueError(
            f"draws must be at least {draws_for(alpha)} to certify any radius at alpha {alpha:g}: got {draws}"
        )


@torch.no_grad()
def class_counts(
    model: nn.Module,
    x: Float[Tensor, " *shape"],
    sigma: float,
    draws: int,
    generator: Generator,
    classes: Callable[[Any], Any] = lambda outputs: outputs,
) -> Int[Tensor, " classes"]:
    """How often each class is the largest at noisy copies of one input; the model is asked as it stands.

    Raises:
        ValueError: An output is NaN, or the scores are no matrix.
    """
    counts, noisy = torch.zeros(0, dtype=torch.long), torch.empty(0)
    for size in _sizes(draws):
        if len(noisy) != size:
            noisy = torch.empty((size, *x.shape), dtype=x.dtype, device=generator.device)
        torch.randn(noisy.shape, generator=generator, dtype=x.dtype, out=noisy)
        moved = noisy.to(x.device).mul_(sigma).add_(x)
        scores = classes(model(moved))
        if scores.ndim != 2 or bool(scores.isnan().any()):
            raise ValueError(f"smoothing needs one score a class, no NaN: got shape {tuple(scores.shape)}")
        found = torch.bincount(scores.argmax(1), minlength=scores.shape[1]).cpu()
        counts = counts + found if len(counts) else found
    return counts


def _sizes(draws: int) -> Iterator[int]:
    while draws > 0:
        yield min(CHUNK, draws)
        draws -= CHUNK


# Eight parameters, because they are the algorithm's.
def certify(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    sigma: float,
    generator: Generator,
    *,
    select: int = 100,
    draws: int = 1000,
    alpha: float = 0.001,
    classes: Callable[[Any], Any] = lambda outputs: outputs,
) -> Smoothed:
    """The class of the smoothed classifier and a radius in which it is constant (CERTIFY).

    The class is chosen by draws of its own, then its probability is bounded by others: a bound on the most
    frequent class of the same draws would not hold. Where the bound is not above 1/2 it abstains.

    Args:
        model: The base classifier, asked in evaluation mode; left without a trace.
        x: Inputs.
        sigma: Standard deviation of the noise, in the units of the inputs, > 0.
        generator: Draws the noise.
        select: Draws that choose the class, n0 >= 1.
        draws: Draws that bound its probability, n.
        alpha: Probability with which one radius may be too large, in (0, 0.5).
        classes: ``outputs -> one score per class``.

    Raises:
        ValueError: An option is out of range, or the draws are too few for any radius.

    Reference: Cohen, Rosenfeld & Kolter (2019), "Certified adversarial robustness via randomized smoothing",
    Theorem 1 and Section 3.2.2 (CERTIFY).
    """
    check_noise(sigma, draws, alpha)
    if select < 1:
        raise ValueError(f"select must be at least 1: got {select}")
    rows = []
    with eval_mode(model):
        for point in x:
            top = int(class_counts(model, point, sigma, select, generator, classes).argmax())
            hits = int(class_counts(model, point, sigma, draws, generator, classes)[top])
            low, _ = clopper_pearson(hits, draws, level=1 - 2 * alpha)
            sure = low > 0.5
            rows.append((top if sure else ABSTAINED, sigma * NormalDist().inv_cdf(low) if sure else 0.0, low))
    found = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3)
    return Smoothed(found[:, 0].long(), found[:, 1], found[:, 2])


def predict(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    sigma: float,
    generator: Generator,
    *,
    draws: int = 1000,
    alpha: float = 0.001,
    classes: Callable[[Any], Any] = lambda outputs: outputs,
) -> Int[Tensor, " n"]:
    """The class of the smoothed classifier, or -1 where the draws do not tell it (PREDICT).

    A class that is not the most probable one is returned with probability alpha at most: of the draws that
    fall on the two most frequent classes the first must have more than a fair coin would give (two-sided
    binomial test; Hung & Fithian, 2019).

    Args:
        model: The base classifier, asked in evaluation mode; left without a trace.
        x: Inputs.
        sigma: Standard deviation of the noise, > 0.
        generator: Draws the noise.
        draws: Draws an input, n.
        alpha: Level of the test, in (0, 0.5).
        classes: ``outputs -> one score per class``.

    Raises:
        ValueError: An option is out of range.

    Reference: Cohen, Rosenfeld & Kolter (2019), Section 3.2.1 (PREDICT), Proposition 1.
    """
    from scipy.stats import binomtest

    check_noise(sigma, draws, alpha)
    found = []
    with eval_mode(model):
        for point in x:
            counts = class_counts(model, point, sigma, draws, generator, classes)
            most = counts.topk(min(2, len(counts)))
            first, both = int(most.values[0]), int(most.values.sum())
            found.append(int(most.indices[0]) if binomtest(first, both).pvalue <= alpha else ABSTAINED)
    return torch.tensor(found)
