"""Ranking: whether examples of a class are scored above the others, whatever the threshold.

The area under the ROC curve is the probability that an example of the class has the larger score, ties
counting half: the two-sample U-statistic of Mann and Whitney (1947), whose variance DeLong, DeLong and
Clarke-Pearson (1988) estimate from the placement of each example among those of the other kind.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from margin.core.findings import Finding, Subject, has_labels
from margin.core.tasks import Task
from margin.core.types import ClassScores, PerExample
from margin.math.evenly import evenly
from margin.theory.prediction.confusion import class_scores, name_of
from margin.theory.prediction.held_out import (
    Limited,
    Terms,
    independent_draws,
    mean_of,
    normal_quantile,
    output_of_one,
    stated,
    unanswered,
    weighted_mean,
)


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


MOST_POINTS = 500
"""Points of an ROC curve: more than a plot shows."""


def one_against_rest(scores: ClassScores, rounding: float = 0.0) -> ClassScores:
    """The log-odds of each class, score less the log-sum-exp of the others': it ranks as the softmax does.

    A softmax near 1 rounds to 1 and ties what its log-odds tell apart. What these tell apart by rounding
    alone, of the scores or of their sum, is one value.

    Args:
        scores: Logits, in float64.
        rounding: Relative rounding of the scores, where they come of a shorter type.
    """
    if scores.shape[-1] == 2:
        return scores - scores.flip(-1)
    columns = [
        scores[:, k] - torch.cat((scores[:, :k], scores[:, k + 1 :]), 1).logsumexp(1)
        for k in range(scores.shape[-1])
    ]
    own = scores.shape[-1] * torch.finfo(scores.dtype).eps
    sizes = scores.abs().amax(1)
    return torch.stack([tied(z, 4 * (rounding * sizes + own * (1 + z.abs()))) for z in columns], 1)


def tied(z: PerExample, error: PerExample) -> PerExample:
    """The same numbers, neighbors that differ by no more than their error made equal."""
    ordered, order = z.sort()
    apart = torch.ones(len(z), dtype=torch.bool, device=z.device)
    apart[1:] = ~(ordered.diff() <= error[order][1:])  # a NaN is apart from all others
    return torch.empty_like(z).scatter(0, order, ordered[apart][apart.cumsum(0) - 1])


def _scored(task: Task, outputs: Tensor, scores: ClassScores) -> ClassScores:
    """What ranks each class against the rest: the probability where the model states one, else log-odds.

    A probability is ranked as it was stated, for a sum over the other classes, equal for equal probabilities,
    rounds to different numbers.
    """
    if task.probabilities is None:
        return scores
    stated = task.probabilities(outputs)
    if stated.shape == outputs.shape and torch.equal(stated, outputs):
        return stated.double()
    return one_against_rest(scores, torch.finfo(outputs.dtype).eps)


class Ranked:
    """The held-out terms with the score of each class against the rest.

    Args:
        subject: A model with class labels.

    Attributes:
        failure: Why there is no area, or "".
        scores: Score of each class against the rest, a row per term.
        labels: The true classes.
    """

    def __init__(self, subject: Subject) -> None:
        answered, scores = class_scores(subject)
        ids, example = answered.example.unique(return_inverse=True)
        self.scores = _scored(subject.task, answered.outputs, scores)
        self.labels = answered.targets.long()
        self.terms = Terms(answered.weight, answered.weight, example)
        self.examples = len(ids)
        occurring = self.labels.unique().tolist()
        self.failure = unanswered(self.scores.nan_to_num(torch.nan, 0, 0), "the score")
        if not self.failure and len(occurring) < 2:
            name = name_of(subject, occurring[0])
            self.failure = f"ranking needs examples of two classes: all that are held out are of {name}"
        self.classes = [] if self.failure else occurring

    def area(self, k: int, level: float) -> Limited:
        """The area under the ROC curve of one class against the rest, with its limits."""
        return auroc(self.scores[:, k], self.labels == k, self.terms, self.examples, level=level)


def area(subject: Subject, *, level: float = 0.95) -> Finding:
    """The area under the ROC curve: of class 1 of two; of more, the mean over classes, each against the rest.

    Args:
        subject: A model with class labels.
        level: Intended probability with which the interval covers the truth, in (0, 1).
    """
    ranked = Ranked(subject)
    classes, curves = ranked.scores.shape[-1], {}
    rows: tuple[float, ...] = (math.nan,) * 3
    if classes == 2:
        statement = f"The chance that an example of {name_of(subject, 1)} scores above one of "
        statement += f"{name_of(subject, 0)}, a tie counting half"
        if not ranked.failure:
            rows = ranked.area(1, level)[:3]
            curves = _roc(ranked)
    else:
        statement = (
            "The chance that an example of a class scores above one of the rest, a tie counting half: the "
            f"mean over the {len(ranked.classes)} classes that occur"
        )
        if not ranked.failure:
            rows = mean_of(ranked.area(k, level) for k in ranked.classes)[:3]
    return _finding(subject, ranked, statement, [rows], level=level, curves=curves)


def area_by_class(subject: Subject, *, level: float = 0.95) -> Finding:
    """The area under the ROC curve of each class that occurs, against all others.

    Args:
        subject: A model with labels of three classes or more.
        level: Intended probability with which each interval covers its area, in (0, 1).
    """
    ranked = Ranked(subject)
    rows = [ranked.area(k, level)[:3] for k in ranked.classes] or [(math.nan,) * 3]
    statement = "For each class that occurs, the chance that an example of it scores above one of the rest"
    labels = tuple(name_of(subject, k) for k in ranked.classes)
    return _finding(subject, ranked, statement, rows, level=level, labels=labels)


def has_many_classes(subject: Subject) -> bool:
    """Whether the model scores three classes or more."""
    if not has_labels(subject) or subject.task.classes is None:
        return False
    outputs = output_of_one(subject)
    return isinstance(outputs, Tensor) and subject.task.classes(outputs).shape[-1] > 2


def _roc(ranked: Ranked) -> dict[str, Tensor]:
    false, true = roc_curve(ranked.scores[:, 1], ranked.labels == 1, ranked.terms.weight)
    keep = evenly(len(false), MOST_POINTS)
    return {"false positive rate": false[keep], "true positive rate": true[keep]}


def _finding(
    subject: Subject,
    ranked: Ranked,
    statement: str,
    rows: Sequence[tuple[float, ...]],
    *,
    level: float,
    labels: tuple[str, ...] = (),
    curves: dict[str, Tensor] | None = None,
) -> Finding:
    value, low, high = torch.tensor(rows, dtype=torch.float64).unbind(1)
    if not labels:
        value, low, high = value[0], low[0], high[0]
    return Finding(
        statement=f"{statement}; on {ranked.examples:,} held-out examples, with {level:.0%} intervals.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        failure=ranked.failure,
        labels=labels,
        curves=curves or {},
    )


def demo() -> Subject:
    """Positives scored 3, 2 and 1, negatives 2 and 0: of six pairs four are right and one tied, 4.5 / 6."""
    scores = torch.tensor([3.0, 2.0, 1.0, 2.0, 0.0]).double()
    return stated(torch.stack((torch.zeros(5).double(), scores), -1), torch.tensor([1, 1, 1, 0, 0]))


def many_demo() -> Subject:
    """Three classes of four examples each, one of each scored as its neighbour."""
    labels = torch.arange(12) % 3
    scores = torch.nn.functional.one_hot(labels, 3).double()
    scores[:3] = scores[:3].roll(1, 1)
    return stated(scores, labels)
