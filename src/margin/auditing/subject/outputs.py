"""How a stranger's outputs are read: logits, probabilities, a signed score or values, and which it is.

What cannot be told from the outputs and targets alone is refused, in a sentence that names the ways on.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from margin.core.tasks import (
    BINARY,
    CLASSES,
    COLUMN,
    HALFSPACE,
    MULTILABEL,
    SCORES,
    VALUES,
    Task,
    class_accuracy,
    halfspace_classes,
)

TASKS = (
    "classes",
    "binary",
    "multilabel",
    "terms",
    "logits",
    "probabilities",
    "scores",
    "halfspace",
    "values",
)
"""What a user may state of a model's outputs."""

SINGLE = (BINARY.name, HALFSPACE.name)
"""The tasks of one output for two classes."""

IGNORED = -100
"""The label that torch's cross-entropy leaves out."""

TERMS = "terms"
"""How a user calls a class at each of several places of an example: pixels, tokens, points."""


def shape_of(tensor: Tensor) -> str:
    """The shape of a batch, whose first axis is N: "(N, 3)"."""
    return f"({', '.join(['N', *map(str, tensor.shape[1:])])}{',' if tensor.ndim == 1 else ''})"


def _scores(p: Tensor) -> Tensor:
    """The logarithm, finite at 0, by functions that have interval rules."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


def _log(probabilities: Tensor) -> Tensor:
    """The logarithm, finite at 0; NaN of what is no probability."""
    return _scores(torch.where((probabilities < 0) | (probabilities > 1 + 1e-3), torch.nan, probabilities))


def _log_odds(p: Tensor) -> Tensor:
    return _scores(p) - _scores(1 - p)


def _cross_entropies(p: Tensor, labels: Tensor) -> Tensor:
    """-log p where the label is 1, -log(1 - p) where it is 0."""
    return -torch.where(labels.bool(), _log(p), _log(1 - p))


def _one_hot_loss(p: Tensor, labels: Tensor) -> Tensor:
    """One cross-entropy for each class against the rest, summed."""
    hot = nn.functional.one_hot(labels.long(), p.shape[-1])
    return _cross_entropies(p, hot).sum(-1)


def _probable(p: Tensor, labels: Tensor) -> Tensor:
    """1 where p > 1/2 and the label is 1, or neither; a NaN is never right."""
    return (((p > 0.5) == (labels == 1)) & ~p.isnan()).to(p.dtype)


PROBABILITIES = Task(
    CLASSES.name,
    lambda p, labels: nn.functional.nll_loss(_log(p), labels, reduction="none"),
    {"accuracy": class_accuracy},
    lambda p: {"class": p.argmax(-1), "probability": p.amax(-1)},
    classes=_scores,
    probabilities=lambda p: p,
)
"""A probability for each class, a softmax being the model's last layer."""

ONE_VS_REST = replace(
    PROBABILITIES,
    loss=_one_hot_loss,
    predict=lambda p: {"class": p.argmax(-1), "probability": (p / p.sum(-1, keepdim=True)).amax(-1)},
    probabilities=lambda p: _log(p).softmax(-1),
)
"""A probability of each class against the rest; the class's own is its share of the row's sum."""

PROBABILITY = Task(
    BINARY.name,
    _cross_entropies,
    {"accuracy": _probable},
    lambda p: {"class": (p > 0.5).long(), "probability": torch.maximum(p, 1 - p)},
    classes=lambda p: halfspace_classes(_log_odds(p)),
    probabilities=lambda p: torch.stack((1 - p, p), -1),
)
"""The probability of class 1, a sigmoid being the model's last layer; labels 0 and 1."""


