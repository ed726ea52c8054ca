"""The confusion matrix: how often each class is taken for each, and what is read from it.

Rows are the true classes, columns the predicted ones. A row read by shares tells how much of a class is
found (recall), a column how much of what is called so is so
(precision); their means over classes are the balanced accuracy and macro F1.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.core.types import ClassScores
from margin.theory.prediction.held_out import (
    Adjusted,
    Answered,
    Limited,
    Terms,
    adjusted_mean,
    adjusted_share,
    held_out_answers,
    independent_draws,
    share_of,
    stated,
    unanswered,
)

Classes = Int[Tensor, " terms"]


class Classified(NamedTuple):
    """True and predicted class of single terms, with what each weighs and its example.

    ``example`` counts from 0 to ``examples - 1``.
    """

    labels: Classes
    predicted: Classes
    weight: Float[Tensor, " terms"]
    example: Classes
    classes: int
    examples: int

    def share(self, right: Tensor, among: Tensor, level: float) -> Limited:
        """The weighted share of the terms ``among`` that are ``right``, with its limits."""
        terms = Terms(self.weight[among], self.weight[among], self.example[among])
        return share_of(right[among], terms, self.examples, level=level)


def confusion_matrix(
    labels: Classes, predicted: Classes, classes: int, weight: Float[Tensor, " terms"] | None = None
) -> Float[Tensor, "classes classes"]:
    """The weight of the terms of each true class (row) that are predicted as each class (column).

    Args:
        labels: The true classes, 0 .. K-1.
        predicted: The predicted classes, 0 .. K-1.
        classes: K.
        weight: Weight of each term; None: 1.
    """
    w = torch.ones(len(labels), dtype=torch.float64) if weight is None else weight.double()
    cells = torch.zeros(classes * classes, dtype=torch.float64)
    return cells.index_add(0, labels * classes + predicted, w).reshape(classes, classes)


def recalls(found: Classified, *, level: float = 0.95) -> dict[int, Limited]:
    """For each class that occurs: the share of its terms that are predicted as it."""
    right = found.labels == found.predicted
    return {k: found.share(right, found.labels == k, level) for k in found.labels.unique().tolist()}


def precisions(found: Classified, *, level: float = 0.95) -> dict[int, Limited]:
    """For each class that is ever predicted: the share of the terms predicted as it that are it."""
    right = found.labels == found.predicted
    return {k: found.share(right, found.predicted == k, level) for k in found.predicted.unique().tolist()}


def balanced_accuracy(found: Classified, *, level: float = 0.95) -> Limited:
    r"""The mean recall of the classes that occur, each counting the same however rare it is.

    Args:
        found: At least one term.
        level: Intended probability with which the limits hold the truth, in (0, 1).

    Reference: Price and Bonett 2004 (a linear function of proportions).
    """
    parts = recalls(found, level=level).values()
    return adjusted_mean([adjusted_share(part, len(parts), level=level) for part in parts], level=level)


def f1_scores(found: Classified, *, level: float = 0.95) -> dict[int, Limited]:
    r"""For each class that occurs or is predicted, the harmonic mean of its precision and its recall.

    .. math:: F_1 = \frac{2\,TP}{2\,TP + FP + FN} = \frac{2 J}{1 + J}, \quad J = \frac{TP}{TP + FP + FN}

    J is a share of the terms that are of the class or are called so, so its limits give those of F1.

    Reference: van Rijsbergen 1979, Chapter 7 (effectiveness, at equal weights).
    """
    scores = {}
    for k, part in overlaps(found, level=level).items():
        value, low, high = (2 * j / (1 + j) for j in part[:3])
        scores[k] = Limited(value, low, high, part.direction)
    return scores


def overlaps(found: Classified, *, level: float = 0.95) -> dict[int, Limited]:
    """J of each class that occurs or is predicted: of the terms that are of it or are called so, both."""
    right = found.labels == found.predicted
    return {
        k: found.share(right, (found.labels == k) | (found.predicted == k), level)
        for k in torch.cat((found.labels, found.predicted)).unique().tolist()
    }


def macro_f1(found: Classified, *, level: float = 0.95) -> Limited:
    """The mean F1 of the classes that occur or are predicted.

    A mistake lowers the F1 of two classes at once: the limits count that correlation.

    Args:
        found: At least one term.
        level: Intended probability with which the limits hold the truth, in (0, 1).

    Reference: Price and Bonett 2004 (of J, see :func:`f1_scores`); the delta method.
    """
    shares, parts = overlaps(found, level=level).values(), []
    for share in shares:
        value, J, error, direction = adjusted_share(share, len(shares), level=level)
        score, steep = 2 * J / (1 + J), 2 / (1 + J) ** 2
        parts.append(Adjusted(2 * value / (1 + value), score, error * steep, direction))
    return adjusted_mean(parts, level=level)


MOST_CELLS = 2500
"""Cells of a confusion matrix whose intervals are given: 50 classes."""


def class_scores(subject: Subject) -> tuple[Answered, ClassScores]:
    """The held-out answers, and their scores of the classes in float64.

    Raises:
        ValueError: The task has no classes, or a label is none of them.
    """
    if subject.task.classes is None:
        raise ValueError(f"this needs a task with classes: got task {subject.task.name!r}")
    answered = held_out_answers(subject)
    scores = subject.task.classes(answered.outputs).double()
    labels, classes = answered.targets, scores.shape[-1]
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}: got {int(labels.min())}..{int(labels.max())}")
    return answered, scores


def classified(subject: Subject) -> tuple[Classified, str]:
    """True and predicted class of the held-out terms, and why there are none, or ""."""
    answered, scores = class_scores(subject)
    ids, example = answered.example.unique(return_inverse=True)
    found = Classified(
        answered.targets.long(),
        scores.argmax(-1),
        answered.weight,
        example,
        scores.shape[-1],
        len(ids),
    )
    return found, unanswered(scores.nan_to_num(torch.nan, 0, 0), "the output")


def name_of(subject: Subject, k: int) -> str:
    """How a finding calls a class."""
    return subject.class_names[k] if k < len(subject.class_names) else f"class {k}"


def recall(subject: Subject, *, level: float = 0.95) -> Finding:
    """For each class, the share of its examples that are predicted as it, and the confusion matrix.

    Classes without a held-out example are left out, and named.

    Args:
        subject: A model with class labels.
        level: Intended probability with which each interval covers its share, in (0, 1).
    """
    statement = "Of the held-out examples of each class, the share predicted as it"
    return by_class(subject, statement, recalls, "without a held-out example", level)


def precision(subject: Subject, *, level: float = 0.95) -> Finding:
    """For each class, the share of the examples predicted as it that are it.

    Classes that are never predicted are left out, and named.

    Args:
        subject: A model with class labels.
        level: Intended probability with which each interval covers its share, in (0, 1).
    """
    statement = "Of the held-out examples predicted as each class, the share that are of it"
    return by_class(subject, statement, precisions, "never predicted", level)


def balanced(subject: Subject, *, level: float = 0.95) -> Finding:
    """The mean recall over the classes that occur: the accuracy if every class were as frequent.

    Args:
        subject: A model with class labels.
        level: Intended probability with which the interval covers the truth, in (0, 1).
    """
    found, failure = classified(subject)
    count = len(found.labels.unique())
    statement = (
        f"The mean recall of the {count} classes that occur among {found.examples:,} held-out examples"
    )
    return _one(subject, statement, balanced_accuracy, found, failure, level=level)


def f1(subject: Subject, *, level: float = 0.95) -> Finding:
    """The mean over classes of the harmonic mean of precision and recall.

    A class that is predicted and never occurs scores 0; one that does neither is left out.

    Args:
        subject: A model with class labels.
        level: Intended probability with which the interval covers the truth, in (0, 1).
    """
    found, failure = classified(subject)
    count = len(torch.cat((found.labels, found.predicted)).unique())
    statement = (
        f"The mean F1 of the {count} classes that occur or are predicted on {found.examples:,} held-out "
        "examples"
    )
    return _one(subject, statement, macro_f1, found, failure, level=level)


def by_class(
    subject: Subject,
    statement: str,
    measure: Callable[..., Mapping[int, Limited]],
    lacking: str,
    level: float,
    curves: Mapping[str, Tensor] | None = None,
) -> Finding:
    """A finding of one share for each class.

    Args:
        subject: A model with class labels.
        statement: What is shared, without a full stop.
        measure: Gives the share of each class that has one.
        lacking: What classes are that have none.
        level: Intended probability with which each interval covers its share.
        curves: What is drawn; None: the confusion matrix.
    """
    found, failure = classified(subject)
    parts = {} if failure else measure(found, level=level)
    missing = [name_of(subject, k) for k in range(found.classes) if k not in parts]
    if missing and not failure:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        statement += f" (left out, being {lacking}: {', '.join(missing[:5])}{more})"
    rows = [part[:3] for part in parts.values()] or [(math.nan,) * 3]
    value, low, high = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return Finding(
        statement=f"{statement}, with {level:.0%} intervals.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        failure=failure,
        labels=tuple(name_of(subject, k) for k in parts),
        curves={} if failure else matrix_curves(found, level) if curves is None else curves,
    )


def matrix_curves(found: Classified, level: float) -> dict[str, Tensor]:
    """The confusion matrix, its rows as shares, and the limits of each share; NaN in an empty row."""
    cells = confusion_matrix(found.labels, found.predicted, found.classes, found.weight)
    shares = cells / cells.sum(1, keepdim=True)
    curves = {"confusion": cells, "row share": shares}
    if cells.numel() > MOST_CELLS:
        return curves
    limits = torch.full((2, *cells.shape), math.nan, dtype=torch.float64)
    for k in found.labels.unique().tolist():
        row = found.labels == k
        terms = Terms(found.weight[row], found.weight[row], found.example[row])
        for j in range(found.classes):
            part = share_of(found.predicted[row] == j, terms, found.examples, level=level)
            limits[:, k, j] = torch.tensor((part.low, part.high), dtype=torch.float64)
    return curves | {"row share low": limits[0], "row share high": limits[1]}


def _one(
    subject: Subject,
    statement: str,
    measure: Callable[..., Limited],
    found: Classified,
    failure: str,
    *,
    level: float,
) -> Finding:
    rows = (math.nan,) * 3 if failure else measure(found, level=level)[:3]
    value, low, high = torch.tensor(rows, dtype=torch.float64)
    return Finding(
        statement=f"{statement}, with a {level:.0%} interval.",
        value=value,
        range=(0.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        interval=(low, high),
        failure=failure,
    )


def demo() -> Subject:
    """Eight of ten of class 0 found, three of five of class 1.

    Recall 0.8 and 0.6, precision 8/10 and 3/5, balanced accuracy 0.7; F1 is 0.8 and 0.6, 0.7 in the mean.
    """
    labels = torch.tensor([0] * 10 + [1] * 5)
    predicted = torch.tensor([0] * 8 + [1] * 2 + [0] * 2 + [1] * 3)
    return stated(torch.nn.functional.one_hot(predicted, 2).double(), labels)
