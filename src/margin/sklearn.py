"""scikit-learn estimators: any supervised entry that reads rows of a matrix as classifier or regressor.

``MarginClassifier`` and ``MarginRegressor`` keep scikit-learn's conventions (Buitinck et al. 2013), so they
stand in its pipelines, searches and cross-validations. They train as ``margin.train`` does, leave no run
and print nothing.
"""

import inspect
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from margin.core.arguments import by_argument
from margin.core.catalog import (
    Entry,
    check_options,
    data_parameters,
    find,
    heads_of,
    models,
    nearest,
    resolve,
    user_options,
)
from margin.core.options import Amount, Training
from margin.core.tasks import HALFSPACE, Task
from margin.core.types import Metrics
from margin.data.examples import Data
from margin.data.formats.tables import weighted_rows
from margin.data.formats.tables.weighted_rows import Doubles, Missing
from margin.data.preprocess import Standardize
from margin.engine.loop import State, Step, terms_in
from margin.engine.runs import load
from margin.nn.predictive import predictive_of, states_law
from margin.nn.preprocessed import Preprocessed
from margin.runs.training import finish, prepare

SPEC = ("in_features", "num_classes", "num_examples", "channels", "image_size", "builder")
"""What a matrix dictates to a model; the last two only where its rows have a shape."""


def known(model: Any) -> Entry | None:
    """The entry that a model's name means; None where it means none."""
    try:
        return find(models(), model, "model") if isinstance(model, str) else None
    except ValueError:
        return None


def defaults_of(entry: Entry | None) -> dict[str, Any]:
    """The options of an entry's constructor, by name."""
    if entry is None:
        return {}
    build = resolve(entry.build)
    return {name: inspect.signature(build).parameters[name].default for name in user_options(build)}


def kind_of(entry: Entry) -> str:
    """What an entry's task predicts: classes, values, or what its name says."""
    task: Task = resolve(entry.task)
    return "classes" if task.classes is not None else task.name


def entries_for(kind: str, *, many: bool = False) -> list[str]:
    """The names of the entries that predict ``kind`` from the rows of a matrix.

    Args:
        kind: classes or values.
        many: Whether an entry that separates but two classes is left out.
    """
    fit = [entry for entry in models().values() if kind_of(entry) == kind and not _strange(entry)]
    return [entry.name for entry in fit if not (many and resolve(entry.task) is HALFSPACE)]


def _strange(entry: Entry) -> set[str]:
    return set(data_parameters(resolve(entry.build))) - set(SPEC)


def entry_for(kind: str, model: Any, shape: Any) -> Entry:
    """The entry of that name, which predicts ``kind`` from the rows of a matrix.

    Raises:
        ValueError: There is none, it predicts something else, or its rows need a shape.
    """
    if not isinstance(model, str):
        raise ValueError(f"model must be the name of an entry: got {model!r}")
    named = find(models(), model, "model")
    heads = (head for head in heads_of(named) if kind_of(head) == kind and not _strange(head))
    entry = next(heads, named)
    if kind_of(entry) != kind or _strange(entry):
        such = ", ".join(entries_for(kind))
        raise ValueError(
            f"model must predict {kind} from the rows of a matrix: got {entry.name}; such: {such}"
        )
    if shape is None and {"channels", "image_size"} & set(data_parameters(resolve(entry.build))):
        raise ValueError(f"{entry.name} takes images: pass shape=(channels, height, width), got shape=None")
    return entry


OTHERWISE = {
    **{name: name for name in ("epochs", "batch_size", "lr")},
    "seed": "random_state",
    **dict.fromkeys(("processes", "strategy"), "n_jobs of scikit-learn"),
}
"""Options of a training that ``training`` does not take, and what does."""

FURTHER = tuple(field.name for field in fields(Training) if field.name not in OTHERWISE)
"""Those that it does take."""

NEVER = 2**31
"""Steps between evaluations where nothing is held out."""

ROWS = 1024
"""Rows of a batch of predictions."""