def _at_each_place(task: Task) -> Task:
    """The same task at each of several places: outputs (..., classes), labels (...)."""

    def flat(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda p, labels: score(p.flatten(0, -2), labels.flatten()).reshape(labels.shape)

    loss = None if task.loss is None else flat(task.loss)
    scores = {name: flat(score) for name, score in task.scores.items()}
    return replace(task, name=TERMS, loss=loss, scores=scores, by_term=True)


LABEL_PROBABILITIES = replace(
    PROBABILITY,
    name=MULTILABEL.name,
    by_term=True,
    predict=lambda p: {"labels": (p > 0.5).long(), "probability": torch.maximum(p, 1 - p)},
)
"""The probability of each of several labels, a sigmoid being the model's last layer."""

PLACE_CLASSES = _at_each_place(CLASSES)
"""A logit for each class at each place: of a pixel, of a token, of what comes next."""

PLACE_PROBABILITIES = _at_each_place(PROBABILITIES)
"""A probability for each class at each place, a softmax being the model's last layer."""


class Layout(NamedTuple):
    """Where the scores of the classes stand in outputs of several places an example, or a value in a column.

    Args:
        axis: Their axis.
        single: Whether there is one score only, or a value: the axis goes.
    """

    axis: int
    single: bool


def layout_of(name: str | None, outputs: Tensor, targets: Tensor | None, assumed: list[str]) -> Layout | None:
    """On which axis the classes stand of a model that answers at several places; None where it does not.

    A segmentation answers (N, K, H, W) to labels (N, H, W), a tagging (N, T, K) or (N, K, T) to (N, T).
    Values in a column (N, 1) are those of targets (N,): two such shapes would be broadcast to (N, N).

    Args:
        name: What the user states of the outputs; ``terms``: of two axes that fit the last one holds them.
        outputs: What the model returned.
        targets: The targets.
        assumed: Where it is said.

    Raises:
        ValueError: The axis after the first and the last one both fit.
    """
    if targets is None or outputs.ndim != targets.ndim + 1:
        return None
    real = "values" if targets.is_floating_point() else ""
    if targets.ndim == 1 and outputs.shape[1] == 1 and (name or real) == "values":
        assumed.append(COLUMN)
        return Layout(-1, True)
    if real or targets.ndim < 2:
        return None
    fits = [axis for axis in (1, outputs.ndim - 1) if _without(outputs, axis) == targets.shape]
    if not fits:
        return None
    if len(fits) > 1 and name != TERMS:
        raise ValueError(
            f"the outputs {shape_of(outputs)} to labels {shape_of(targets)} may hold the classes on axis 1 "
            "or on the last: state task terms for the last; for axis 1 audit a module whose forward returns "
            "model(x).movedim(1, -1), and state task terms"
        )
    axis = fits[-1]
    assumed.append(
        f"task: a class at each place, because the targets are integers {shape_of(targets)} and the outputs "
        f"{shape_of(outputs)}, the classes on axis {axis}; errors are over examples"
    )
    return Layout(axis, outputs.shape[axis] == 1)


def _without(tensor: Tensor, axis: int) -> tuple[int, ...]:
    return (*tensor.shape[:axis], *tensor.shape[axis + 1 :])


def task_of(name: str | None, outputs: Tensor, targets: Tensor | None, assumed: list[str]) -> Task:
    """The task that is stated, or that outputs and targets of the first batch leave no doubt about.

    Args:
        name: One of :data:`TASKS`; None: it is inferred.
        outputs: What the model returned, a row per example; of several places the classes on the last axis.
        targets: The targets, None where there are none.
        assumed: Where an inference is said.

    Raises:
        ValueError: It cannot be told, or the outputs are not of the kind that is stated.
    """
    if name is not None and name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}: got {name!r}")
    kind = name or _inferred(outputs, targets, assumed)
    form = _form(outputs, targets)
    if kind in (MULTILABEL.name, TERMS) or (kind == CLASSES.name and form != TERMS):
        form = kind
    if kind == "values":
        if name is None:
            assumed.append("loss: squared error")
        return VALUES
    if kind == SCORES.name:
        return SCORES
    if kind == "probabilities":
        return _probabilities(outputs, form, assumed)
    if kind == "logits":
        return _single(BINARY, outputs, assumed) if form == BINARY.name else _logits(form, assumed)
    several = kind in (CLASSES.name, TERMS)
    if _sums_to_1(outputs) and several:
        assumed.append("outputs: probabilities, because every row sums to 1; their logarithms are the scores")
        return PROBABILITIES if form == CLASSES.name else PLACE_PROBABILITIES
    if in_unit(outputs):
        one = form == BINARY.name
        sigmoid = "sigmoid" if one else "sigmoids" if form == MULTILABEL.name else ONE_AGAINST_THE_REST
        raise ValueError(
            "the outputs all lie in [0, 1], which may be probabilities or logits: "
            f"state task probabilities, or audit the model without its {sigmoid}, or state task logits"
        )
    if kind in SINGLE:
        return _single(BINARY if kind == BINARY.name else HALFSPACE, outputs, assumed)
    if several and _are_logarithms(outputs):
        assumed.append(
            "outputs: log-probabilities, because the exponentials of every row sum to 1; loss: cross-entropy"
        )
        return CLASSES if form == CLASSES.name else PLACE_CLASSES
    return _logits(form, assumed if name is None else [])


