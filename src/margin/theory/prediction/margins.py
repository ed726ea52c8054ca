"""Output margins: by how much the score of the right class exceeds the best of the others.

Mohri, Rostamizadeh and Talwalkar (2018), Section 9.2: rho(x, y) = f_y(x) - max over j != y of f_j(x). It is
positive exactly where the prediction is right and unambiguous.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import class_margins
from margin.core.types import ClassScores, Labels, PerExample
from margin.theory.prediction.held_out import (
    described,
    held_out_answers,
    independent_draws,
    stated,
    trials_of,
    unanswered,
    weighted_mean,
)

QUANTILES = (0.05, 0.5, 0.95)
"""The quantiles that the claim reports: the hard tail, the middle, the easy tail."""


def output_margins(scores: ClassScores, labels: Labels) -> PerExample:
    r"""The margin of each example, :math:`f_y - \max_{j \ne y} f_j`, in the unit of the scores.

    Args:
        scores: One score per class, at least two classes.
        labels: The right classes, 0 .. K-1.

    Raises:
        ValueError: There is one class only, or a label is none of the classes.

    Reference: Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2 (margin of a multi-class hypothesis).
    """
    classes = scores.shape[-1]
    if classes < 2:
        raise ValueError(f"a margin needs two classes: got {classes}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}: got {int(labels.min())}..{int(labels.max())}")
    return class_margins(scores, labels)


def quantile_interval(
    values: Float[Tensor, " n"], weight: Float[Tensor, " n"], p: float, *, examples: int | float, level: float
) -> tuple[float, float, float]:
    r"""The p-quantile of a distribution from a sample, and its distribution-free interval.

    The quantile is the least value at which the weighted distribution function reaches p. Between order
    statistics l and u of n draws it lies with probability P(l <= Bin(n, p) < u), whatever the
    distribution; an end is infinite where no order statistic reaches ``level``.

    Args:
        values: The sample.
        weight: Weight of each value, above 0.
        p: In (0, 1).
        examples: n, the number of independent draws the sample is worth.
        level: Least probability of covering the truth, in (0, 1).

    Returns:
        The quantile and the two ends of its interval.

    Reference: David and Nagaraja 2003, Section 7.1.
    """
    from scipy.special import bdtr

    n = max(int(examples + 1e-6), 1)
    cdf = torch.from_numpy(bdtr(torch.arange(n + 1).double().numpy(), n, p))
    lower = int((cdf < (1 - level) / 2).sum())
    upper = int((cdf < (1 + level) / 2).sum()) + 1

    low, high = lower / n if lower >= 1 else None, upper / n if upper <= n else None
    found, *ends = quantiles(values, weight, (p, *(q for q in (low, high) if q is not None)))
    return found, -math.inf if low is None else ends[0], math.inf if high is None else ends[-1]


def quantiles(
    values: Float[Tensor, " n"], weight: Float[Tensor, " n"], shares: Sequence[float]
) -> list[float]:
    """The least value at which the weighted distribution function reaches each of several shares."""
    order = values.argsort()
    reached = weight[order].cumsum(0) / weight.sum()
    # The slack keeps a share of exactly q from rounding past its order statistic.
    positions = (int((reached < q - 1e-12).sum()) for q in shares)
    return [float(values[order[min(position, len(values) - 1)]]) for position in positions]


DRAWN = 20_000
"""Margins that are drawn, and kept for that, at most: an image has as many as pixels."""


def _named(p: float) -> str:
    return f"{p:.0%} quantile" if p != 0.5 else "median"


def distribution(subject: Subject, *, level: float = 0.95) -> Finding:
    """Quantiles of the output margin over the population, with distribution-free intervals.

    Where examples have several terms, the number of draws of each quantile is that of the share of the terms
    at or below it (Woodruff 1952). They hold the truth in 95 to 96 % of simulated samples of 30 examples, of
    10 in 91 to 95 %.

    A tie between the right class and another is a margin of 0, which is not positive; it is counted apart
    because a prediction by the first largest score may still be right there.

    Args:
        subject: A model with class labels.
        level: Least probability with which each interval covers its quantile, in (0, 1).

    Raises:
        NotAsked: There are too few examples for a limit of any quantile.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1): got {level}")
    if subject.task.classes is None:
        raise ValueError(f"margins need a task with classes: got task {subject.task.name!r}")
    answered = held_out_answers(subject)
    margins = output_margins(subject.task.classes(answered.outputs).double(), answered.targets)
    failure = unanswered(margins, "the margin")
    positive = weighted_mean(answered.terms(margins > 0))
    ends = torch.full((len(QUANTILES), 3), math.nan, dtype=torch.float64)
    if not failure:
        for row, p in zip(ends, QUANTILES, strict=True):
            below = margins <= quantiles(margins, answered.weight, [p])[0]
            worth = trials_of(below, answered.terms(below), level=level)
            found = quantile_interval(margins, answered.weight, p, examples=worth, level=level)
            row.copy_(torch.tensor(found, dtype=torch.float64))
    # of few examples a quantile may have a limit on neither side
    told = ends[:, 1:].isfinite().any(1) | bool(failure)
    if not bool(told.any()):
        raise NotAsked(f"a limit of a quantile needs more examples: got {len(margins)}")
    ends = ends[told]
    least = float(margins.min()) if len(margins) else math.nan
    return Finding(
        statement=f"Quantiles of the output margin with {level:.0%} intervals; "
        f"on {described(answered, positive)} the least is {least:.4g}, "
        f"a share of {positive.mean.item():.4g} is above 0 (ties at 0: {int((margins == 0).sum())}).",
        value=ends[:, 0],
        unit="score",
        range=(-math.inf, math.inf),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(ends[:, 1], ends[:, 2]),
        failure=failure,
        labels=tuple(_named(p) for p, is_told in zip(QUANTILES, told.tolist(), strict=True) if is_told),
        curves=_drawn(margins.sort().values),
    )


def _drawn(ranked: Float[Tensor, " n"]) -> dict[str, Tensor]:
    """What is drawn of the margins: all, or of more than :data:`DRAWN` so many, evenly spaced by their ranks.

    Beside them stands for how many each of them is there.
    """
    some = min(len(ranked), DRAWN)
    if not some:
        return {"margins": ranked}
    each = len(ranked) / some
    at = ((torch.arange(some, dtype=torch.float64) + 0.5) * each).long()
    return {"margins": ranked[at], "each": torch.tensor([each], dtype=torch.float64)}


def demo() -> Subject:
    """Margins -1, 0, 1, ..., 98: the 5 % quantile is 3, the median 48."""
    margins = torch.arange(-1, 99).double()
    return stated(torch.stack((margins, torch.zeros_like(margins)), -1), torch.zeros(100).long())
