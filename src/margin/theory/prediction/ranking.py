"""Ranking: whether examples of a class are scored above the others, whatever the threshold.

The area under the ROC curve is the probability that an example of the class has the larger score, ties
counting half: the two-sample U-statistic of Mann and Whitney (1947), whose variance DeLong, DeLong and
Clarke-Pearson (1988) estimate from the placement of each example among those of the other kind.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from margin.theory.prediction.held_out import Terms, weighted_mean
from margin.theory.prediction.limits import Limited, normal_quantile


class Placed(NamedTuple):
    """An area under the ROC curve, and the share of the other kind that each term is rightly apart from."""

    area: float
    placement: Float[Tensor, " terms"]


def placements(
    scores: Float[Tensor, " terms"], positive: Bool[Tensor, " terms"], weight: Float[Tensor, " terms"]
) -> Placed:
    """The area under the ROC curve: P(score of a positive > score of a negative) + P(equal) / 2.

    Args:
        scores: A score per term.
        positive: Which terms are of the class; some must be, and some not.
        weight: Weight of each term.

    Raises:
        ValueError: All terms are positive, or none is.
    """
    if not bool(positive.any()) or bool(positive.all()):
        kind = "positive" if bool(positive.any()) else "negative"
        raise ValueError(f"a ranking needs positives and negatives: got {len(positive)} {kind} terms")
    levels, place = scores.unique(return_inverse=True)
    zeros = torch.zeros(len(levels), dtype=torch.float64)
    plus = zeros.index_add(0, place, torch.where(positive, weight, 0))
    minus = zeros.index_add(0, place, torch.where(positive, 0, weight))
    lower = (minus.cumsum(0) - minus / 2) / minus.sum()
    upper = (plus.flip(0).cumsum(0).flip(0) - plus / 2) / plus.sum()
    area = float((plus * lower).sum() / plus.sum())
    return Placed(min(area, 1.0), torch.where(positive, lower[place], upper[place]))


def auroc(
    scores: Float[Tensor, " terms"],
    positive: Bool[Tensor, " terms"],
    terms: Terms,
    examples: int,
    *,
    level: float = 0.95,
) -> Limited:
    r"""The area under the ROC curve with DeLong's variance, its limits set on the scale of log-odds.

    .. math:: \hat\sigma^2 = \frac{1}{m (m - 1)} \sum_i (V_i - A)^2 + \frac{1}{n (n - 1)} \sum_j (V_j - A)^2

    over the m positives and n negatives, with V the placement of each. Several terms of one example, and
    unequal weights, enter as one draw: their deviations are added before they are squared. Where DeLong's
    variance is 0, because the two kinds are apart or all tied, or is undefined, the limits are those of
    the score test of :func:`newcombe`.

    Args:
        scores: A score per term.
        positive: Which terms are of the class; some must be, and some not.
        terms: Weight and example of the same terms; their values are not read.
        examples: The number of examples, of which ``terms.example`` are indices.
        level: Intended probability with which the limits hold the truth, in (0, 1).

    Reference: DeLong, DeLong and Clarke-Pearson 1988 (variance); Newcombe 2006 (apart);
        van der Vaart 1998, Section 12.2 (two-sample U-statistics).
    """
    area, placement = placements(scores, positive, terms.weight)
    zeros = torch.zeros(examples, dtype=torch.float64)
    moved, sizes, ready = zeros, [], True
    for kind in (positive, ~positive):
        own = Terms(placement[kind], terms.weight[kind], terms.example[kind])
        count = len(own.example.unique())
        sizes.append(weighted_mean(own).examples)
        ready = ready and count > 1
        scale = math.sqrt(count / max(count - 1, 1)) / float(own.weight.sum())
        moved = moved.index_add(0, own.example, scale * own.weight * (own.values - area))
    sigma = float(moved.norm())
    if not ready or sigma < 1e-12:
        low, high = newcombe(area, *sizes, level=level)
        return Limited(area, low, high, zeros.index_add(0, terms.example, terms.weight))
    half = normal_quantile(level) * sigma / (area * (1 - area))
    middle = math.log(area / (1 - area))
    low, high = (1 / (1 + math.exp(-end)) for end in (middle - half, middle + half))
    return Limited(area, low, high, moved)


def newcombe(area: float, positives: float, negatives: float, *, level: float = 0.95) -> tuple[float, float]:
    r"""The areas that a score test does not reject, with the variance that exponential scores would have.

    .. math:: (A - \theta)^2 \le z^2\, \frac{\theta (1 - \theta)}{m n}
        \Big(1 + N \frac{1 - \theta}{2 - \theta} + N \frac{\theta}{1 + \theta}\Big), \quad
        N = \frac{m + n}{2} - 1

    Args:
        area: A, the observed area, in [0, 1].
        positives: m > 0; a real number where it is an effective count.
        negatives: n > 0.
        level: Intended probability of covering the truth, in (0, 1).

    Reference: Newcombe 2006 (the fifth method), after Hanley and McNeil 1982.
    """
    z2 = normal_quantile(level) ** 2
    more = max((positives + negatives) / 2 - 1, 0.0)

    def rejected(theta: float, area: float) -> bool:
        spread = 1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (area - theta) ** 2 > z2 * theta * (1 - theta) * spread / (positives * negatives)

    def lower(area: float) -> float:
        out, inside = 0.0, area
        for _ in range(60):
            middle = (out + inside) / 2
            out, inside = (middle, inside) if rejected(middle, area) else (out, middle)
        return out

    return lower(area), 1 - lower(1 - area)


def roc_curve(
    scores: Float[Tensor, " terms"], positive: Bool[Tensor, " terms"], weight: Float[Tensor, " terms"]
) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """The false and the true positive rate at every threshold, from (0, 0) to (1, 1).

    Args:
        scores: A score per term.
        positive: Which terms are of the class; some must be, and some not.
        weight: Weight of each term.
    """
    levels, place = scores.unique(return_inverse=True)
    rates = []
    for kind in (~positive, positive):
        share = torch.zeros(len(levels), dtype=torch.float64).index_add(0, place[kind], weight[kind])
        rates.append(torch.cat((torch.zeros(1, dtype=torch.float64), share.flip(0).cumsum(0) / share.sum())))
    return rates[0], rates[1]
