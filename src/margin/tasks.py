"""The tasks: how a model's outputs are read, as classes, as a signed score, as values.

A task turns outputs into the loss of each term, into scores, into the columns a user sees. It holds
no parameter and no state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from margin.types import ClassScores, Labels, PerExample


@dataclass(frozen=True, slots=True)
class Task:
    """How a model's outputs are read.

    Args:
        name: The name in a run's record and in messages.
        loss: ``(outputs, targets) -> the loss of each term``; None where only an objective has a loss.
        scores: Named functions ``(outputs, targets) -> the score of each term``.
        predict: ``outputs -> named columns``, what a user is shown.
        classes: ``outputs -> one score per class``, the largest predicted; None where there are none.
        probabilities: ``outputs -> the probability of each class``; None where the model states none.
    """

    name: str
    loss: Callable[[Any, Tensor], Tensor] | None
    scores: Mapping[str, Callable[[Any, Tensor], Tensor]]
    predict: Callable[[Any], dict[str, Tensor]]
    classes: Callable[[Any], Tensor] | None = None
    probabilities: Callable[[Any], Tensor] | None = None


def class_loss(logits: ClassScores, labels: Labels) -> PerExample:
    """Cross-entropy -log softmax(logits)[label], in nats, of each example."""
    return F.cross_entropy(logits, labels, reduction="none")


def class_accuracy(scores: ClassScores, labels: Labels) -> PerExample:
    """1 where the largest score is the label's, else 0; a row with a NaN is never right."""
    right = scores.argmax(-1) == labels
    return (right & ~scores.isnan().any(-1)).to(scores.dtype)


def class_margins(
    scores: Float[Tensor, "*batch classes"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The margin f_y - max_{j != y} f_j of each term, in the unit of the scores; > 0 where it is right.

    Reference: Mohri, Rostamizadeh and Talwalkar 2018, Section 9.2 (margin of a multi-class hypothesis).
    """
    index = labels.long().unsqueeze(-1)
    rival = scores.scatter(-1, index, -torch.inf).amax(-1)
    return scores.gather(-1, index).squeeze(-1) - rival


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output - target)^2 of each term.

    Raises:
        ValueError: The shapes differ. Broadcasting (N, 1) against (N,) would compare every pair.
    """
    if outputs.shape != targets.shape:
        raise ValueError(
            "outputs and targets must have one shape: "
            f"got outputs {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
        )
    return (outputs - targets).square()


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """|output - target| of each term."""
    return squared_error(outputs, targets).sqrt()


def perceptron_loss(score: PerExample, labels: Labels) -> PerExample:
    """The perceptron criterion max(0, -y z), y = 2 label - 1, whose subgradient step is the mistake rule."""
    return F.relu(-(2 * labels - 1).to(score.dtype) * score)


def halfspace_classes(score: PerExample) -> ClassScores:
    """The scores (-z, z) / 2 of the two sides; their margin is y z."""
    return torch.stack((-score, score), -1) / 2


def halfspace_accuracy(score: PerExample, labels: Labels) -> PerExample:
    """1 where y z > 0; a point on the boundary is a mistake on either side."""
    return ((2 * labels - 1) * score > 0).to(score.dtype)


def _predict_classes(logits: ClassScores) -> dict[str, Tensor]:
    return {"class": logits.argmax(-1), "probability": logits.softmax(-1).amax(-1)}


CLASSES = Task(
    "classes",
    class_loss,
    {"accuracy": class_accuracy},
    _predict_classes,
    classes=lambda logits: logits,
    probabilities=lambda logits: logits.softmax(-1),
)
"""One logit per class; labels 0 .. K-1."""

HALFSPACE = Task(
    "halfspace",
    perceptron_loss,
    {"accuracy": halfspace_accuracy},
    lambda score: {"class": (score > 0).long(), "score": score},
    classes=halfspace_classes,
)
"""One signed score; label 1 is the positive side, 0 the negative. No probability is stated."""

VALUES = Task(
    "values",
    squared_error,
    {"mse": squared_error, "mae": absolute_error},
    lambda values: {"value": values},
)
"""One real number per target; outputs and targets have one shape."""