ONE_AGAINST_THE_REST = "sigmoids (one against the rest)"


def _logits(form: str, assumed: list[str]) -> Task:
    """The task of logits, and its loss said."""
    if form == MULTILABEL.name:
        assumed.append("outputs: the logit of each label; loss: binary cross-entropy, the mean over labels")
        return MULTILABEL
    assumed.append("outputs: logits of a softmax; loss: cross-entropy")
    return CLASSES if form == CLASSES.name else PLACE_CLASSES


def _form(outputs: Tensor, targets: Tensor | None) -> str:
    """How many classes and places outputs and targets have, by their shapes."""
    if targets is not None and targets.shape[1:].numel() > 1:
        if outputs.shape == targets.shape and _are_labels(targets) and not _are_one_hot(targets):
            return MULTILABEL.name
        if outputs.shape[:-1] == targets.shape:
            return TERMS
    return BINARY.name if outputs.ndim == 1 or outputs.shape[1:] == (1,) else CLASSES.name


def _are_labels(targets: Tensor) -> bool:
    """Whether all are 0 or 1, or left out."""
    return bool(((targets == 0) | (targets == 1) | (targets == IGNORED)).all())


def _are_one_hot(targets: Tensor) -> bool:
    return targets.ndim == 2 and bool((targets.sum(1) == 1).all())


def _inferred(outputs: Tensor, targets: Tensor | None, assumed: list[str]) -> str:
    if targets is None:
        raise ValueError(
            "state the task: without targets it cannot be inferred; of an autoencoder give (x, x)"
        )
    form = _form(outputs, targets)
    if form == MULTILABEL.name:
        what = "several labels an example" if targets.ndim == 2 else "a label 0 or 1 at each place"
        assumed.append(f"task: {what}, because the targets {shape_of(targets)} are 0 or 1 as the outputs are")
        return form
    if targets.is_floating_point():
        _refuse_labels(outputs, targets)
        assumed.append(f"task: values, because the targets are real numbers of shape {shape_of(targets)}")
        return "values"
    if form == TERMS:
        return form
    check_label_shape(targets)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        assumed.append(f"task: classes, because the targets are integers and the outputs {shape_of(outputs)}")
        return "classes"
    if outputs.ndim > 2:
        raise ValueError(
            f"the outputs must be a score for each class (N, K): they are {shape_of(outputs)}; "
            "audit a module that returns one row of scores an example"
        )
    raise ValueError(
        f"state the task: integer targets with outputs {shape_of(outputs)} may mean logits or probabilities "
        "(of class 1), halfspace (a signed score) or values"
    )


def _probabilities(outputs: Tensor, form: str, assumed: list[str]) -> Task:
    if not in_unit(outputs):
        low, high = outputs.min().item(), outputs.max().item()
        raise ValueError(f"probabilities must lie in [0, 1]: the outputs lie in [{low:.4g}, {high:.4g}]")
    if form == BINARY.name:
        return _single(PROBABILITY, outputs, assumed)
    if form == MULTILABEL.name:
        assumed.append("loss: binary cross-entropy, the mean over labels")
        return LABEL_PROBABILITIES
    if _sums_to_1(outputs):
        return PROBABILITIES if form == CLASSES.name else PLACE_PROBABILITIES
    assumed.append(
        "outputs: probabilities of each class against the rest, because rows do not sum to 1; the loss is "
        "the sum of their cross-entropies, the probability of a class its share of the row"
    )
    return ONE_VS_REST if form == CLASSES.name else _at_each_place(ONE_VS_REST)


