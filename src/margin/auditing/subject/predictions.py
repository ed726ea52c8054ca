"""Predictions as a subject: of a scikit-learn estimator, which has no gradient, or without any model.

An estimator answers rows of numbers itself. Of features that are no numbers (text, categories, NaN, a sparse
matrix) its answers are computed once, and the model is their table, as it is of predictions alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from margin.core.findings import NO_MODEL, Subject
from margin.data.source import is_frame

NO_GRADIENT = "has no gradient"


class Table(nn.Module):
    """Predictions that were computed before: the input is the number of a row.

    Args:
        outputs: The predictions, a row per example.
    """

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.register_buffer("outputs", outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """The predictions of these rows."""
        outputs: Tensor = self.get_buffer("outputs")
        return outputs[rows]


class Reading(NamedTuple):
    """How the answers of an estimator are read: the task, the method that gives them, and the answers."""

    task: str
    method: str
    answer: Callable[[Any], Tensor]


class Predicting(nn.Module):
    """A fitted estimator as a module: rows of float64 in, its answers out.

    Args:
        answer: Rows -> answers.
        rows: An array of rows -> what the estimator takes.
        name: What it is called.
    """

    def __init__(self, answer: Callable[[Any], Tensor], rows: Callable[[Any], Any], name: str) -> None:
        super().__init__()
        self.answer, self.rows, self.name = answer, rows, name
        self.register_buffer("real", torch.zeros(0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """The estimator's answers to rows."""
        return self.answer(self.rows(x.detach().cpu().numpy())).to(x.device)

    def _get_name(self) -> str:
        return self.name


def is_estimator(model: Any) -> bool:
    """Whether it has the manners of scikit-learn: it fits and predicts."""
    return not isinstance(model, nn.Module | type) and all(
        callable(getattr(model, method, None)) for method in ("fit", "predict")
    )


def subject_of_predictor(
    estimator: Any, data: Any, *, train: Any = None, domain: Any = None, class_names: Sequence[str] = ()
) -> Subject:
    """The subject of an audit: a fitted estimator of scikit-learn's kind on held-out rows.

    Args:
        estimator: Fitted: a classifier, a regressor, a pipeline of either.
        data: ``(X, y)``, as its ``fit`` takes them.
        train: The rows of the fit, for the claims that need them.
        domain: Must be None: attacks need gradients.
        class_names: What its classes are called, in their order; those of the fit if not given.

    Raises:
        NotFittedError: It has not been fitted.
        ValueError: The rows do not fit, or a class was not there in the fit.
    """
    from sklearn.utils.validation import check_is_fitted

    from margin.auditing.subject.subjects import subject_of

    check_is_fitted(estimator)
    if domain is not None:
        raise ValueError("an estimator has no gradient by which its inputs can be moved: leave out domain")
    parts = [_pair(part) for part in ([data] if train is None else [data, train])]
    classes = getattr(estimator, "classes_", None)
    names = [] if classes is None or isinstance(classes, list) else [str(c) for c in classes]
    if len(class_names) and len(class_names) != len(names):
        raise ValueError(f"class_names must name each of the {len(names)} classes: got {len(class_names)}")
    reading = _reading(estimator, parts[0][0], classes)
    labels = [_positions(y, classes) for _, y in parts]
    name = type(estimator).__name__
    assumed = [
        f"outputs: {reading.method} of {name}{_order(classes)}",
        *_otherwise(estimator, reading, parts),
    ]
    model, rows = _module(reading, [X for X, _ in parts], name, assumed)
    found = subject_of(
        model,
        (rows[0], labels[0]),
        task=reading.task,
        train=None if train is None else (rows[1], labels[1]),
        class_names=[str(name) for name in class_names] or names,
    )
    return replace(found, lacks=NO_GRADIENT, assumed=(*assumed, *found.assumed))


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        kind = "nothing" if data is None else type(data).__name__
        raise ValueError(f"an estimator is audited on held-out rows: give them as (X, y): got {kind}")
    X, y = data
    return X, np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)


def _reading(estimator: Any, X: Any, classes: Any) -> Reading:
    """By which method an estimator is asked: its probabilities, else its scores, else what it predicts."""

    def tensor(values: Any) -> Tensor:
        if isinstance(values, list):  # of several labels: two columns for each
            values = np.stack([np.asarray(p)[:, -1] for p in values], 1)
        return torch.from_numpy(np.array(values, dtype=np.float64))

    if classes is None:
        return Reading("values", "predict", lambda X: tensor(estimator.predict(X)))
    if hasattr(estimator, "predict_proba"):
        return Reading("probabilities", "predict_proba", lambda X: tensor(estimator.predict_proba(X)))
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X))
        one = scores.ndim == 1
        chosen = (scores > 0).astype(int) if one else scores.argmax(1)
        # a score of each pair of classes, as of SVC, is none of a class, though there be as many
        if chosen.max() < len(classes) and np.array_equal(classes[chosen], estimator.predict(X)):
            task = "halfspace" if one else "scores"
            return Reading(task, "decision_function", lambda X: tensor(estimator.decision_function(X)))
    return Reading("scores", "predict", lambda X: tensor(estimator.predict(X)[:, None] == classes))


