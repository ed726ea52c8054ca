"""Using a run: its data, its predictions, the loss of each example that it held out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from margin.catalog import find, models, resolve
from margin.data.examples import EVALUATION_BATCH, Data, InOrder, judged
from margin.data.folders import image_files
from margin.data.opening import encode, form_of, open_data
from margin.engine.asking import asking, terms_of
from margin.engine.loading import load
from margin.engine.plan import cut_of, objective_of
from margin.engine.runs import Run
from margin.engine.state import dtype_of


def reopen_data(record: Mapping[str, Any], data: Any = None) -> Data:
    """The data that a run was trained on, opened again and checked against its fingerprint."""
    origin = record["arguments"]["data"]
    if data is None and not origin:
        raise ValueError("this run was trained on data in memory: hand them over again")
    opened = open_data(data, {}) if data is not None else open_data(origin["source"], origin["options"])
    if opened.fingerprint != record["data"]["fingerprint"]:
        raise ValueError(
            f"the data {opened.name} have changed since the run began: their fingerprint differs"
        )
    return opened


def is_own(run: Run, data: Any) -> bool:
    """Whether ``data`` names the source that the run was trained on: then its held-out part is meant."""
    own = run.record["arguments"]["data"].get("source")
    if own is None or not isinstance(data, str | Path):
        return False
    return own in (str(data).removeprefix("data/"), str(Path(data).resolve()))


def held_out(run: Run) -> Any:
    """The test part that a run held out, else its validation part.

    Raises:
        ValueError: It held nothing out, its data have changed, or they lay in memory.
    """
    splits = reopen_data(run.record).splits
    if not judged(splits):
        raise ValueError(f"{run.path} held nothing out")
    return splits[judged(splits)]


def predictions(run: Run, data: Any) -> dict[str, list[Any]]:
    """A run's predictions for data, as columns with class names in place of labels.

    Args:
        run: A training with at least one checkpoint.
        data: Read by the run's own encoding; targets are not needed. Of a set by name, the part that the
            run held out is taken; of a file, every row.

    Raises:
        ValueError: The data do not fit the run.
    """
    record = run.record
    model, entry = load(run), find(models(), record["recipe"]["model"], "model")
    task, names = resolve(entry.task), record["data"]["encoding"].get("classes", [])
    columns: dict[str, list[Any]] = {}
    named = is_own(run, data) and not Path(data).exists()
    examples = held_out(run) if named else encode(data, record["data"]["encoding"])
    if not named and isinstance(data, str | Path) and form_of(data) in ("folder", "image"):
        columns["file"] = [str(path) for path in image_files(data)]
    batches = InOrder(examples, EVALUATION_BATCH, dtype=dtype_of(model))
    with torch.no_grad(), asking(model):
        for batch in batches:
            for name, values in task.predict(model(*batch.inputs)).items():
                shown = [names[i] for i in values.tolist()] if name == "class" and names else values.tolist()
                columns.setdefault(name, []).extend(shown)
    return columns


def held_out_terms(run: Run) -> dict[str, Any]:
    """The loss and scores of each held-out example under a run's weights, as NumPy columns.

    The test part is taken, else the validation part.

    Raises:
        ValueError: The run held nothing out, or its data have changed.
    """
    record = run.record
    model, part = load(run), held_out(run)
    entry = find(models(), record["recipe"]["model"], "model")
    task = resolve(entry.task)
    objective = objective_of(entry, task)
    if objective is None:
        raise ValueError(f"{entry.name} has no loss that could be compared")
    cut = cut_of(entry)
    found: dict[str, list[torch.Tensor]] = {}
    with torch.no_grad(), asking(model) as generator:
        for batch in InOrder(cut(part), EVALUATION_BATCH, dtype=dtype_of(model)):
            for name, values in terms_of(model, batch, task, objective, generator).items():
                found.setdefault(name, []).append(values.double().flatten())
    return {name: torch.cat(values).numpy() for name, values in found.items()}
