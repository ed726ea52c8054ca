"""The data of a run, opened again and checked against its fingerprint, and its options for another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from margin.core.catalog import Entry, completed, resolve, sources
from margin.data.examples import Data, held_out_part
from margin.data.open import open_data
from margin.data.source import Source
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
