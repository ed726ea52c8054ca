"""What an adversary wants: a loss to raise, and when it has won.

Untargeted, f(x + d) != y; targeted, f(x + d) = t. The margin loss max_{j != y} f_j - f_y (Carlini &
Wagner, 2017, Section V.A, f_6) has a gradient wherever the scores have one, also where the training
loss is flat.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Generator, Tensor, nn

from margin.core.tasks import Task, class_accuracy, class_margins
from margin.core.types import Batch, Objective, PerExample

Goal = Callable[[Tensor, Tensor], Tensor]
"""``(outputs, targets) -> whether the adversary has won``, for each example."""


def missed(task: Task) -> Goal:
    """The untargeted goal f(x + d) != y: some term of the example is not right.

    Raises:
        ValueError: The task has no classes.
    """
    classes = _classes(task)
    score = task.scores.get("accuracy", lambda outputs, labels: class_accuracy(classes(outputs), labels))

    def goal(outputs: Tensor, targets: Tensor) -> Bool[Tensor, " batch"]:
        right = score(outputs, targets) > 0
        return ~right.reshape(len(right), -1).all(1)

    return goal


def hit(task: Task, target: int) -> Goal:
    """The targeted goal f(x + d) = t: the class ``target`` has the largest score.

    Raises:
        ValueError: The task has no classes.
    """
    classes = _classes(task)

    def goal(outputs: Tensor, targets: Tensor) -> Bool[Tensor, " batch"]:
        return class_accuracy(classes(outputs), torch.full_like(targets, target)) > 0

    return goal


def margin_loss(task: Task) -> Objective:
    """The loss max_{j != y} f_j - f_y of each example: positive where another class has the larger score.

    Raises:
        ValueError: The task has no classes.
    """
    classes = _classes(task)

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
        return -class_margins(classes(model(*batch.inputs)), labels_of(batch))

    return objective


def target_loss(task: Task, target: int) -> Objective:
    """The loss f_t - max_{j != t} f_j of each example, which a targeted attack raises.

    Raises:
        ValueError: The task has no classes.
    """
    classes = _classes(task)

    def objective(model: nn.Module, batch: Batch, generator: Generator) -> PerExample:
        return class_margins(classes(model(*batch.inputs)), torch.full_like(labels_of(batch), target))

    return objective


def _classes(task: Task) -> Callable[[Tensor], Tensor]:
    if task.classes is None:
        raise ValueError(f"an adversary needs classes: the task {task.name!r} has none")
    return task.classes


def labels_of(batch: Batch) -> Tensor:
    """The labels of a batch.

    Raises:
        ValueError: The batch has no targets.
    """
    if batch.targets is None:
        raise ValueError("an adversary needs labels: the batch has no targets")
    return batch.targets
