"""The record of a run: what was trained on what, by which arguments, with which versions."""

from collections.abc import Mapping
from typing import Any

from margin.catalog import Entry, dictated, resolve
from margin.data.examples import Data
from margin.engine.origin import git_state, versions
from margin.engine.recipes import record_preprocess
from margin.options import Training


def record_of(entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training) -> dict[str, Any]:
    """What a run keeps of how it began: with its data, enough to begin it again.

    Args:
        entry: What is trained.
        data: What it is trained on.
        arguments: The model's options, those of its step, the rule.
        training: The resolved options.
    """
    spec = {name: data.spec[name] for name in dictated(resolve(entry.build)) if name in data.spec}
    return {
        "format": 1,
        "arguments": {
            "model": entry.name,
            "data": dict(data.origin),
            **arguments,
            "training": training.as_json(),
        },
        "recipe": {"model": entry.name, "spec": spec, "options": arguments["options"]},
        "preprocess": record_preprocess(data.preprocess),
        "outcome": None if data.outcome is None else record_preprocess(data.outcome),
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "sizes": {name: len(part) for name, part in data.splits.items()},
            "encoding": dict(data.encoding),
            "notes": list(data.notes),
        },
        "versions": versions(),
        "git": git_state(),
    }
