r"""Label noise: which labels are likelier random than what the model says, made as sure as it is right.

A label y is taken for a draw from the model's probabilities at a temperature T, but for a share epsilon of
labels that are drawn from all K classes alike:

.. math:: P(y \mid x) = (1 - \epsilon)\, p_T(y \mid x) + \epsilon / K, \qquad p_T \propto p^{1/T}

Both numbers are fitted together to the held-out labels. Without the temperature a network that is too sure of
itself contradicts right labels too: after overfitting up to half of the labels that confident learning
(Northcutt, Jiang and Chuang 2021) suspects are right. Without the random share the temperature makes all
answers unsure. The model's surest mistakes look like wrong labels all the same: held-out labels are the only
evidence.

Lawrence and Schoelkopf (2001): labels that are flipped at random, with a rate that is fitted. Guo, Pleiss,
Sun and Weinberger (2017): the temperature.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from margin.core.deadline import check_deadline
from margin.math.seeds import mix

TEMPERATURES = 2.0 ** (torch.arange(-24, 33).double() / 8)
"""The temperatures that are tried, from 1/8 to 16, by steps of 9 %."""

MOST_FITTED = 20_000
"""Labels to which temperature and share are fitted at most: of more, some are drawn."""

AT_ONCE = 100_000_000
"""Probabilities that are computed for that, temperatures times labels times classes."""

GAIN = 2.706
"""Log-likelihood that the random share must add: less is chance in 99 of 100 samples without one, by the half
of a chi-square law of a number at the end of its range (Self and Liang 1987, Case 5)."""

HALVINGS = 30
"""Halvings of [0, 1] in which the share is found."""

LEAST = 1e-300
"""The least probability whose logarithm is taken."""


class Noise(NamedTuple):
    """A fitted temperature and share of random labels; the share is 0 where it adds too little.

    Args:
        temperature: T, what the logarithms of the probabilities are divided by.
        share: epsilon.
    """

    temperature: float
    share: float


class Suspects(NamedTuple):
    """Which labels are likely wrong, the class that is likelier, and the probability that each is random."""

    found: Bool[Tensor, " n"]
    likely: Int[Tensor, " n"]
    random: Float[Tensor, " n"]


def _own(
    probabilities: Float[Tensor, "n classes"], labels: Int[Tensor, " n"], temperature: float
) -> Float[Tensor, " n"]:
    """The probability of each label at a temperature."""
    scores = probabilities.double().clamp_min(LEAST).log() / temperature
    return (scores.gather(1, labels[:, None]).squeeze(1) - scores.logsumexp(1)).exp().clamp_min(LEAST)


def fitted_noise(
    probabilities: Float[Tensor, "n classes"],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"] | None = None,
) -> Noise:
    """The temperature and the share of random labels that make the labels likeliest, together.

    For each temperature the share is found by bisection, in which the likelihood is concave.

    Args:
        probabilities: A distribution over the classes per row, of a model that was not fitted to the row.
        labels: The given labels, 0 .. K-1.
        weight: Weight of each row; None: 1. They count as many rows of equal weight as they are worth.

    Reference: Lawrence and Schoelkopf 2001, Section 2; Guo, Pleiss, Sun and Weinberger 2017, Section 4.2.
    """
    n, classes = probabilities.shape
    most = min(MOST_FITTED, max(AT_ONCE // (len(TEMPERATURES) * classes), 1000))
    if n > most:
        some = torch.randperm(n, generator=Generator().manual_seed(mix(0, 41)))[:most]
        probabilities, labels = probabilities[some], labels[some]
        weight = None if weight is None else weight[some]
    w = torch.ones(len(labels), dtype=torch.float64) if weight is None else weight.double()
    w = w * (w.sum() / w.square().sum())
    rows = []
    for temperature in TEMPERATURES.tolist():
        check_deadline()
        rows.append(_own(probabilities, labels, temperature))
    p = torch.stack(rows)
    uniform = torch.full_like(p, 1 / classes)
    low, high = torch.zeros_like(p[:, :1]), torch.ones_like(p[:, :1])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rises = ((uniform - p) / torch.lerp(p, uniform, middle)) @ w > 0
        low, high = torch.where(rises[:, None], middle, low), torch.where(rises[:, None], high, middle)
    with_share, without = (torch.lerp(p, uniform, share).log() @ w for share in (low, 0 * low))
    best = int(with_share.argmax())
    if float(with_share[best] - without.max()) < GAIN:
        return Noise(float(TEMPERATURES[without.argmax()]), 0.0)
    return Noise(float(TEMPERATURES[best]), float(low[best]))


def random_labels(
    probabilities: Float[Tensor, "n classes"], labels: Int[Tensor, " n"], noise: Noise
) -> Suspects:
    r"""The labels that are random with a probability above 1/2, where another class is the likeliest.

    .. math:: P(\mathrm{random} \mid x, y) =
        \frac{\epsilon / K}{(1 - \epsilon)\, p_T(y \mid x) + \epsilon / K}

    Args:
        probabilities: A distribution over the classes per row.
        labels: The given labels.
        noise: What was fitted.
    """
    classes = probabilities.shape[1]
    part = max(1, MOST_FITTED * 50 // classes)
    own = torch.cat(
        [
            _own(p, y, noise.temperature)
            for p, y in zip(probabilities.split(part), labels.split(part), strict=True)
        ]
    )
    by_chance = noise.share / classes
    random = by_chance / ((1 - noise.share) * own + by_chance) if noise.share else torch.zeros_like(own)
    likely = probabilities.argmax(1)
    return Suspects((random > 0.5) & (likely != labels), likely, random)


def still_right(suspects: Suspects) -> tuple[float, float]:
    """How many of the suspects are drawn from the model all the same: the mean, and a 95 % limit."""
    right = 1 - suspects.random[suspects.found]
    mean, variance = float(right.sum()), float((right * (1 - right)).sum())
    return mean, mean + 1.645 * math.sqrt(variance)
