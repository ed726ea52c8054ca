"""The record of a run: what was trained on what, by which arguments, with which versions."""

from collections.abc import Mapping
from typing import Any

from margin.core.catalog import Entry, data_parameters, resolve
from margin.core.options import Training
from margin.data.examples import Data
from margin.engine.build import record_preprocess
from margin.engine.runs import git_state, versions

RESUMABLE = (
    "epochs",
    "max_steps",
    "until",
    "patience",
    "evaluate_every",
    "checkpoint_every",
    "device",
    "threads",
    "compile",
    "processes",
    "strategy",
    "workers",
    "track",
    "log",
)
"""The options of a training that may change when it is resumed."""


def record_of(entry: Entry, data: Data, arguments: Mapping[str, Any], training: Training) -> dict[str, Any]:
    """What a run keeps of how it began: with its data, enough to begin it again.

    Args:
        entry: What is trained.
        data: What it is trained on.
        arguments: The model's options, those of its step, the rule.
        training: The resolved options.
    """
    spec = {name: data.spec[name] for name in data_parameters(resolve(entry.build)) if name in data.spec}
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


def check_resumable(before: Mapping[str, Any], training: Training) -> None:
    """Refuse a change that the weights, the optimizer or the order of a run under way cannot follow.

    Raises:
        ValueError: An option other than those of RESUMABLE has changed.
    """
    for name, value in training.as_json().items():
        if name not in RESUMABLE and value != before[name]:
            free = ", ".join(RESUMABLE)
            raise ValueError(
                f"a resumed run keeps its {name}: got {value}, the run has {before[name]}; free are {free}"
            )