def _positions(y: Any, classes: Any) -> Tensor:
    """Labels as positions among the classes of the fit; values as they are."""
    if classes is None or isinstance(classes, list) or y.ndim > 1:
        return torch.from_numpy(np.array(y, dtype=np.float64 if classes is None else np.int64))
    if (strange := np.setdiff1d(y, classes)).size:
        raise ValueError(f"y must hold classes of the fit, {classes.tolist()}: got {strange.tolist()}")
    return torch.from_numpy(np.searchsorted(classes, y))


def _order(classes: Any) -> str:
    if classes is None or isinstance(classes, list):
        return ""
    return f", its classes in the order {_named(classes)}"


def _named(classes: Any) -> str:
    return ", ".join(map(str, classes[:MOST])) + (", ..." if len(classes) > MOST else "")


MOST = 10
"""How many classes are named."""


def _otherwise(estimator: Any, reading: Reading, parts: Sequence[tuple[Any, Any]]) -> list[str]:
    """What must be said where ``predict`` is not the class of the largest probability."""
    classes: Any = getattr(estimator, "classes_", None)
    if reading.method != "predict_proba" or isinstance(classes, list):
        return []
    X = parts[0][0]
    answers = reading.answer(X)
    if answers.shape[1:] != np.shape(classes):
        return []
    odd = int((classes[answers.argmax(1).numpy()] != np.asarray(estimator.predict(X))).sum())
    of = f"{odd:,} of {len(answers):,} held-out rows"
    said = f"predict names another class than the largest probability for {of}: the latter is judged"
    return [said] if odd else []


def _module(
    reading: Reading, parts: Sequence[Any], name: str, assumed: list[str]
) -> tuple[nn.Module, Sequence[Tensor]]:
    """The estimator as a module and the rows that it is given, or the table of its answers."""
    answers = [reading.answer(X) for X in parts]
    frame, columns = type(parts[0]), list(getattr(parts[0], "columns", ()))

    def rows(x: Any) -> Any:
        if is_frame(parts[0]):
            return frame({name: x[:, i] for i, name in enumerate(columns)})
        return x.astype(getattr(parts[0], "dtype", x.dtype))  # probabilities of float32 rows are other ones

    try:
        numbers = [np.array(X, dtype=np.float64) for X in parts]
    except (TypeError, ValueError):  # text, a sparse matrix
        numbers = []
    finite = all(np.isfinite(x).all() for x in numbers)  # an estimator may take NaN, a module of ours none
    if numbers and finite and all(x.ndim == 2 for x in numbers):
        module = Predicting(reading.answer, rows, name)
        given = [torch.from_numpy(x) for x in numbers]
        if all(torch.equal(module(x), p) for x, p in zip(given, answers, strict=True)):
            return module, given
    why = "features are missing (NaN) or infinite"
    if finite:
        why = "their answers as numbers differ" if numbers else "the features are not rows of numbers"
    assumed.append(f"inputs: {why}; the answers were computed once, row by row")
    lengths = [len(p) for p in answers]
    return Table(torch.cat(answers)), torch.arange(sum(lengths)).split(lengths)


def subject_of_predictions(
    predictions: Any, targets: Any, *, task: str | None = None, class_names: Sequence[str] = ()
) -> Subject:
    """The subject of an audit of predictions alone: what can be asked of numbers.

    Args:
        predictions: A row per example, as :func:`subject_of` takes a model's outputs; or the predicted
            classes themselves, integers or text.
        targets: The truth.
        task: How the predictions are read; inferred if not given.
        class_names: Names of the classes in the order of the columns; text needs none.

    Raises:
        ValueError: They do not fit each other or the task.
    """
    from margin.auditing.subject.subjects import subject_of

    if targets is None:
        raise ValueError("predictions are judged by targets: give both")
    p, y = (_array_of(values) for values in (predictions, targets))
    names = [str(name) for name in class_names]
    assumed = []
    if p.dtype.kind in "OUSiub" and y.dtype.kind in "OUSiub" and p.ndim == 1:
        p, y, classes = columns_of(p, y, names)
        assumed.append(f"outputs: predicted classes without scores{_order(classes)}")
        names, task = names or [str(c) for c in classes], "scores"
    if p.dtype.kind in "iub":
        p = p.astype(np.float64)
    if p.ndim == 0 or p.dtype.kind != "f":
        raise ValueError(f"predictions must be numbers, or one class an example: got {p.dtype} {p.shape}")
    found = subject_of(
        Table(torch.from_numpy(np.array(p))), (torch.arange(len(p)), y), task=task, class_names=names
    )
    return replace(found, lacks=NO_MODEL, assumed=(*assumed, *found.assumed))


def columns_of(p: Any, y: Any, names: Sequence[str] = ()) -> tuple[Any, Any, Any]:
    """Predicted classes as a column of 0 and 1 for each class, targets as positions, and the classes.

    Args:
        p: One class an example, text or whole numbers.
        y: The true classes.
        names: The classes in the order of the columns, which numbers count from 0; (): those that occur.

    Raises:
        ValueError: One is none of the classes.
    """
    classes = np.unique(np.concatenate((p, y)))
    if names:
        classes = np.array(names) if p.dtype.kind in "OUS" else np.arange(len(names))
    for values, what in ((p, "predictions"), (y, "targets")):
        if (strange := np.setdiff1d(values, classes)).size:
            raise ValueError(f"{what} must be of the classes {_named(classes)}: got {strange[0]!s}")
    return (p[:, None] == classes).astype(np.float64), (y[..., None] == classes).argmax(-1), classes


def _array_of(values: Any) -> Any:
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
