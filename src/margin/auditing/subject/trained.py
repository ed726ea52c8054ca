"""The subject of what margin has trained: a run, or a fitted estimator.

A run's subject is its selected weights on what it held out; an estimator's is its module on rows in the
features' own units, classes by position.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from margin.core.catalog import find, models, resolve
from margin.core.findings import Premise, Subject, without_loss
from margin.core.tasks import Task
from margin.core.types import Examples
from margin.data.examples import Data, InOrder, evaluation_batch, held_out_part, is_independent
from margin.data.formats.encodings import feature_names_of, table_record
from margin.data.open import encode
from margin.engine.objectives import same_noise
from margin.engine.plan import cut_of, objective_of
from margin.engine.runs import Run, load
from margin.nn.preprocessed import dtype_of
from margin.runs.run_data import is_own, opened_as, reopen_data


def subject_of_run(run: Run, data: Any = None, reference: Run | None = None) -> Subject:
    """The subject of a run.

    Args:
        run: A training with at least one checkpoint.
        data: Held-out examples with targets, read by the run's own encoding; the part that the run
            held out if not given. Data that lay in memory are handed over again (:func:`own_data`).
        reference: A second run of the same model, with which this one is compared.

    Raises:
        ValueError: The data have no targets, do not fit the run, or are not what it was trained on.

    An objective of the entry's own may draw noise: a claim needs the loss to be one function of the weights,
    so that every question about a batch meets the same draws.
    """
    record = run.record
    entry = run.entry
    task = resolve(entry.task)
    objective = objective_of(entry, task) or without_loss
    if entry.objective:
        objective = same_noise(objective)
    model = load(run)
    assumed = list(record["data"]["notes"]) if is_held_out(run, data) else []
    original = _original(record, data)
    if is_own(run, data) or (data is not None and data is original):
        assumed.append("the data named are the run's own: the part that it held out is audited")
        data = None
    test = _test_part(original, data, record, task, assumed)
    cut = cut_of(entry, record["recipe"]["options"])

    def in_order(part: Examples) -> InOrder:
        examples = cut(part)
        return InOrder(examples, evaluation_batch(examples), dtype=dtype_of(model))

    held = in_order(test)
    return Subject(
        model=model,
        test=held,
        train=() if original is None else in_order(original.splits["train"]),
        task=task,
        objective=objective,
        domain=None if original is None else original.domain,
        independent=is_independent(test) and (not len(held) or held[0].divisible),
        assumed=tuple(assumed),
        class_names=tuple(str(name) for name in record["data"]["encoding"].get("classes", ())),
        feature_names=feature_names_of(record["data"]["encoding"]),
        encoding=table_record(record["data"]["encoding"]),
        vocabulary=tuple(record["data"]["encoding"].get("vocabulary", ())),
        history=tuple(_with_texts(run)),
        initial=load(run, "initial") if run.begun else None,
        certified=_posterior(run, model),
        selection=_selection(run, original) if data is None or data is original else None,
        reference_model=None if reference is None else _second(run, reference),
        groups="" if getattr(test, "groups", None) is None else record["data"]["encoding"]["group"]["column"],
    )


def _with_texts(run: Run) -> Iterator[dict[str, Any]]:
    """The rows of a run's history, each with the texts that were drawn there, where they were kept."""
    for row in run.history:
        kept = run.path / "samples" / f"step-{row['step']:08d}.json"
        yield {**row, "texts": json.loads(kept.read_text("utf-8"))} if kept.is_file() else dict(row)


def _posterior(run: Run, model: nn.Module) -> Any:
    """The law over the weights that a run has learned, by its rule; None where it has none."""
    if not run.record["arguments"]["rule"]:
        return None
    from margin.theory.bounds.certificate import posterior_of_run

    return posterior_of_run(run, model)


def _selection(run: Run, original: Data | None) -> Premise | None:
    """Whether the part that a run held out has chosen anything of its training, by its record."""
    part, chosen = held_out_part({} if original is None else original.splits), "best" in run.checkpoints
    if not part:
        return None
    if part == "val" and chosen:
        return Premise(CHOSE_NOTHING, "refuted", "the weights are those of the least loss on these examples")
    by = "the validation part has chosen among its weights" if chosen else "no examples have chosen weights"
    return Premise(CHOSE_NOTHING, "proved", f"by its record {by}, and these were only measured")


def own_data(run: Run, data: Any) -> Any:
    """The Data that a run was trained on, where ``data`` lay in memory and are those; else as they are given.

    Else rows that a model was trained on would pass for held-out ones.
    """
    if run.record["arguments"]["data"] or data is None or isinstance(data, Data | str | Path):
        return data
    try:
        opened = opened_as(run.record, data)
    except ValueError:  # held-out examples need not be fit for a training: they may be of one class
        return data
    return opened if opened.fingerprint == run.record["data"]["fingerprint"] else data


