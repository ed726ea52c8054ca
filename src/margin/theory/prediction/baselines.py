"""Baselines: by how much a model is better than the best constant, and than a linear model of the inputs.

A share of right predictions tells little alone: .95 is poor where one class makes up .97 of the examples.
Both models answer the same examples, so the interval is that of the difference, which is much narrower than
those of the two shares apart.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from margin.core.findings import Finding, NotAsked, Premise, Subject, has_labels
from margin.core.tasks import CLASSES, VALUES
from margin.core.types import Batch
from margin.engine.evaluation import expand_weight
from margin.theory.prediction.confusion import classified, name_of
from margin.theory.prediction.differences import at_both_levels, paired_shares, scalar
from margin.theory.prediction.held_out import (
    Terms,
    held_out_answers,
    held_out_terms,
    independent_draws,
    stated,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.residuals import Interval, has_values, ratio_interval, residuals_of

BY_ACCURACY = Premise(
    "the model is meant to be right as often as possible",
    "assumed",
    "one that was trained for rare classes or unequal costs may be right less often than a constant",
)


ROUNDING = 1e-9


class Rival(NamedTuple):
    """A simpler model's answers, how a statement calls it, and of which examples it is.

    Args:
        answers: Its class or value for each held-out term of weight > 0.
        words: How a statement calls it.
        sample: "" where it was chosen without the held-out examples.
    """

    answers: Tensor
    words: str
    sample: str = ""


def has_right_answers(subject: Subject) -> bool:
    """Whether predictions are classes or real values that the targets state."""
    return has_labels(subject) or has_values(subject)


def constant(subject: Subject) -> Finding:
    r"""How much better the model is than always answering the same, on the same examples.

    Of classes: the model's accuracy less that of the most frequent class. Of values: the share of the
    squared error about the mean that the model takes away, :math:`1 - \sum (y - f)^2 / \sum (y - c)^2`. The
    constant is the training part's, and the held-out part's own where that is not known, the best in
    hindsight.

    The promise is that it is at least 0. Every model with a bias can answer a constant, so one whose
    interval lies below 0 has learned something else than these labels: they are in another order, the
    inputs are scaled otherwise, or the training diverged. Of classes an untrained or a constant model is
    *inconclusive*; one that is meant for rare classes is no counter-example, which is a premise.

    Args:
        subject: A model of classes or of real values.

    Raises:
        NotAsked: All held-out targets are equal to the constant value, which then makes no error.

    Reference: Tango 1998 (paired proportions); Cochran 1977, Section 2.11 (a ratio of means).
    """
    given = subject.train or subject.test
    sample = "" if subject.train else "the constant is the held-out part's own"
    if has_labels(subject):
        answered = held_out_answers(subject)
        counts = label_counts(given)
        commonest = int(counts.argmax())
        words = f"always answering {name_of(subject, commonest)!r}"
        rival = Rival(torch.full_like(answered.targets, commonest), words, sample)
        return compared(subject, rival, promised=True)
    mean = mean_target(given)
    values = held_out_terms(
        subject.model, subject.test, lambda model, batch, _: _of_batch(mean, batch)
    ).values
    return compared(subject, Rival(values, "always answering the mean", sample), promised=True)


def _of_batch(mean: Tensor, batch: Batch) -> Tensor:
    return mean if batch.targets is None else mean.expand(batch.targets.shape)


def label_counts(batches: Iterable[Batch]) -> Tensor:
    """The weight of each label in batches, from 0 on.

    Raises:
        ValueError: A batch has no targets.
    """
    counts = torch.zeros(1, dtype=torch.float64)
    for batch in batches:
        targets, weight = _weighed(batch)
        here = torch.bincount(targets.flatten().long(), weight.flatten())
        longer = max(len(here), len(counts))
        counts = torch.nn.functional.pad(counts, (0, longer - len(counts)))
        counts[: len(here)] += here
    return counts


def mean_target(batches: Iterable[Batch]) -> Tensor:
    """The weighted mean target, component by component.

    Raises:
        ValueError: A batch has no targets, or all weights are 0.
    """
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for batch in batches:
        targets, weight = _weighed(batch)
        total = total + torch.where(weight > 0, weight * targets.double(), 0).sum(0)
        count = count + weight.sum(0)
    if not bool((count > 0).all()):
        raise ValueError("a mean target needs examples of weight above 0: got none")
    return total / count


def _weighed(batch: Batch) -> tuple[Tensor, Tensor]:
    if batch.targets is None:
        raise ValueError("a baseline needs the targets of the examples: got a batch without")
    targets = batch.targets.cpu()
    weight = None if batch.weight is None else batch.weight.cpu()
    return targets, expand_weight(torch.ones_like(targets, dtype=torch.float64), weight)


def compared(subject: Subject, rival: Rival, *, promised: bool) -> Finding:
    """How much better the model is than a rival on the same held-out terms, with paired intervals.

    Args:
        subject: A model of classes or of real values.
        rival: The other's answers.
        promised: Whether the model is promised to be no worse.
    """
    return (_classes if has_labels(subject) else _values)(subject, rival, promised)


def _classes(subject: Subject, rival: Rival, promised: bool) -> Finding:
    found, failure = classified(subject)
    right, other = found.predicted == found.labels, rival.answers == found.labels
    terms = Terms(found.weight, found.weight, found.example)
    own, others = (float(weighted_mean(terms._replace(values=x.double())).mean) for x in (right, other))

    def measure(level: float) -> list[Interval]:
        return [Interval(*(math.nan,) * 3) if failure else paired_shares(right, other, terms, level=level)]

    return Finding(
        statement=f"The accuracy of the model less that of {rival.words} on the same {found.examples:,} "
        f"held-out examples: {own:.1%} less {others:.1%}, with its paired 95 % interval.",
        range=(-1.0, 1.0),
        premises=(independent_draws(subject), *((BY_ACCURACY,) if promised else ())),
        kind="estimate",
        low=torch.tensor(0.0) if promised else None,
        tolerance=ROUNDING,
        sample=rival.sample,
        failure=failure,
        **scalar(at_both_levels(measure))._asdict(),
    )


def _values(subject: Subject, rival: Rival, promised: bool) -> Finding:
    answered, residuals = residuals_of(subject)
    off = (answered.targets.double() - rival.answers).square()
    failure = unanswered(residuals.values, "the residual")
    if not failure and not bool((off * answered.weight).sum() > 0):
        raise NotAsked(f"{rival.words} makes no error on the held-out examples: there is nothing to gain")
    errors = residuals._replace(values=residuals.values.square())

    def measure(level: float) -> list[Interval]:
        if failure:
            return [Interval(*(math.nan,) * 3)]
        ratio = ratio_interval(errors, off, level=level)
        return [Interval(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)]

    own, others = (math.sqrt(float(weighted_mean(answered.terms(x)).mean)) for x in (errors.values, off))
    return Finding(
        statement=f"The share of the squared error of {rival.words} that the model takes away on "
        f"{len(answered.example.unique()):,} held-out examples: root mean squared error {own:.4g} "
        f"against {others:.4g}, with a paired 95 % interval.",
        range=(-math.inf, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        low=torch.tensor(0.0) if promised else None,
        tolerance=ROUNDING,
        sample=rival.sample,
        failure=failure,
        **scalar(at_both_levels(measure))._asdict(),
    )


def constant_demo() -> Subject:
    """A hundred of 120 right, 60 of each class: 5/6 against 1/2, 50 times ahead and 10 behind."""
    labels = torch.tensor([0, 1] * 60)
    predicted = torch.cat((1 - labels[:20], labels[20:]))
    subject = stated(torch.nn.functional.one_hot(predicted, 2).double(), labels, task=CLASSES)
    return dataclasses.replace(subject, train=subject.test)


def values_demo() -> Subject:
    """Targets 0 .. 9, about their mean 82.5 squares, predicted half a unit off: 2.5 of 82.5 are left."""
    targets = torch.arange(10.0).double()
    subject = stated(targets + 0.5, targets, task=VALUES)
    return dataclasses.replace(subject, train=subject.test)
