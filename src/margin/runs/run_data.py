"""The data of a run, opened again and checked against its fingerprint, and its options for another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from margin.core.catalog import Entry, completed, resolve, sources
from margin.data.examples import Data, held_out_part
from margin.data.open import open_data
from margin.data.source import Source
from margin.engine.build import BUILDER, names_run
from margin.engine.runs import Run, run_at


def reopen_data(record: Mapping[str, Any], data: Any = None) -> Data:
    """The data that a run was trained on, opened again and checked against its fingerprint."""
    origin = record["arguments"]["data"]
    if data is None and not origin:
        raise ValueError("this run was trained on data in memory: hand them over again")
    opened = open_data(origin["source"], origin["options"]) if data is None else opened_as(record, data)
    if opened.fingerprint != record["data"]["fingerprint"]:
        raise ValueError(
            f"the data {opened.name} have changed since the run began: their fingerprint differs"
        )
    return opened


def opened_as(record: Mapping[str, Any], data: Any) -> Data:
    """Data that lie in memory, read with the options with which the run's own were.

    Raises:
        ValueError: They cannot be read so.
    """
    options = record["data"]["encoding"].get("options", {})
    return open_data(data, {} if isinstance(data, Data) else options)


def is_own(run: Run, data: Any) -> bool:
    """Whether ``data`` names the source that the run was trained on: then its held-out part is meant."""
    own = run.record["arguments"]["data"].get("source")
    source = Source.of(data)
    if own is None or not isinstance(source.given, str | Path):
        return False
    if own in sources():
        return str(source.given).removeprefix("data/") == own
    path = str(Path(source.bare).resolve())
    return path in (own, own.partition(":")[2])


def held_out(run: Run) -> Any:
    """The test part that a run held out, else its validation part.

    Raises:
        ValueError: It held nothing out, its data have changed, or they lay in memory.
    """
    splits = reopen_data(run.record).splits
    if not held_out_part(splits):
        raise ValueError(f"{run.path} held nothing out")
    return splits[held_out_part(splits)]


def check_base(record: Mapping[str, Any]) -> None:
    """Refuse a base whose training held out other rows than this one does: what it has seen is no test.

    Rows in memory without a fingerprint are held out by whoever handed them over.

    Args:
        record: Of a training that is about to begin.

    Raises:
        ValueError: The base is a run on other data, or on other parts of the same.
    """
    base, ours = record["arguments"]["options"].get("base", ""), record["data"]
    if BUILDER not in record["recipe"]["spec"] or not ours["fingerprint"] or not names_run(base):
        return
    other = run_at(base, "base").record
    if other["data"]["fingerprint"] == ours["fingerprint"]:
        return
    origin, own = other["arguments"]["data"], record["arguments"]["data"]
    if not origin or origin.get("source") != own.get("source"):
        raise ValueError(
            f"the base {base} must have learned from these data, or rows that it has seen could be held out: "
            f"got a run on {other['data']['name']}, and {ours['name']}"
        )
    theirs, now = _options_of(other), _options_of(record)
    changed = {name: value for name, value in theirs.items() if now.get(name) != value}
    told = " ".join(f"--data.{name.replace('_', '-')} {value}" for name, value in changed.items())
    raise ValueError(
        f"the base {base} must have held out the same rows of {ours['name']}, or rows that it has learned "
        f"from would be held out here: {f'give {told}' if told else 'they have changed since it was trained'}"
    )


def _options_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The options with which a run's data were read, as a file has them, those of the split resolved."""
    given = record["arguments"]["data"]["options"]
    split = record["data"]["encoding"].get("split") or {}
    cut = {"test": split.get("test"), "val": split.get("val"), "split_seed": split.get("seed")}
    found = {**given, **{name: value for name, value in cut.items() if value is not None}}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def like_the_run(entry: Entry, given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The options of a model that begins with a run of the same body: those of the run, unless one is given.

    Args:
        entry: The model.
        given: The user's options; the command line gives defaults too, which count as not given.
        path: The run, a file of weights, or "".

    Returns:
        {} where it begins with no run, or with one of another body.
    """
    if not (Path(path) / "run.yaml").is_file() or not path:
        return {}
    recipe = run_at(path, "init_from").record["recipe"]
    if recipe["model"].partition(":")[0] != entry.name.partition(":")[0]:
        return {}
    defaults = completed(resolve(entry.build), {})
    own = {name: value for name, value in given.items() if value != defaults.get(name)}
    return {**{name: value for name, value in recipe["options"].items() if name in defaults}, **own}
