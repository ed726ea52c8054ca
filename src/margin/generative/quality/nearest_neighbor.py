"""Memorization: are samples of a generator nearer to its training rows than unseen examples of the data are?

Meehan, Chaudhuri & Dasgupta 2020: a generator that copies puts its samples closer to the training rows than
held-out examples lie. The comparison is one of ranks, Mann & Whitney 1947.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.math.two_samples.distances import blocks, pair
from margin.theory.prediction.held_out import Terms
from margin.theory.prediction.ranking import auroc

RATIO = 1 / 3
"""A sample counts as memorized that is this much nearer to one training row than to any other."""


class Nearest(NamedTuple):
    """The nearest rows to each of a sample, the nearest first."""

    distance: Float[Tensor, "n count"]
    row: Int[Tensor, "n count"]


class Copying(NamedTuple):
    """Whether samples are nearer to the training rows than held-out examples are.

    Args:
        farther: P(a sample is farther) + P(as far) / 2. 1/2 where samples are as new as the data, below where
            the generator copies, above where its samples are far from all data.
        low: Lower confidence limit.
        high: Upper limit.
        z: The standardized statistic: below -3 speaks for copying.
        p_value: Chance of samples as near, were they drawn from the data's own law.
    """

    farther: float
    low: float
    high: float
    z: float
    p_value: float


def nearest(x: Float[Tensor, "n ..."], train: Float[Tensor, "m ..."], *, count: int = 1) -> Nearest:
    """The nearest training rows to each example.

    Args:
        x: Examples.
        train: Where neighbors are looked for.
        count: How many, at most the number of training rows.

    Raises:
        ValueError: There are too few training rows, the widths differ, or a number is not finite.
    """
    x, train = pair(x, train, names=("the sample", "the training rows"))
    if not 1 <= count <= len(train):
        raise ValueError(f"count must be in 1 .. the number of training rows, {len(train)}: got {count}")
    found = [apart.topk(count, dim=1, largest=False) for _, apart in blocks(x, train)]
    return Nearest(torch.cat([f.values for f in found]), torch.cat([f.indices for f in found]))


def copying(samples: Float[Tensor, " n"], held_out: Float[Tensor, " m"], *, level: float = 0.95) -> Copying:
    r"""The rank test of distances to the nearest training row: samples' against held-out examples'.

    .. math:: U = \#\{d_i > d'_j\} + \tfrac12 \#\{d_i = d'_j\}, \quad
        z = \frac{U - n m / 2}{\sqrt{n m (n + m + 1) / 12}}

    Given the training rows, both kinds of distances are independent draws, and of one law where the generator
    has the data's law and knows no training row; then the p-value, one-sided, is valid.

    Args:
        samples: Distance of each sample to its nearest training row.
        held_out: Distance of each held-out example to its own.
        level: Intended probability with which the limits hold the truth.

    Raises:
        ValueError: A distance is not finite, or there is none.

    Reference: Meehan, Chaudhuri and Dasgupta 2020, Section 3; Mann and Whitney 1947.
    """
    from scipy.stats import mannwhitneyu

    n, m = len(samples), len(held_out)
    scores = torch.cat((samples, held_out)).double().cpu()
    if not n or not m or not bool(scores.isfinite().all()):
        raise ValueError(
            f"copying compares finite distances of two kinds: got {n} and {m}, or one not finite"
        )
    terms = Terms(scores, torch.ones(n + m, dtype=torch.float64), torch.arange(n + m))
    area = auroc(scores, torch.arange(n + m) < n, terms, n + m, level=level)
    z = (area.value - 0.5) * n * m / math.sqrt(n * m * (n + m + 1) / 12)
    p_value = float(mannwhitneyu(scores[:n].numpy(), scores[n:].numpy(), alternative="less").pvalue)
    return Copying(area.value, area.low, area.high, z, p_value)


def memorized(found: Nearest, *, ratio: float = RATIO) -> float:
    """Share of examples whose nearest training row is nearer than ``ratio`` times the second nearest.

    Args:
        found: The two nearest training rows of each example.
        ratio: In (0, 1).

    Raises:
        ValueError: There are no two nearest, or the ratio is out of range.

    Reference: Yoon, Choi, Kwon and Ryu 2023, Diffusion probabilistic models generalize when they fail to
        memorize.
    """
    if found.distance.shape[1] < 2:
        raise ValueError("a ratio needs the two nearest training rows: got one")
    if not 0 < ratio < 1:
        raise ValueError(f"ratio must lie in (0, 1): got {ratio}")
    first, second = found.distance[:, 0], found.distance[:, 1]
    return float((first < ratio * second).double().mean())
