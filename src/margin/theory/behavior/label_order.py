"""Labels in another order: would the model be right if its classes stood in another order?

A classifier that was trained on other numbers for the same classes is far below chance, though it knows them.
The order that fits best is an assignment (Kuhn 1955). It is chosen on one half of the examples and judged on
the other, so that a choice among K! orders cannot pass for knowledge.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES
from margin.theory.prediction.confusion import class_scores, confusion_matrix
from margin.theory.prediction.held_out import Terms, independent_draws, stated, unanswered, weighted_mean

FEWEST = 4
"""Examples of whose halves each has a standard error."""

NAMED = 6
"""How many classes of an order are named."""


def best_order(matrix: Float[Tensor, "classes classes"]) -> Int[Tensor, " classes"]:
    """For each predicted class the label that it should stand for: most terms are then right.

    Args:
        matrix: The weight of the terms of each true class (row) that are predicted as each class (column). Of
            equally good orders the one that moves fewest classes is taken.

    Reference: Kuhn 1955.
    """
    from scipy.optimize import linear_sum_assignment

    size = float(matrix.sum()) or 1.0
    gain = matrix.T / size + torch.eye(len(matrix), dtype=matrix.dtype) * 1e-9
    _, labels = linear_sum_assignment(gain.numpy(), maximize=True)
    return torch.from_numpy(labels)


def label_order(subject: Subject) -> Finding:
    """By how much the accuracy would rise if the classes stood in the order that fits best.

    The order is chosen on one half of the examples, drawn at random, and judged on the other, with its paired
    standard error: none is promised to be better.

    Args:
        subject: A model with one class label an example.

    Raises:
        NotAsked: There are fewer than four examples, of whose halves one has no standard error.
    """
    answered, scores = class_scores(subject)
    predicted, labels, classes = scores.argmax(-1), answered.targets.long(), scores.shape[-1]
    number = answered.example.unique(return_inverse=True)[1]
    count = len(number.unique())
    if count < FEWEST:
        raise NotAsked(f"an order is judged on half of at least {FEWEST} examples: there are {count}")
    halves = torch.randperm(count, generator=Generator().manual_seed(0)) % 2
    fit = halves[number] == 0
    order = best_order(confusion_matrix(labels[fit], predicted[fit], classes, answered.weight[fit]))
    judged = Terms(
        (order[predicted] == labels).double()[~fit] - (predicted == labels).double()[~fit],
        answered.weight[~fit],
        answered.example[~fit],
    )
    gain = weighted_mean(judged)
    right = weighted_mean(answered.terms(predicted == labels)).mean
    return Finding(
        statement="By how much the accuracy would rise if the classes stood in the order that fits best, "
        "chosen on one half of the examples and judged on the other; "
        f"it is {right:.3g}{_named(subject, order)}.",
        value=gain.mean,
        range=(-1.0, 1.0),
        premises=(independent_draws(subject),),
        kind="estimate",
        stderr=gain.stderr,
        high=torch.zeros((), dtype=torch.float64),
        failure=unanswered(scores.nan_to_num(torch.nan, 0, 0), "the output"),
    )


def _named(subject: Subject, order: Tensor) -> str:
    """Which classes would stand for which, where any would."""
    names = subject.class_names or tuple(map(str, range(len(order))))
    odd = [k for k in range(len(order)) if int(order[k]) != k]
    told = ", ".join(f"{names[k]} for {names[int(order[k])]}" for k in odd[:NAMED])
    more = f" and {len(odd) - NAMED} more" if len(odd) > NAMED else ""
    return f"; in that order the model's {told}{more}" if odd else "; that is the order they have"


def demo() -> Subject:
    """Three classes, each scored highest where it is the label but for two examples of 30."""
    labels = torch.arange(30) % 3
    scores = torch.nn.functional.one_hot(labels, 3).double()
    scores[:2] = scores[:2].flip(1)
    return stated(scores, labels, task=CLASSES)
