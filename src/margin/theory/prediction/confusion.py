"""The confusion matrix: how often each class is taken for each, and what is read from it.

Rows are the true classes, columns the predicted ones. A row read by shares tells how much of a class is
found (recall), a column how much of what is called so is so (precision).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.theory.prediction.held_out import Terms
from margin.theory.prediction.limits import Limited, mean_of, share_of

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

    Reference: Zou and Donner 2008 (limits of a sum), from the limits of Wilson 1927.
    """
    return mean_of(recalls(found, level=level).values())


def f1_scores(found: Classified, *, level: float = 0.95) -> dict[int, Limited]:
    r"""For each class that occurs or is predicted, the harmonic mean of its precision and its recall.

    .. math:: F_1 = \frac{2\,TP}{2\,TP + FP + FN} = \frac{2 J}{1 + J}, \quad J = \frac{TP}{TP + FP + FN}

    J is a share of the terms that are of the class or are called so, so its limits give those of F1.

    Reference: van Rijsbergen 1979, Chapter 7 (effectiveness, at equal weights).
    """
    right = found.labels == found.predicted
    scores = {}
    for k in torch.cat((found.labels, found.predicted)).unique().tolist():
        part = found.share(right, (found.labels == k) | (found.predicted == k), level)
        value, low, high = (2 * j / (1 + j) for j in part[:3])
        scores[k] = Limited(value, low, high, part.direction)
    return scores


def macro_f1(found: Classified, *, level: float = 0.95) -> Limited:
    """The mean F1 of the classes that occur or are predicted.

    A mistake lowers the F1 of two classes at once: the limits count that correlation.

    Args:
        found: At least one term.
        level: Intended probability with which the limits hold the truth, in (0, 1).

    Reference: Zou and Donner 2008 (limits of a sum), from the limits of Wilson 1927.
    """
    return mean_of(f1_scores(found, level=level).values())
