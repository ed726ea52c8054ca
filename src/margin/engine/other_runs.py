"""Other runs that a training names: whose weights it begins with, learns from, or is ordered by."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from margin.core.options import Training
from margin.engine.runs import Run

OTHERS = ("curriculum", "teacher")
"""The options that name a run whose weights a training asks at each beginning, also when it is resumed."""


def located(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, the runs that they name by absolute paths: a resumption may begin elsewhere."""
    paths = {name: options.get(name) for name in ("init_from", *OTHERS)}
    return {**options, **{name: str(Path(path).resolve()) for name, path in paths.items() if path}}


def check_same_others(record: Mapping[str, Any], training: Training) -> None:
    """Refuse a teacher or a curriculum whose weights are no longer those that a run began with.

    Raises:
        ValueError: They are not, or the run is gone.
    """
    for name, digest in digests(training).items():
        if record.get("others", {}).get(name, digest) != digest:
            path = getattr(training, name)
            raise ValueError(f"the {name} {path} has changed since the run began: its weights differ")


def digests(training: Training) -> dict[str, str]:
    """The SHA-256 of the weights of each other run that a training asks, by the option that names it.

    Raises:
        ValueError: There is no such run.
    """
    found = {}
    for name in OTHERS:
        if path := getattr(training, name):
            with run_at(path, name).checkpoint("best").open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def run_at(path: str, option: str) -> Run:
    """The run in a directory that an option names.

    Raises:
        ValueError: There is none.
    """
    try:
        return Run(path)
    except FileNotFoundError as error:
        also = ", or a file of weights" if option == "init_from" else ""
        raise ValueError(f"{option} must be the directory of a run{also}: {error}") from None
