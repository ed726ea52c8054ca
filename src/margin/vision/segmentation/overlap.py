r"""How predicted and true pixels of a class overlap: the Dice coefficient and intersection over union.

.. math:: D = \frac{2\,|A \cap B|}{|A| + |B|}, \qquad J = \frac{|A \cap B|}{|A \cup B|}, \qquad
    D = \frac{2 J}{1 + J}

with A the pixels of a class and B those predicted as it, over all images. Their errors are over images: the
pixels of one are no independent draws.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import PIXEL_CLASSES, Task
from margin.core.types import Batch, Objective
from margin.engine.evaluation import capture, eval_mode, expand_weight
from margin.engine.loop import GradientUpdate, Step, descent, risk
from margin.theory.prediction.confusion import by_class, f1_scores, overlaps

SHOWN = 3
"""Images whose masks are kept to be drawn."""

SIDE = 96
"""Pixels of a side of what is drawn; a larger image is thinned out."""


def has_masks(subject: Subject) -> bool:
    """Whether an example is an image with a class for each of its pixels."""
    x, y = subject.test[0].inputs[0], subject.test[0].targets
    return y is not None and x.ndim == 4 and y.ndim == 3 and y.shape[1:] == x.shape[2:]


def dice(subject: Subject, *, level: float = 0.95) -> Finding:
    """For each class the Dice coefficient of predicted and true pixels over all held-out images.

    Classes that neither occur nor are predicted are left out, and named. The images that are drawn are those
    of the largest share of wrong pixels.

    Args:
        subject: A model with a class for each pixel.
        level: Intended probability with which each interval covers its coefficient, in (0, 1).
    """
    statement = "The Dice coefficient of the pixels predicted as each class and those of it"
    return by_class(
        subject, statement, f1_scores, "neither there nor predicted", level, curves=worst_masks(subject)
    )


def iou(subject: Subject, *, level: float = 0.95) -> Finding:
    """For each class the intersection over union of predicted and true pixels over all held-out images.

    Args:
        subject: A model with a class for each pixel.
        level: Intended probability with which each interval covers its ratio, in (0, 1).
    """
    statement = "Of the pixels that are of each class or are predicted as it, the share that are both"
    return by_class(subject, statement, overlaps, "neither there nor predicted", level, curves={})


@torch.no_grad()
def worst_masks(subject: Subject) -> dict[str, Tensor]:
    """The images of the largest share of wrong pixels, their masks and the classes predicted, to be drawn.

    In a mask -1 is a pixel without a class.
    """
    kept: list[tuple[float, Tensor, Tensor, Tensor]] = []
    with eval_mode(subject.model):
        for batch in subject.test:
            scores = scores_of(subject, batch)
            weight = expand_weight(torch.ones_like(batch.targets, dtype=torch.float64), batch.weight)
            found = scores.argmax(-1)
            wrong = ((found != batch.targets) * weight).flatten(1).sum(1) / weight.flatten(1).sum(1)
            labels = torch.where(weight > 0, batch.targets, -1)
            for i, share in enumerate(wrong.nan_to_num(-1.0).tolist()):
                step = -(-max(labels.shape[1:]) // SIDE)
                image = batch.inputs[0][i].mean(0)
                thin = (one[::step, ::step].cpu() for one in (image, labels[i], found[i]))
                kept.append((share, *thin))  # type: ignore[arg-type]
            kept = sorted(kept, key=lambda row: -row[0])[:SHOWN]
    return {
        f"{name} {k + 1}": picture
        for k, (_, *pictures) in enumerate(kept)
        for name, picture in zip(("image", "mask", "predicted"), pictures, strict=True)
    }


def scores_of(subject: Subject, batch: Batch) -> Tensor:
    """The scores of the classes at each pixel of a batch with targets."""
    if subject.task.classes is None or batch.targets is None:
        raise ValueError(f"this needs a class for every pixel: got task {subject.task.name!r}")
    return subject.task.classes(subject.model(*batch.inputs))


def soft_dice(
    probabilities: Float[Tensor, "batch height width classes"],
    labels: Int[Tensor, "batch height width"],
    weight: Tensor | None = None,
) -> Float[Tensor, "batch classes"]:
    r"""The Dice coefficient of probabilities and labels of each class in each image.

    .. math:: \frac{2 \sum_i w_i p_i g_i + 1}{\sum_i w_i p_i^2 + \sum_i w_i g_i + 1}

    with g_i = 1 where pixel i is of the class. The 1, a pixel, makes it 1 where the class is neither there
    nor predicted. Where all p are 0 or 1 it is the coefficient of two sets, but for that pixel.

    Args:
        probabilities: Of each class at each pixel.
        labels: The true classes.
        weight: Weight of each image or pixel; None: 1.

    Reference: Milletari, Navab and Ahmadi 2016, Section 3 (with squares in the denominator).
    """
    truth = nn.functional.one_hot(labels, probabilities.shape[-1]).to(probabilities)
    w = expand_weight(torch.ones_like(probabilities[..., 0]), weight)[..., None]
    both = (w * probabilities * truth).sum((1, 2))
    return (2 * both + 1) / ((w * (probabilities.square() + truth)).sum((1, 2)) + 1)


def dice_loss(objective: Objective, descend: GradientUpdate, task: Task, *, share: float = 0.5) -> Step:
    """One optimizer step on the Dice loss of each image beside the cross-entropy of its pixels.

    Args:
        objective: The loss of each pixel, of one call of the model.
        descend: How the loss moves the optimizer.
        task: How outputs are read.
        share: Share of the Dice loss in [0, 1]; the cross-entropy has the rest.

    Raises:
        ValueError: The share is out of range, or the task is not segmentation.

    Reference: Milletari, Navab and Ahmadi 2016, Section 3.
    """
    return descent(with_dice(objective, task, share), descend)


def with_dice(objective: Objective, task: Task, share: float) -> Objective:
    """The objective s (1 - D) + (1 - s) l of each pixel, D the mean over classes of :func:`soft_dice`.

    Raises:
        ValueError: As :func:`dice_loss`.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1]: got {share}")
    probabilities_of = task.probabilities
    if task.name != PIXEL_CLASSES.name or probabilities_of is None:
        raise ValueError(f"the Dice loss needs a class for every pixel: got the task {task.name!r}")

    def both(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        with capture([model]) as calls:
            losses = objective(model, batch, generator)
        if len(calls) != 1 or batch.targets is None:
            raise ValueError(
                f"the Dice loss needs an objective that asks the model once: got {len(calls)} calls"
            )
        found = soft_dice(probabilities_of(calls[0].output), batch.targets, batch.weight)
        return share * (1 - found.mean(1))[:, None, None] + (1 - share) * losses

    return both


class Threshold(nn.Module):
    """Scores (-z, z) of two classes of each pixel of a gray image, z its level less 1/2."""

    def forward(self, x: Float[Tensor, "batch 1 height width"]) -> Float[Tensor, "batch height width 2"]:
        """The scores of every pixel."""
        z = x[:, 0] - 0.5
        return torch.stack((-z, z), -1)


def demo() -> Subject:
    """Two images of 2 x 2 pixels: of class 0 four of five pixels are found, of class 1 two of three.

    One pixel of each is taken for the other: J is 4/6 and 2/4, D 8/10 and 4/6.
    """
    labels = torch.tensor([[[0, 0], [0, 1]], [[0, 0], [1, 1]]])
    found = torch.tensor([[[0, 0], [0, 0]], [[0, 1], [1, 1]]])
    batch = Batch((found[:, None].double(),), labels)
    return Subject(model=Threshold(), test=[batch], task=PIXEL_CLASSES, objective=risk(PIXEL_CLASSES))