def _single(task: Task, outputs: Tensor, assumed: list[str]) -> Task:
    """The task of one output for two classes, which may stand in a column of its own."""
    if outputs.ndim != 2 or outputs.shape[1] != 1:
        return task
    assumed.append(COLUMN)
    return _of_column(task)


def _of_column(task: Task) -> Task:
    """The same task of outputs (N, 1), or of one row (1,)."""
    loss, classes, probabilities = task.loss, task.classes, task.probabilities
    if loss is None or classes is None:
        raise ValueError(f"task {task.name} has no loss or no classes")

    def scored(score: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda outputs, labels: score(outputs.squeeze(-1), labels)

    return replace(
        task,
        loss=scored(loss),
        scores={name: scored(score) for name, score in task.scores.items()},
        predict=lambda outputs: task.predict(outputs.squeeze(-1)),
        classes=lambda outputs: classes(outputs.squeeze(-1)),
        probabilities=None if probabilities is None else lambda outputs: probabilities(outputs.squeeze(-1)),
    )


def in_unit(outputs: Tensor) -> bool:
    """Whether all outputs that are numbers lie in [0, 1], and some are."""
    seen = outputs[~outputs.isnan()]
    return seen.numel() > 0 and bool(((seen >= 0) & (seen <= 1)).all())


def _sums_to_1(outputs: Tensor) -> bool:
    """Whether each row whose outputs are numbers is a distribution of two classes or more, and some are."""
    if outputs.ndim < 2 or outputs.shape[-1] < 2 or not in_unit(outputs):
        return False
    rows = outputs.flatten(0, -2)
    rows = rows[~rows.isnan().any(1)].double()
    return bool(((rows.sum(1) - 1).abs() < 1e-3).all()) and len(rows) > 0


def _are_logarithms(outputs: Tensor) -> bool:
    """Whether each row whose outputs are numbers holds the logarithms of a distribution, and some do."""
    rows = outputs.flatten(0, -2).double()
    rows = rows[~rows.isnan().any(1)]
    return bool((rows.logsumexp(1).abs() < 1e-3).all()) and len(rows) > 0


def _refuse_labels(outputs: Tensor, targets: Tensor) -> None:
    """Refuse real numbers that look like labels: nobody means a squared error of logits."""
    if not bool((targets == targets.round()).all()):
        return
    if targets.ndim == 1 and outputs.ndim == 2 and outputs.shape[1] > 1:
        raise ValueError(f"labels must be integers: got targets of type {name_of(targets)}; give y.long()")
    if targets.shape != outputs.shape or set(targets.unique().tolist()) != {0.0, 1.0}:
        return
    if _are_one_hot(targets) and targets.shape[1] > 1:
        check_label_shape(targets)
    raise ValueError(
        "state the task: targets that are 0 or 1 may be labels (give y.long().flatten(), and the task logits "
        "or probabilities) or values"
    )


def check_label_shape(labels: Tensor) -> None:
    """Refuse labels that are not one an example, in a sentence that says what to hand over instead.

    Raises:
        ValueError: They are a column, one-hot rows, several an example, or one at each place.
    """
    if labels.ndim == 1:
        return
    if labels.shape[1:].numel() == 1:
        cure = "give y.flatten()"
    elif _are_one_hot(labels):
        cure = "of one-hot rows give y.argmax(1), or state task multilabel"
    else:
        cure = (
            "of a label at each place the outputs must be (N, classes, places) or (N, places, classes), of "
            "several labels 0 or 1 an example (N, labels)"
        )
    raise ValueError(f"labels must be one integer an example: got targets {shape_of(labels)}; {cure}")


def name_of(tensor: Tensor) -> str:
    """The tensor's type as torch spells it: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def say_infinite(task: Task, p: Tensor, labels: Tensor | None, assumed: list[str]) -> None:
    """Say where a true class is given probability 0: the loss is finite there, that a mean be one."""
    if labels is None or labels.is_floating_point() or task.loss is None or not in_unit(p):
        return
    most = -math.log(torch.finfo(p.dtype).tiny)
    count = int((task.loss(p, labels) > 0.999 * most).sum())
    if count:
        assumed.append(
            f"loss: infinite for {count:,} held-out examples, whose class has probability 0; it is taken as "
            f"{most:.3g}, of the least number of the type"
        )
