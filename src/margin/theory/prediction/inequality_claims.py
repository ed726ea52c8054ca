"""Inequalities of probability on a model's own held-out losses, probabilities and predictions.

Chebyshev (1867) on the losses, Jensen (1906) on the probabilities, Shannon (1948) on the predicted classes.
Each speaks of the empirical law of the held-out examples and holds for every law: it tells by how much.
"""

import math

import torch

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.math.probability.inequalities import chebyshev_bound
from margin.math.probability.information import entropy, mutual_information
from margin.theory.prediction.confusion import confusion_matrix
from margin.theory.prediction.confusion_claims import classified
from margin.theory.prediction.held_out import held_out_answers, held_out_losses, stated, unanswered

DEVIATIONS = (2.0, 3.0, 5.0)
"""Distances from the mean loss at which the tail is looked at, in standard deviations."""

ROUNDING = 1e-9


def chebyshev(subject: Subject) -> Finding:
    """The share of the held-out losses k standard deviations or more from their mean, at most 1 / k^2.

    Args:
        subject: A model with an objective.

    Raises:
        NotAsked: The losses are all equal.
    """
    terms = held_out_losses(subject)
    failure = unanswered(terms.values, "the loss")
    share, bound = torch.full((2, len(DEVIATIONS)), math.nan, dtype=torch.float64)
    if not failure:
        p = terms.weight / terms.weight.sum()
        distance = (terms.values - p @ terms.values).abs()
        variance = p @ distance.square()
        deviation = float(variance.sqrt())
        if deviation <= ROUNDING * float(terms.values.abs().max()):
            raise NotAsked("the losses are all equal: they have no spread to measure by")
        share = torch.stack([p[distance >= k * deviation].sum() for k in DEVIATIONS])
        bound = torch.stack([chebyshev_bound(variance, k * deviation) for k in DEVIATIONS])
    return Finding(
        statement="The share of the held-out losses that lie k standard deviations or more from their mean.",
        value=share,
        range=(0.0, 1.0),
        high=None if failure else bound,
        tolerance=ROUNDING,
        labels=tuple(f"k = {k:g}" for k in DEVIATIONS),
        failure=failure,
    )


def jensen(subject: Subject) -> Finding:
    """The mean probability given to the true class: at least exp(-log loss), the geometric mean.

    The two are equal where every example is given the same. One example given 0 makes the log loss infinite,
    and the promise 0.

    Args:
        subject: A model that states class probabilities.
    """
    answered = held_out_answers(subject)
    if subject.task.probabilities is None:
        raise ValueError(f"this needs a task with probabilities: got task {subject.task.name!r}")
    probabilities = subject.task.probabilities(answered.outputs).double()
    given = probabilities.gather(-1, answered.targets.long()[:, None]).squeeze(-1)
    failure = unanswered(given, "the probability of the true class")
    share = answered.weight / answered.weight.sum()
    return Finding(
        statement="The mean probability given to the true class is at least exp(-log loss).",
        value=share @ given,
        range=(0.0, 1.0),
        low=None if failure else (share @ given.log()).exp(),
        tolerance=ROUNDING,
        failure=failure,
    )


def label_information(subject: Subject) -> Finding:
    """The mutual information of predicted and true class, in bits: at most the smaller of their entropies.

    0 says that the predictions tell nothing of the labels, whatever the accuracy: so it is where always the
    same class is predicted. The value is the sample's. Of n examples of K classes that are independent it is
    about (K - 1)^2 / (2 n log 2) on average, not 0 (Miller 1955).

    Args:
        subject: A model with class labels.
    """
    found, failure = classified(subject)
    value = bound = torch.tensor(math.nan, dtype=torch.float64)
    if not failure:
        joint = confusion_matrix(found.labels, found.predicted, found.classes, found.weight)
        joint = joint / joint.sum()
        value = mutual_information(joint, base=2).clamp_min(0.0)  # rounding may leave -1e-17
        bound = torch.minimum(entropy(joint.sum(0), base=2), entropy(joint.sum(1), base=2))
    return Finding(
        statement="What the predicted class tells of the true one, at most the smaller of their entropies.",
        value=value,
        unit="bits",
        range=(0.0, math.log2(found.classes)),
        high=None if failure else bound,
        tolerance=ROUNDING,
        failure=failure,
    )


def demo() -> Subject:
    """Eight examples of two classes, given 0.9 six times, 0.6 once, and 0.4 once: a mistake."""
    of_one = torch.tensor([0.1, 0.1, 0.1, 0.4, 0.9, 0.9, 0.4, 0.9], dtype=torch.float64)
    logits = torch.stack((1 - of_one, of_one), 1).log()
    return stated(logits, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), task=CLASSES)