ONE_AT_A_TIME = Lock()
"""Trainings in threads of one process take turns, for torch has one global generator."""


def check_further(name: str) -> None:
    """Refuse what is no option of ``training``.

    Raises:
        ValueError: It is none; the message names the nearest.
    """
    if name in FURTHER:
        return
    if name in OTHERWISE:
        raise ValueError(f"training takes no {name!r}: use {OTHERWISE[name]}")
    near = ", ".join(dict.fromkeys([*nearest(name, FURTHER), *FURTHER]))
    raise ValueError(f"training has no option {name!r}; it has: {near}")


def mapping(value: Any) -> dict[str, Any]:
    """A copy of a dict; an empty one of anything else, which a fit refuses."""
    return dict(value) if isinstance(value, Mapping) else {}


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's numbers, inside of lists, tuples and dicts too."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    return value


@by_argument()
def trained(
    entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training
) -> tuple[nn.Module, list[float], int]:
    """The trained module, the mean loss of each epoch, and the number of epochs; the run is removed."""
    losses: list[tuple[float, float]] = []
    with ONE_AT_A_TIME, tempfile.TemporaryDirectory() as folder:
        job = prepare(entry.name, data, arguments, training, Path(folder) / "run")
        plan = replace(job.plan, step=recording(job.plan.step, losses))
        try:
            run = finish(replace(job, plan=plan))
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # the message would tell how to go on with a run that is gone
        module: Any = load(run)
    cuts = range(0, len(losses), plan.per_epoch)
    parts = (losses[i : i + plan.per_epoch] for i in cuts)
    curve = [math.fsum(loss * n for loss, n in part) / math.fsum(n for _, n in part) for part in parts]
    return module.model, curve, math.ceil(job.state.step / plan.per_epoch)


def recording(step: Step, losses: list[tuple[float, float]]) -> Step:
    """A step that appends its loss, where it states one, and the weight of the terms whose mean that is."""

    def recorded(state: State, batch: Any) -> Metrics:
        metrics = step(state, batch)
        if "loss" in metrics:
            losses.append((float(metrics["loss"]), float(terms_in(metrics, batch))))
        return metrics

    return recorded


