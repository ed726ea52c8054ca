"""Memorization: by how much a model is better on the examples it was trained on than on held-out ones.

Zhang, Bengio, Hardt, Recht and Vinyals (2017) fit random labels without a mistake: training accuracy says
what a network can store, not what it has learned. The gap of the two accuracies is what it has stored and
cannot use.
"""

import dataclasses
import math
from collections.abc import Callable

import torch

from margin.core.findings import Finding, Premise, Subject, has_labels
from margin.core.tasks import CLASSES, VALUES
from margin.theory.evidence.rows import training_draw
from margin.theory.prediction.confusion import classified
from margin.theory.prediction.differences import at_both_levels, independent_difference, share_limits
from margin.theory.prediction.held_out import (
    Terms,
    independent_draws,
    outputs_of,
    stated,
    trials_of,
    unanswered,
    weighted_mean,
)
from margin.theory.prediction.residuals import Interval, explained, residuals_of
from margin.theory.prediction.risk import clopper_pearson

Measured = Callable[[float], list[Interval]]
"""Intervals by their level: of the training part, of the held-out one, of the gap."""

PARTS = ("training", "held-out", "gap")

APART = Premise(
    "the training and the held-out examples are of one distribution, and none is in both",
    "assumed",
    "the two parts were not compared here",
)


def training_part(subject: Subject) -> Subject:
    """The same model on the training examples that it answers, as if they were held out.

    Args:
        subject: A model whose training examples are known.
    """
    outputs_of(subject, "train")
    made = dataclasses.replace(subject, test=training_draw(subject).batches, train=())
    if (known := subject.kept.get("outputs on train")) is not None:  # they may be too large to be kept
        made.kept["outputs on test"] = known
    return made


def accuracy(subject: Subject) -> Finding:
    """The accuracy on the training examples, that on held-out ones, and the gap between them.

    Both shares have exact binomial intervals, the gap Newcombe's of a difference of independent
    proportions. The training share counts as a draw too, as of another training set; of this very set alone
    the interval is wider than it need be. Of real values the three are of R^2, the shares of the targets'
    variance explained.

    Args:
        subject: A model of classes or of real values whose training examples are known.

    Raises:
        NotAsked: Of values: the targets of a part are constant.

    Reference: Newcombe 1998, method 10; Zhang, Bengio, Hardt, Recht and Vinyals 2017.
    """
    train, drawn = training_part(subject), training_draw(subject)
    words, failure, measured = (_shares if has_labels(subject) else _explained)(train, subject)

    def measure(level: float) -> list[Interval]:
        return [Interval(*(math.nan,) * 3)] * 3 if failure else measured(level)

    return Finding(
        statement=f"{words} on the training examples, on held-out ones, and the gap between the two: "
        "what was learned by heart and does not carry over.",
        range=(-1.0, 1.0) if has_labels(subject) else (-math.inf, math.inf),
        premises=(independent_draws(subject), APART),
        kind="estimate",
        sample="" if drawn.whole else f"{drawn.taken:,} training examples drawn",
        failure=failure,
        labels=PARTS,
        **at_both_levels(measure)._asdict(),
    )


def _shares(train: Subject, test: Subject) -> tuple[str, str, Measured]:
    parts, failures = [], []
    for subject in (train, test):
        found, failure = classified(subject)
        right = (found.labels == found.predicted).double()
        parts.append(Terms(right, found.weight, found.example))
        failures.append(failure)

    def measured(level: float) -> list[Interval]:
        exact, score = [], []
        for part in parts:
            p, n = min(float(weighted_mean(part).mean), 1.0), trials_of(part.values, part, level=level)
            exact.append(Interval(p, *clopper_pearson(min(p * n, n), n, level=level)))
            score.append(share_limits(p, n, level=level))
        return [*exact, independent_difference(*score)]

    return "The accuracy", _first(failures), measured


def _explained(train: Subject, test: Subject) -> tuple[str, str, Measured]:
    failures = [unanswered(residuals_of(subject)[1].values, "the residual") for subject in (train, test)]

    def measured(level: float) -> list[Interval]:
        both = [explained(subject, level=level) for subject in (train, test)]
        return [*both, independent_difference(*both)]

    return "R^2, the share of the targets' variance that is explained,", _first(failures), measured


def _first(failures: list[str]) -> str:
    """Why a part gave no number, the training part first."""
    train, test = failures
    return f"of the training examples: {train}" if train else test


def demo() -> Subject:
    """Of training examples 56 of 70 right, of held-out ones 48 of 80: Newcombe's gap is .2 [.0524, .3339]."""

    def part(right: int, n: int) -> Subject:
        labels = torch.arange(n) % 2
        predicted = torch.where(torch.arange(n) < right, labels, 1 - labels)
        return stated(torch.nn.functional.one_hot(predicted, 2).double(), labels, task=CLASSES)

    return dataclasses.replace(part(48, 80), train=part(56, 70).test)


def values_demo() -> Subject:
    """Training values met exactly but for one unit in one of ten, held-out ones off by two each."""
    targets = torch.arange(10.0).double()
    train = stated(targets + torch.eye(10)[0].double(), targets, task=VALUES)
    return dataclasses.replace(stated(targets + 2.0, targets, task=VALUES), train=train.test)
