"""Objectives around a loss: smoothed labels, weighted classes, importance ratios, noise held fixed."""

from dataclasses import replace

from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.tasks import CLASSES, Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import expand_weight
from margin.engine.loop import Risk
from margin.nn.losses import check_smoothing, smoothed_cross_entropy


def smoothed(
    task: Task,
    *,
    smoothing: float = 0.0,
    confusion: Tensor | None = None,
    class_weight: Float[Tensor, " classes"] | None = None,
) -> Objective:
    """The cross-entropy of class logits to smoothed labels, classes weighted.

    A batch's mean stays sum(w l) / sum(w) over the weights w of its examples: the weights of the classes
    multiply the losses, so give them mean 1 over the training examples (as "balanced" ones have) to keep the
    unit of the loss. Torch's mean divides by the batch's own sum of class weights, which is not the same.

    Args:
        task: Must read outputs as one logit a class.
        smoothing: eps in [0, 1): the label y becomes (1 - eps) e_y + eps / K.
        confusion: Instead of smoothing, row y is the distribution that label y becomes.
        class_weight: Finite weights >= 0, one a class, not all 0.

    Raises:
        ValueError: The task is another, or an option is out of range.

    Reference: Szegedy et al. 2016, Section 7.
    """
    if task.name != CLASSES.name:
        raise ValueError(f"smoothed labels need one logit a class (the task 'classes'): got {task.name!r}")
    check_smoothing(smoothing, confusion)
    if class_weight is not None:
        fine = class_weight.isfinite().all() and (class_weight >= 0).all() and (class_weight > 0).any()
        if class_weight.ndim != 1 or not bool(fine):
            raise ValueError(
                "class_weight must be finite numbers >= 0, one a class, not all 0: "
                f"got {class_weight.tolist()}"
            )

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(
            logits, labels, confusion, smoothing=smoothing, class_weight=class_weight
        )

    return Risk(replace(task, loss=loss))


def importance_weighted(objective: Objective) -> Objective:
    """The objective of batches whose last input is the ratio 1 / (n p_i) of each example's probability.

    The ratio multiplies the loss and is not a weight, because a mean divides by the sum of the weights: with
    weights it would be a quotient of two random sums, which is biased.

    Args:
        objective: The loss of each term.

    Reference: Robert and Casella 2004, Monte Carlo Statistical Methods, Section 3.3.
    """

    def corrected(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        *inputs, ratio = batch.inputs
        losses = objective(model, batch._replace(inputs=tuple(inputs)), generator)
        return losses * expand_weight(losses, ratio)

    return corrected


def same_noise(objective: Objective) -> Objective:
    """The objective whose draws are the same whenever it is asked: one function of weights and batch.

    Args:
        objective: The loss of each term.
    """

    def asked(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        return objective(model, batch, Generator(generator.device).manual_seed(0))

    return asked
