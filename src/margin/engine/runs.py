"""A run: the directory a training leaves, enough to build, use, judge and resume it.

``run.yaml`` holds the resolved arguments, ``history.jsonl`` one row an evaluation, keyed by step,
``checkpoints.json`` names the last and the best checkpoint and why the training ended, and
``step-00000120.safetensors`` is the whole state after 120 steps; ``metrics.json`` judges the weights
that are handed out. Every file is replaced by one rename,
and which checkpoint counts is decided by one file, so a kill at any moment leaves a run that resumes.
"""

import copy
import json
import math
import shutil
from pathlib import Path
from typing import Any

import yaml

from margin.data.files.writing import append_whole, clear_aside, write_whole
from margin.engine.checkpoints import load_state, save_state
from margin.engine.loop import State
from margin.engine.parallel.locks import holder_of
from margin.engine.parallel.processes import world
from margin.engine.schema import (
    check_digest,
    read_checkpoints,
    read_history,
    read_metrics,
    read_record,
    sealed,
    wrong,
)

MEASURED = ("seconds", "examples_per_second", "peak_memory_mib")
"""Columns of the history that two equal trainings need not share."""


class _Plain(yaml.SafeDumper):
    """YAML without anchors: what is written twice is read twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _clean(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose numbers that are not finite are JSON's null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _yaml(record: dict[str, Any]) -> bytes:
    return yaml.dump(sealed(record), Dumper=_Plain, sort_keys=False).encode()


class Run:
    """The directory of a training; of several processes the first one writes it.

    Args:
        path: The directory, which holds a ``run.yaml``.

    Raises:
        FileNotFoundError: There is no run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "run.yaml").is_file():
            raise FileNotFoundError(f"{self.path} is no run: it has no run.yaml")
        self._record: dict[str, Any] | None = None
        self.ending = ""  # why the training ends at this step, to be marked with its checkpoint
        self._history: list[dict[str, Any]] | None = None
        self._checkpoints: dict[str, Any] | None = None

    def _write(self, name: str, content: bytes) -> None:
        if world().rank == 0:
            write_whole(self.path / name, content)

    @classmethod
    def create(cls, path: str | Path, record: dict[str, Any]) -> "Run":
        """Make the directory with its record, by one rename.

        Raises:
            FileExistsError: Something is there already.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(_occupied(path))
        new = path.with_name(path.name + ".new")
        if new.exists():
            shutil.rmtree(new)  # left by a kill: it was never a run
        new.mkdir(parents=True)
        try:
            write_whole(new / "run.yaml", _yaml(record))
            new.rename(path)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)  # no run yet: the name stays free
            raise
        return cls(path)

    @property
    def record(self) -> dict[str, Any]:
        """What ``run.yaml`` holds, read once.

        Raises:
            ValueError: The file is damaged, or has changed since it was written.
        """
        if self._record is None:
            record = read_record(self.path / "run.yaml")
            check_digest(self.path / "run.yaml", record)
            self._record = {key: value for key, value in record.items() if key != "digest"}
        return self._record

    def amend(self, training: dict[str, Any]) -> None:
        """Record the options common to all trainings that a resumption goes on with."""
        record = copy.deepcopy(self.record)
        record["arguments"]["training"] = training
        self._write("run.yaml", _yaml(record))
        self._record = record

    # checkpoints

    @property
    def checkpoints(self) -> dict[str, Any]:
        """The steps of the ``last`` and ``best`` checkpoints; ``ended`` and ``reason`` of the end."""
        if self._checkpoints is None:
            self._checkpoints = read_checkpoints(self.path / "checkpoints.json")
        return self._checkpoints

    def checkpoint(self, mark: str = "last") -> Path:
        """The checkpoint file of a mark ("last", "best", "initial"); best is last where none is marked.

        Raises:
            FileNotFoundError: No checkpoint has been written.
        """
        if mark == "initial":
            return self.path / "initial.safetensors"
        marks = self.checkpoints
        if "last" not in marks:
            raise FileNotFoundError(f"{self.path} has no checkpoint yet: resume it with --resume {self.path}")
        file = self._file(marks.get(mark, marks["last"]))
        if not file.is_file():
            raise wrong(
                self.path / "checkpoints.json",
                mark if mark in marks else "last",
                f"names {file.name}, which is not there",
            )
        return file

    def _file(self, step: int) -> Path:
        return self.path / f"step-{step:08d}.safetensors"

    @property
    def begun(self) -> bool:
        """Whether the initial weights are kept."""
        return self.checkpoint("initial").exists()

    def start(self, state: State) -> None:
        """Keep the initial weights, once."""
        if not self.begun:
            save_state(self.path / "initial.safetensors", state)

    def save(self, state: State, *, best: bool) -> None:
        """Write a checkpoint, mark it as last (and best), and drop those that no mark names."""
        save_state(self._file(state.step), state)
        marks = {k: v for k, v in self.checkpoints.items() if k == "best"} | {"last": state.step}
        ending = {"ended": state.step, "reason": self.ending} if self.ending else {}
        self._mark(marks | ({"best": state.step} if best else {}) | ending)

    def end(self, state: State, reason: str) -> None:
        """Record why and where the training ended."""
        self._mark(self.checkpoints | {"ended": state.step, "reason": reason})

    def reopen(self) -> None:
        """Forget why the training ended: it goes on from its last checkpoint."""
        self._mark({name: step for name, step in self.checkpoints.items() if name not in ("ended", "reason")})

    def _mark(self, marks: dict[str, Any]) -> None:
        self._write("checkpoints.json", json.dumps(sealed(marks)).encode())
        self._checkpoints = marks
        if world().rank != 0:
            return
        kept = {self._file(marks[mark]) for mark in ("last", "best") if mark in marks}
        for path in self.path.glob("step-????????.safetensors*"):
            if path not in kept:
                path.unlink()

    def restore(self, state: State) -> None:
        """Fill a freshly started state from the last checkpoint, and forget what was written after it."""
        if "last" in self.checkpoints or self.begun:
            load_state(self.checkpoint("last" if "last" in self.checkpoints else "initial"), state)
        if world().rank == 0:
            clear_aside(self.path)
        rows: list[dict[str, Any]] = [row for row in self.history if row["step"] <= state.step]
        self._history = rows
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        file = self.path / "history.jsonl"
        if not file.exists() or file.read_bytes() != text:
            self._write("history.jsonl", text)

    # history

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of ``history.jsonl``; a last line cut short by a kill is not there."""
        if self._history is None:
            self._history = read_history(self.path / "history.jsonl")
        return self._history

    def append(self, row: dict[str, Any]) -> None:
        """Add a row to the history; NaN is written as JSON's null."""
        clean = _clean(row)
        self.history.append(clean)
        if world().rank != 0:
            return
        append_whole(self.path / "history.jsonl", f"{json.dumps(clean)}\n".encode())

    # what a user sees

    @property
    def reason(self) -> str:
        """Why the training ended, or "" where it has not; of a live one, who trains it."""
        holder = holder_of(self.path)
        return f"still training: {holder}" if holder else str(self.checkpoints.get("reason", ""))

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the weights that the run hands out, on each part that was held out."""
        return read_metrics(self.path / "metrics.json")

    @property
    def judged(self) -> bool:
        """Whether ``metrics.json`` is there, and whole."""
        return (self.path / "metrics.json").exists() and self.metrics is not None

    def judge(self, metrics: dict[str, float]) -> None:
        """Record the metrics of the weights that the run hands out."""
        self._write("metrics.json", json.dumps(_clean(metrics)).encode())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"Run({str(self.path)!r}: {self.record['recipe']['model']}; {shown or 'no metrics yet'})"


def _occupied(path: Path) -> str:
    if not (path / "run.yaml").is_file():
        return f"{path} exists and is no run: choose another --out"
    run = Run(path)
    if holder := holder_of(path):
        return f"{path} is being trained by {holder}: choose another --out"
    if run.reason in ("", "interrupted"):
        return f"{path} holds an interrupted run: go on with --resume {path}, or choose another --out"
    return f"{path} holds a finished run: choose another --out"