def is_held_out(run: Run, data: Any) -> bool:
    """Whether an audit with these data is of the part that the run itself held out."""
    return data is None or isinstance(data, Data) or is_own(run, data)


def _second(run: Run, reference: Run) -> nn.Module:
    recipe, other = run.record["recipe"], reference.record["recipe"]
    if recipe != other:
        raise ValueError(
            f"reference must be a run of the same model, options and data: {run.path} is of {_told(recipe)}, "
            f"{reference.path} of {_told(other)}"
        )
    return load(reference)


def _told(recipe: Mapping[str, Any]) -> str:
    options = ", ".join(f"{name} {value}" for name, value in recipe["options"].items())
    spec = ", ".join(f"{name} {value}" for name, value in recipe["spec"].items())
    return f"{recipe['model']} ({'; '.join(part for part in (spec, options) if part)})"


def _original(record: Mapping[str, Any], data: Any) -> Data | None:
    if record["arguments"]["data"]:
        return reopen_data(record)
    return reopen_data(record, data) if isinstance(data, Data) else None


def _test_part(
    original: Data | None, data: Any, record: Mapping[str, Any], task: Task, assumed: list[str]
) -> Any:
    if data is not None and data is not original:
        given = encode(data, record["data"]["encoding"])
        if given.targets is None and task.loss is not None:
            raise ValueError("an audit needs the targets of the held-out examples: the data have none")
        return given
    if original is None:
        raise ValueError("this run was trained on data in memory: hand them over, or held-out examples")
    part = held_out_part(original.splits)
    if not part:
        raise ValueError("the run held nothing out: give held-out data, none that it was trained on")
    if part == "val":
        assumed.append("There is no test part: the validation part, on which weights were chosen, stands in.")
    return original.splits[part]


CHOSE_NOTHING = "the held-out examples chose nothing in the training"


@runtime_checkable
class Estimator(Protocol):
    """What has the manners of scikit-learn and trains an entry of the catalog; fitted, it has ``module_``."""

    model: str

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of its constructor."""
        ...

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on the rows of a matrix."""
        ...


def subject_of_estimator(estimator: Any, data: Any, *, train: Any = None, domain: Any = None) -> Subject:
    """The subject of an audit: an estimator's ``module_`` on held-out rows, or its answers to rows with NaN.

    Args:
        estimator: Fitted.
        data: ``(X, y)``, as its ``fit`` takes them.
        train: The rows of the fit, for the claims that need them.
        domain: Where a feature may lie: (low, high), or a Domain.

    Raises:
        NotFittedError: It has not been fitted.
        ValueError: The rows do not fit, or a class was not there in the fit.
    """
    from sklearn.utils import get_tags
    from sklearn.utils.validation import check_is_fitted

    from margin.auditing.subject.predictions import subject_of_predictor
    from margin.auditing.subject.subjects import subject_of

    check_is_fitted(estimator)
    if data is None:
        raise ValueError("an estimator is audited on held-out rows: give them as (X, y)")
    if get_tags(estimator).input_tags.allow_nan and any(_has_nan(part) for part in (data, train)):
        return subject_of_predictor(estimator, data, train=train, domain=domain)
    module: nn.Module = estimator.module_
    return subject_of(
        module,
        _rows(estimator, data),
        task=resolve(find(models(), estimator.entry_, "model").task).name,
        train=None if train is None else _rows(estimator, train),
        domain=domain,
        class_names=tuple(str(name) for name in getattr(estimator, "classes_", ())),
    )


def _has_nan(data: Any) -> bool:
    """Whether a number of rows (X, y) is missing."""
    return isinstance(data, tuple | list) and bool(np.isnan(np.asarray(data[0], dtype=np.float64)).any())


def _rows(estimator: Any, data: Any) -> tuple[Tensor, Tensor]:
    """Rows and targets as the module takes them."""
    from sklearn.utils.validation import validate_data

    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(f"rows must be a pair (X, y): got {type(data).__name__}")
    X = torch.tensor(validate_data(estimator, data[0], reset=False, dtype=np.float64))
    y = np.asarray(data[1])
    if (classes := getattr(estimator, "classes_", None)) is not None:
        strange = np.setdiff1d(y, classes)
        if strange.size:
            raise ValueError(f"y must hold classes of the fit, {classes.tolist()}: got {strange.tolist()}")
        y = np.searchsorted(classes, y)
    return X.reshape(-1, *estimator.input_shape_), torch.tensor(y)
