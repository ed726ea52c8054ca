"""Metrics of predictions, each with its 95 % interval: the numbers of an audit without a model.

Every function takes predictions, then targets (arrays or tensors of n examples), and returns a
:class:`Measured`, or one for each class. How an interval is made is said by the function of that name in
:mod:`margin.theory.prediction`, which an audit asks.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.auditing.subject.outputs import PROBABILITIES, PROBABILITY
from margin.auditing.subject.predictions import columns_of
from margin.core.findings import Finding, NotAsked, Subject
from margin.core.tasks import CLASSES, PIXEL_CLASSES, VALUES
from margin.theory.prediction import calibration, confusion, ranking, residuals, risk
from margin.theory.prediction.held_out import stated
from margin.vision.segmentation import overlap as segmentation

__all__ = [
    "Measured",
    "accuracy",
    "auroc",
    "balanced_accuracy",
    "brier_score",
    "dice",
    "expected_calibration_error",
    "iou",
    "log_loss",
    "macro_f1",
    "mean_absolute_error",
    "precision",
    "r2",
    "recall",
    "root_mean_square_error",
]


class Measured(NamedTuple):
    """A value with its 95 % interval.

    Args:
        value: What was measured.
        low: The lower end of the interval.
        high: The upper one.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def accuracy(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The share of right predictions, with its exact binomial interval (Clopper and Pearson 1934).

    Args:
        predictions: The class of each example, (n,); a score or probability of each class, (n, classes); or
            the probability of class 1 of two, (n,) of real numbers.
        targets: The true classes, (n,): 0 .. K - 1, or names where predictions are names.
        weight: Weight of each example; None: 1.

    Raises:
        ValueError: The shapes do not fit, or the numbers are not of that kind.
    """
    return _one(risk.accuracy, _classified(predictions, targets, weight))


def balanced_accuracy(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The mean over classes of their recall. Arguments and errors as :func:`accuracy`."""
    return _one(confusion.balanced, _classified(predictions, targets, weight))


def macro_f1(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The mean over classes of the harmonic mean of precision and recall; arguments as :func:`accuracy`."""
    return _one(confusion.f1, _classified(predictions, targets, weight))


def recall(predictions: Any, targets: Any, *, weight: Any = None) -> dict[str, Measured]:
    """How much of each class is found, by class. Arguments and errors as :func:`accuracy`."""
    return _each(confusion.recall, _classified(predictions, targets, weight))


def precision(predictions: Any, targets: Any, *, weight: Any = None) -> dict[str, Measured]:
    """How much of what is predicted as a class is of it, by class. Arguments as :func:`accuracy`."""
    return _each(confusion.precision, _classified(predictions, targets, weight))


def auroc(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The area under the ROC curve; of more than two classes, the mean over classes against the rest.

    Args:
        predictions: A score or probability of each class, (n, classes), or the probability of class 1, (n,).
        targets: The true classes, (n,), 0 .. K - 1.
        weight: Weight of each example; None: 1.

    Raises:
        ValueError: The shapes do not fit, or all targets are of one class.
    """
    return _one(ranking.area, _scored(predictions, targets, weight))


def expected_calibration_error(
    probabilities: Any, targets: Any, *, bins: int = 15, weight: Any = None
) -> Measured:
    """The mean distance of confidence and frequency of being right, over bins of equal width.

    Args:
        probabilities: The probability of each class, (n, classes), or of class 1, (n,).
        targets: The true classes, (n,), 0 .. K - 1.
        bins: Number of bins.
        weight: Weight of each example; None: 1.

    Raises:
        ValueError: The shapes do not fit, or a row is no distribution.
    """
    subject = _forecast(probabilities, targets, weight)
    return _one(lambda subject: calibration.ece(subject, bins=bins), subject)


def brier_score(probabilities: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The mean squared distance of forecast and outcome over all classes, from 0 to 2 (Brier 1950).

    Over two classes it is twice what some libraries call by this name. Arguments and errors as
    :func:`expected_calibration_error`.
    """
    return _one(calibration.brier, _forecast(probabilities, targets, weight))


def log_loss(probabilities: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The mean of -log p of what happened, in nats. Arguments as :func:`expected_calibration_error`.

    Raises:
        ValueError: The shapes do not fit, a row is no distribution, or what happened was given 0.
    """
    return _one(calibration.nll, _forecast(probabilities, targets, weight))


def dice(predictions: Any, targets: Any, *, ignore_index: int = 255) -> dict[str, Measured]:
    """The Dice coefficient of the pixels predicted as each class and those of it, over images, by class.

    Intervals are over images: the pixels of one are no independent draws.

    Args:
        predictions: The class of each pixel, (n, height, width), or a score or probability of each class,
            (n, height, width, classes).
        targets: The true classes, (n, height, width), 0 .. K - 1.
        ignore_index: The target of pixels that count for nothing.

    Raises:
        ValueError: The shapes do not fit, or a class is unknown.
    """
    return _each(segmentation.dice, _segmented(predictions, targets, ignore_index))


def iou(predictions: Any, targets: Any, *, ignore_index: int = 255) -> dict[str, Measured]:
    """Intersection over union of the pixels of each class and those predicted as it; as :func:`dice`."""
    return _each(segmentation.iou, _segmented(predictions, targets, ignore_index))


def mean_absolute_error(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The mean distance of predictions and targets, real numbers of one shape, in the targets' unit.

    Args:
        predictions: Real numbers, (n, ...).
        targets: Real numbers of the same shape.
        weight: Weight of each example; None: 1.

    Raises:
        ValueError: The shapes differ, or there are fewer than two examples.
    """
    return _one(residuals.mae, _valued(predictions, targets, weight))


def root_mean_square_error(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The root of the mean squared distance. Arguments and errors as :func:`mean_absolute_error`."""
    return _one(residuals.rmse, _valued(predictions, targets, weight))


def r2(predictions: Any, targets: Any, *, weight: Any = None) -> Measured:
    """The share of the targets' variance that is explained. Arguments as :func:`mean_absolute_error`."""
    return _one(residuals.r2, _valued(predictions, targets, weight))


Ask = Callable[[Subject], Finding]


def _one(ask: Ask, subject: Subject) -> Measured:
    return next(iter(_each(ask, subject).values()))


def _each(ask: Ask, subject: Subject) -> dict[str, Measured]:
    """The elements of a finding by their label, which is a class's name."""
    try:
        found = ask(subject)
    except NotAsked as error:
        raise ValueError(str(error)) from None
    if found.failure:
        raise ValueError(found.failure)
    ends = (found.value.double(), *found.shown)
    rows = zip(*(end.expand_as(found.value).flatten().tolist() for end in ends), strict=True)
    return dict(zip(found.labels or ("",), (Measured(*row) for row in rows), strict=True))


def _classified(predictions: Any, targets: Any, weight: Any) -> Subject:
    """The subject that answers with classes, scores or probabilities."""
    p, y = np.asarray(predictions), np.asarray(targets)
    names: tuple[str, ...] = ()
    text = p.dtype.kind in "USO"
    if y.dtype.kind in "USO" and not text:  # in sorted order, as scikit-learn numbers them
        known, y = np.unique(y, return_inverse=True)
        names = tuple(map(str, known))
    alike = text == (y.dtype.kind in "USO") and p.ndim == y.ndim == 1 and len(p) == len(y) > 0
    decided = alike and p.dtype.kind in "USOiub"
    if decided and text:
        p, y, known = columns_of(p, y)
        names = tuple(map(str, known))
    elif decided:
        p, y, _ = columns_of(p, y, [f"class {k}" for k in range(int(max(p.max(), y.max())) + 1)])
    _check(p, y, "classes")
    outputs, labels = torch.as_tensor(p), torch.as_tensor(y).long()
    task = CLASSES
    if not decided:
        task = PROBABILITY if outputs.ndim == 1 else PROBABILITIES if _distributions(outputs) else CLASSES
        if task is PROBABILITY and not bool(((outputs >= 0) & (outputs <= 1)).all()):
            raise ValueError("real numbers, one an example, must be probabilities of class 1, in [0, 1]")
    count = 2 if outputs.ndim == 1 else outputs.shape[1]
    if names and len(names) != count:
        raise ValueError(f"of names in sorted order there must be one a column: got {len(names)} for {count}")
    _check_labels(torch.as_tensor(y), count, "targets")
    return replace(stated(outputs, labels, _weights(weight, len(y)), task=task), class_names=names)


def _segmented(predictions: Any, targets: Any, ignore_index: int) -> Subject:
    """The subject that answers with a class, or a score of each, at every pixel."""
    p, y = torch.as_tensor(np.asarray(predictions)), torch.as_tensor(np.asarray(targets))
    if y.ndim != 3 or p.shape[:3] != y.shape or p.ndim > 4:
        raise ValueError(
            "predictions and targets must be of one shape, (n, height, width), predictions possibly with "
            f"scores behind: got predictions {tuple(p.shape)} and targets {tuple(y.shape)}"
        )
    known = y != ignore_index
    if not bool(known.any()):
        raise ValueError(f"no pixel has a class: all targets are {ignore_index}")
    if p.ndim == 3:
        _check_whole(p[known], "predictions")
        p = torch.nn.functional.one_hot(
            torch.where(known, p, 0).long(), int(max(p[known].max(), y[known].max())) + 1
        ).float()
    _check_labels(y[known], p.shape[-1], "targets")
    return stated(p, torch.where(known, y, 0).long(), known.double(), task=PIXEL_CLASSES)


def _scored(predictions: Any, targets: Any, weight: Any) -> Subject:
    """The subject that answers with scores or probabilities: a class alone ranks nothing."""
    if np.asarray(predictions).dtype.kind != "f":
        raise ValueError("a ranking needs scores or probabilities, real numbers: got classes")
    return _classified(predictions, targets, weight)


def _forecast(probabilities: Any, targets: Any, weight: Any) -> Subject:
    """The subject that answers with probabilities, of each class or of class 1."""
    subject = _classified(probabilities, targets, weight)
    outputs = subject.test[0].inputs[0]
    if np.asarray(probabilities).dtype.kind != "f" or subject.task is CLASSES:
        row = outputs.sum(-1) if outputs.ndim == 2 else outputs
        raise ValueError(
            "each row must be a distribution over the classes; of logits give their softmax: "
            f"the first row sums to {float(row[0]):.4g}, its least is {float(outputs[0].min()):.4g}"
        )
    return subject


def _valued(predictions: Any, targets: Any, weight: Any) -> Subject:
    """The subject that answers with real values."""
    p, y = np.asarray(predictions, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    _check(p, y, "values")
    if p.shape != y.shape:
        raise ValueError(f"predictions and targets must have one shape: got {p.shape} and {y.shape}")
    return stated(torch.as_tensor(p), torch.as_tensor(y), _weights(weight, len(y)), task=VALUES)


def _check(p: NDArray[Any], y: NDArray[Any], what: str) -> None:
    shapes = f"got predictions {p.shape} and targets {y.shape}"
    if p.ndim == 0 or y.ndim == 0 or not len(p) or len(p) != len(y):
        raise ValueError(f"predictions and targets must be of the same examples, one at least: {shapes}")
    if what == "classes" and (y.ndim != 1 or p.ndim > 2):
        raise ValueError(f"targets must be one class an example, (n,), beside (n,) or (n, classes): {shapes}")
    if p.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
        raise ValueError(f"predictions and targets must be numbers: got {p.dtype} and {y.dtype}")
    if p.dtype.kind == "f" and not bool(np.isfinite(p).all()):
        row = int(np.argwhere(~np.isfinite(p))[0][0])
        raise ValueError(f"predictions must be finite: example {row} has {p[row]}")


def _check_whole(labels: Tensor, what: str) -> None:
    if labels.is_floating_point() or bool((labels < 0).any()):
        raise ValueError(
            f"{what} must be whole numbers from 0: got {labels.dtype}, {labels.min().item()} the least"
        )


def _check_labels(labels: Tensor, count: int, what: str) -> None:
    whole = not labels.is_floating_point() or bool((labels == labels.round()).all())
    odd = (labels < 0) | (labels >= count)
    if not whole or bool(odd.any()):
        got = labels[odd][0] if bool(odd.any()) else labels[labels != labels.round()][0]
        raise ValueError(f"{what} must be whole numbers from 0 to {count - 1}: got {got.item()}")


def _weights(weight: Any, count: int) -> Tensor | None:
    if weight is None:
        return None
    counted = torch.as_tensor(np.asarray(weight, dtype=np.float64))
    if counted.shape != (count,) or not bool((counted >= 0).all()) or not bool((counted > 0).any()):
        raise ValueError(
            f"weights must be one an example, none below 0, some above: got {tuple(counted.shape)}"
        )
    return counted


def _distributions(p: Tensor) -> bool:
    """Whether every row is a distribution, as far as its type rounds."""
    off = (p.double().sum(1) - 1).abs().max()
    return bool((p >= 0).all()) and float(off) < 1e-3
