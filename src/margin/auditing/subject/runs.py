"""The subject of a run: its handed-out weights, judged on what it held out, in the user's units."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from margin.core.catalog import find, models, resolve
from margin.core.findings import Subject, without_loss
from margin.core.tasks import Task
from margin.core.types import Examples
from margin.data.examples import Data, InOrder, evaluation_batch, is_independent, judged
from margin.data.open import encode
from margin.engine.loading import load
from margin.engine.objectives import same_noise
from margin.engine.plan import cut_of, objective_of
from margin.engine.runs import Run
from margin.engine.state import dtype_of
from margin.runs.using import is_own, reopen_data


def subject_of_run(run: Run, data: Any = None, reference: Run | None = None) -> Subject:
    """The subject of a run.

    Args:
        run: A training with at least one checkpoint.
        data: Held-out examples with targets, read by the run's own encoding; the part that the run
            held out if not given. Data that lay in memory are handed over as Data.
        reference: A second run of the same model, with which this one is compared.

    Raises:
        ValueError: The data have no targets, do not fit the run, or are not what it was trained on.

    An objective of the entry's own may draw noise: a claim needs the loss to be one function of the weights,
    so that every question about a batch meets the same draws.
    """
    record = run.record
    entry = find(models(), record["recipe"]["model"], "model")
    task = resolve(entry.task)
    objective = objective_of(entry, task)
    if objective is None:
        objective = without_loss
    elif entry.objective:
        objective = same_noise(objective)
    model = load(run)
    assumed = list(record["data"]["notes"]) if is_held_out(run, data) else []
    original = _original(record, data)
    if is_own(run, data):
        assumed.append("The data named are the run's own: the part that it held out is audited.")
        data = None
    test = _test_part(original, data, record, task, assumed)
    cut = cut_of(entry)

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
        history=tuple(run.history),
        initial=load(run, "initial") if run.begun else None,
        reference_model=None if reference is None else _second(run, reference),
        groups="" if getattr(test, "groups", None) is None else record["data"]["encoding"]["group"]["column"],
    )


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
    part = judged(original.splits)
    if not part:
        raise ValueError("the run held nothing out: give held-out data")
    if part == "val":
        assumed.append("There is no test part: the validation part, on which weights were chosen, stands in.")
    return original.splits[part]
