"""The data of a run, opened again and checked against its fingerprint, and its options for another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from margin.core.catalog import Entry, completed, resolve, sources
from margin.data.examples import Data, held_out_part
from margin.data.open import open_data
from margin.data.source import Source
from margin.engine.build import BUILDER, build, names_run
from margin.engine.runs import Run, load, run_at
from margin.nn.preprocessed import core_of


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


TOKENS = {"vocab_size": "vocabulary", "source_vocab_size": "source_vocabulary"}
"""What of a spec counts tokens, and where the encoding of the data has them in order."""


def tensors_of_run(
    model: nn.Module, run: Run, record: Mapping[str, Any]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of a run for a model that may be of other tokens: a row of a token goes over by the token.

    By its number alone a row would become that of another token wherever two vocabularies are equally large.

    Args:
        model: As it was drawn; a token that the run does not know keeps its row.
        run: The run.
        record: Of the training that is about to begin.

    Returns:
        The tensors, and what is said of them.
    """
    found, own = core_of(load(run)).state_dict(), model.state_dict()
    said: list[str] = []
    recipe, ours, theirs = record["recipe"], record["data"]["encoding"], run.record["data"]["encoding"]
    if record.get("own"):
        return found, said
    for count, where in TOKENS.items():
        before, after = list(theirs.get(where, ())), list(ours.get(where, ()))
        if count not in recipe["spec"] or not before or before == after:
            continue
        at = {token: row for row, token in enumerate(before)}
        to = torch.tensor([row for row, token in enumerate(after) if token in at], dtype=torch.int64)
        of = torch.tensor([at[token] for token in after if token in at], dtype=torch.int64)
        names = [name for name in _following(recipe, count) if len(found.get(name, ())) == len(before)]
        for name in names:
            tensor = found.pop(name)
            if len(to) and tensor.shape[1:] == own[name].shape[1:]:
                found[name] = own[name].index_copy(0, to, tensor[of].to(own[name]))
        if names:
            said.append(
                f"the {len(before):,} tokens of the run are others than the {len(after):,} of the data: "
                f"{', '.join(names)} have the values of the {len(to):,} that both know, the rest as drawn; "
                f"--data.tokenizer {run.path} reads texts as the run does"
            )
    return found, said


def _following(recipe: Mapping[str, Any], count: str) -> list[str]:
    """The names of the tensors whose first size is a number of the spec: it changes with that number."""
    shapes = []
    for more in (0, 1):
        spec = {**recipe["spec"], count: recipe["spec"][count] + more}
        with torch.device("meta"):
            state = build({**recipe, "spec": spec}).state_dict()
        shapes.append({name: tensor.shape[:1] for name, tensor in state.items()})
    return [name for name, size in shapes[0].items() if size != shapes[1][name]]