class _Estimator(BaseEstimator):
    """What the classifier and the regressor share: their parameters, a training, the outputs."""

    model: str
    options: Mapping[str, Any] | None
    epochs: int | None
    batch_size: Amount | None
    lr: float | None
    training: Mapping[str, Any] | None
    step: Mapping[str, Any] | None
    shape: Sequence[int] | None
    validation_fraction: float
    missing: Missing
    random_state: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor, by name.

        Args:
            deep: Whether the model's options (``options__hidden``) and the training's
                (``training__schedule``) are given too, each under a name of its own.
        """
        found: dict[str, Any] = super().get_params(deep=False)
        if deep:
            options = {**defaults_of(known(self.model)), **mapping(self.options)}
            training = {**dict.fromkeys(FURTHER), **mapping(self.training)}
            found |= {f"options__{name}": value for name, value in options.items()}
            found |= {f"training__{name}": value for name, value in training.items()}
        return found

    def _set_params(self, **params: Any) -> "_Estimator":
        """Set parameters of the constructor, single options of the model and of the training among them.

        Raises:
            ValueError: There is no such parameter or option.
        """
        single = {k: v for k, v in params.items() if k.startswith(("options__", "training__"))}
        super().set_params(**{k: v for k, v in params.items() if k not in single})
        for path, value in single.items():
            group, _, name = path.partition("__")
            if group == "training":
                check_further(name)
            else:
                entry = find(models(), self.model, "model")
                check_options(resolve(entry.build), {name: value}, f"the model {entry.name}")
            setattr(self, group, {**mapping(getattr(self, group)), name: value})
        return self

    set_params = _set_params  # scikit-learn's signature; in public ours have no **parameters

    @property
    def _finite(self) -> Literal[True, "allow-nan"]:
        """What scikit-learn's validation lets through."""
        if self.missing not in get_args(Missing):
            raise ValueError(f"missing must be one of {', '.join(get_args(Missing))}: got {self.missing!r}")
        if self.missing != "error" and self.shape is not None:
            raise ValueError(f"missing numbers are filled in rows, not in images: got shape={self.shape}")
        return True if self.missing == "error" else "allow-nan"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    def _learn(self, entry: Entry, X: Doubles, targets: NDArray[Any], weight: Doubles) -> None:
        """Train on the rows whose weight is not 0, and keep what a fitted estimator has."""
        self.entry_ = entry.name
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        training = self._training(entry, seed)
        if not (entry.weighted or weighted_rows.even(weight)):
            raise ValueError(f"weights must be equal or 0 for {entry.name}, whose step knows no others")
        shape = weighted_rows.shape_of(self.shape, X.shape[1])
        rows = weighted_rows.rows_of(X, targets, weight, shape)
        classes = len(getattr(self, "classes_", ()))
        read: Any = {"as_it_is": training.scale == "none", "missing": self.missing}
        data, preprocess = weighted_rows.data_of_rows(rows, classes, self.validation_fraction, seed, **read)
        given = {name: plain(mapping(getattr(self, name))) for name in ("options", "step")} | {"rule": ""}
        core, self.loss_curve_, self.n_iter_ = trained(entry, data, given, training)
        self.input_shape_ = shape
        self.module_: nn.Module = Preprocessed(preprocess, core).double().eval()

    def _training(self, entry: Entry, seed: int) -> Training:
        """The options of the training."""
        for what in ("options", "step", "training"):
            if not isinstance(given := getattr(self, what), Mapping | None):
                raise ValueError(f"{what} must be a dict: got {given!r}")
        options = mapping(self.training)
        for name in options:
            check_further(name)
        if not self.validation_fraction:
            if options.get("patience"):
                raise ValueError("patience needs a validation part: got validation_fraction=0")
            options |= {"patience": 0, "evaluate_every": options.get("evaluate_every") or NEVER}
        if not entry.optimizers and options.get("precision") is None:
            options["precision"] = "float64"  # an exact solve is not to be rounded to seven digits
        own = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr, "seed": seed}
        return Training(**plain(options | own))

    def _outputs(self, X: Any) -> Tensor:
        """The module's outputs, in float64: those of float32 would vary with the batch."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite)
        rows = torch.tensor(X).reshape(-1, *self.input_shape_)
        with torch.no_grad():
            return torch.cat([self.module_(part) for part in rows.split(ROWS)])


def _states_probabilities(estimator: Any) -> bool:
    entry = known(estimator.model)
    return entry is not None and resolve(entry.task).probabilities is not None


class MarginClassifier(ClassifierMixin, _Estimator):
    """Any entry that predicts classes, with the manners of a scikit-learn classifier.

    Features are standardized, by their weighted mean and variance; ``module_`` does so itself;
    ``training={"scale": "none"}`` takes them as they are. Rows of
    weight 0 are left out. Predictions are computed in float64, with the weights of the training.
    Single options are set as ``options__hidden=(64,)`` and ``training__schedule="cosine"``.

    Args:
        model: Name of an entry whose task is to predict classes.
        options: The model's own options.
        epochs: Passes over the rows; the model's default if not given.
        batch_size: Rows a step, or "all"; the model's default if not given.
        lr: Learning rate; the model's default if not given.
        training: Further options of :class:`margin.Training`, by name. ``patience`` is 0 where
            nothing is held out, ``precision`` float64 where a model is solved exactly.
        step: Options of the model's own step, by name, as ``{"leapfrog_steps": 10}`` of Hamiltonian chains.
        shape: (channels, height, width) of the image that a row holds, for models of images.
        validation_fraction: Share of the rows that is held out: the weights of the least validation loss
            are kept, and the model's own ``patience`` stops the training. 0 holds nothing out.
        missing: What a missing number (NaN) is: an error, the mean of its feature (mean), or the mean and a
            feature of 0 and 1 that says where it was missing (indicate).
        class_weight: Weight of each class, a dict, by which ``sample_weight`` is multiplied; "balanced"
            gives all classes the same total. None is 1 for each, and so is a class that a dict leaves out.
        random_state: Seeds weights, order and noise; an int makes a fit repeatable.

    Attributes:
        classes_: The classes, sorted.
        entry_: Full name of the entry that was trained, with the head that fits the targets.
        module_: The trained torch module, float64, from inputs in their own units to the model's outputs.
        input_shape_: The shape of one of its inputs.
        loss_curve_: The mean training loss of each epoch; empty where the model's rule states none.
        n_iter_: The number of epochs.
        n_features_in_: The number of features.
        feature_names_in_: Their names, where all of them are strings.
    """

    def __init__(  # 12 parameters: those that scikit-learn's searches and clones set by name
        self,
        model: str = "feedforward/mlp",
        *,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        batch_size: Amount | None = None,
        lr: float | None = None,
        training: Mapping[str, Any] | None = None,
        step: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        validation_fraction: float = 0.0,
        missing: Missing = "error",
        class_weight: Mapping[Any, float] | str | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.options = options
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.training = training
        self.step = step
        self.shape = shape
        self.validation_fraction = validation_fraction
        self.missing = missing
        self.class_weight = class_weight
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MarginClassifier":
        """Train on the rows of a matrix.

        Args:
            X: Features (rows, features), finite numbers, or NaN where ``missing`` says what it is.
            y: The class of each row: numbers or strings.
            sample_weight: How much each row counts, at least 0.

        Raises:
            ValueError: A parameter or the data do not fit.
            NonFiniteError: The loss or a gradient stopped being finite.
        """
        entry = entry_for("classes", self.model, self.shape)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=self._finite)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weight = weighted_rows.weights_of(sample_weight, len(X))
        weight = weight * weighted_rows.class_factors(self.class_weight, self.classes_, codes, weight)[codes]
        counted = self.classes_[np.unique(codes[weight > 0])].tolist()
        if len(counted) < 2:
            raise ValueError(
                f"rows of two classes must have a weight above 0: got {len(counted)} class, {counted}"
            )
        if resolve(entry.task) is HALFSPACE and len(self.classes_) > 2:
            raise ValueError(
                f"Only binary classification is supported by {entry.name}: got {len(self.classes_)} classes; "
                f"for more: {', '.join(entries_for('classes', many=True))}"
            )
        self._learn(entry, X, codes, weight)
        return self

    def decision_function(self, X: Any) -> Doubles:
        """The score of each class (rows, classes); of two classes the second's less the first's (rows,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    @available_if(_states_probabilities)
    def predict_proba(self, X: Any) -> Doubles:
        """The probability of each class (rows, classes), where the model states one."""
        return self._task().probabilities(self._outputs(X)).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest score, of each row."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def _scores(self, X: Any) -> Doubles:
        outputs = self._outputs(X)
        return self._task().classes(outputs).numpy()

    def _task(self) -> Any:
        check_is_fitted(self)
        return resolve(find(models(), self.entry_, "model").task)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        entry = known(self.model)
        tags.classifier_tags.multi_class = entry is None or resolve(entry.task) is not HALFSPACE
        return tags


class MarginRegressor(RegressorMixin, _Estimator):
    """Any entry that predicts a value, with the manners of a scikit-learn regressor.

    Features are standardized, also for a ridge regression or a lasso, whose penalty then weighs all alike;
    scikit-learn's estimators of these names take them as they are, as ``training={"scale": "none"}`` does
    here. The target is standardized unless the model is solved exactly or
    ``training={"scale_targets": "none"}``; ``module_`` takes and gives values in their own units. Rows of
    weight 0 are left out. Predictions are computed in
    float64, with the weights of the training. A target of several columns is refused.

    Args:
        model: Name of an entry whose task is to predict a value.
        options: The model's own options.
        epochs: Passes over the rows; the model's default if not given.
        batch_size: Rows a step, or "all"; the model's default if not given.
        lr: Learning rate; the model's default if not given.
        training: Further options of :class:`margin.Training`, by name. ``patience`` is 0 where
            nothing is held out, ``precision`` float64 where a model is solved exactly.
        step: Options of the model's own step, by name, as ``{"leapfrog_steps": 10}`` of Hamiltonian chains.
        shape: (channels, height, width) of the image that a row holds, for models of images.
        validation_fraction: Share of the rows that is held out: the weights of the least validation loss
            are kept, and the model's own ``patience`` stops the training. 0 holds nothing out.
        missing: What a missing number (NaN) is: an error, the mean of its feature (mean), or the mean and a
            feature of 0 and 1 that says where it was missing (indicate).
        random_state: Seeds weights, order and noise; an int makes a fit repeatable.

    Attributes:
        entry_: Full name of the entry that was trained, with the head that fits the targets.
        module_: The trained torch module, float64, from inputs to values, both in their own units.
        input_shape_: The shape of one of its inputs.
        loss_curve_: The mean training loss of each epoch, of the standardized target; empty where the
            model's rule states none.
        n_iter_: The number of epochs.
        n_features_in_: The number of features.
        feature_names_in_: Their names, where all of them are strings.
    """

    def __init__(  # 11 parameters, as the classifier's
        self,
        model: str = "feedforward/mlp:values",
        *,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        batch_size: Amount | None = None,
        lr: float | None = None,
        training: Mapping[str, Any] | None = None,
        step: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        validation_fraction: float = 0.0,
        missing: Missing = "error",
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.options = options
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.training = training
        self.step = step
        self.shape = shape
        self.validation_fraction = validation_fraction
        self.missing = missing
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MarginRegressor":
        """Train on the rows of a matrix.

        Args:
            X: Features (rows, features), finite numbers, or NaN where ``missing`` says what it is.
            y: The value of each row, a finite number.
            sample_weight: How much each row counts, at least 0.

        Raises:
            ValueError: A parameter or the data do not fit.
            NonFiniteError: The loss or a gradient stopped being finite.
        """
        entry = entry_for("values", self.model, self.shape)
        finite = self._finite
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite=finite)
        y, weight = y.astype(np.float64), weighted_rows.weights_of(sample_weight, len(X))
        scaled = Training(scale_targets=mapping(self.training).get("scale_targets")).over(entry.defaults)
        if not entry.optimizers or scaled.scale_targets == "none":
            self._learn(entry, X, y, weight)
            return self
        target = weighted_rows.standardization(y[:, None], weight)
        mean, std = target.mean.item(), target.std.item()
        self._learn(entry, X, (y - mean) / std, weight)
        # the way back, y = std z + mean, is a standardization too: y = (z - (-mean / std)) / (1 / std)
        back = Standardize(torch.tensor(-mean / std), torch.tensor(1 / std)).double()
        fitted: Any = self.module_
        self.module_ = Preprocessed(fitted.preprocess, fitted.model, back).eval()
        return self

    def predict(self, X: Any, return_std: bool = False) -> Doubles | tuple[Doubles, Doubles]:
        """The value of each row, and the standard deviation of a new value there where it is asked for.

        Args:
            X: Features, as those of the fit.
            return_std: Whether the standard deviations are returned too, of a model that states them.

        Raises:
            ValueError: The model predicts values alone.
        """
        values: Doubles = self._outputs(X).numpy()
        if not return_std:
            return values
        if not states_law(self.module_):
            raise ValueError(f"return_std needs a model that states how sure it is: got {self.entry_}")
        rows = torch.tensor(
            validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=self._finite)
        )
        with torch.no_grad():
            parts = rows.reshape(-1, *self.input_shape_).split(ROWS)
            found = torch.cat([predictive_of(self.module_, part).variance.sqrt() for part in parts])
        return values, found.numpy()
