"""A run: the directory a training leaves, enough to build, use, evaluate and resume it.

``run.yaml`` holds the resolved arguments and the versions, ``history.jsonl`` one row an evaluation, keyed
by step, ``checkpoints.json`` names the last and the best checkpoint and why the training ended, and
``step-00000120.safetensors`` is the whole state after 120 steps; ``metrics.json`` evaluates the weights
that are handed out. Every file is replaced by one rename, and which checkpoint counts is decided by one
file, so a kill at any moment leaves a run that resumes.
"""

import copy
import functools
import hashlib
import json
import math
import platform
import shutil
import subprocess
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from margin.core.catalog import Entry, resolve
from margin.core.memory import Room, memory_here
from margin.core.options import Training
from margin.core.user_modules import BuilderError, entry_of, object_of
from margin.data.examples import Data
from margin.data.files.writing import append_whole, clear_aside, make_directory, write_whole
from margin.engine.build import module_of, record_preprocess, spec_of
from margin.engine.checkpoints import load_module, load_state, save_state
from margin.engine.loop import State
from margin.engine.parallel.locks import holder_of
from margin.engine.parallel.processes import world
from margin.engine.schema import (
    as_of_today,
    check_digest,
    read_checkpoints,
    read_history,
    read_metrics,
    read_record,
    sealed,
    wrong,
)
from margin.nn.preprocessed import Preprocessed

MEASURED = ("seconds", "examples_per_second", "peak_memory_mib")
"""Columns of the history that two equal trainings need not share."""


class History(list[dict[str, Any]]):
    """The rows of a run's history; called, a DataFrame of them."""

    def __call__(self) -> Any:
        """A polars DataFrame, one row an evaluation; the epochs are integers where all are whole."""
        import polars

        found = polars.DataFrame(list(self), infer_schema_length=None)
        whole = all(float(row["epoch"]).is_integer() for row in self)
        return found.cast({"epoch": polars.Int64}) if whole and len(self) else found


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
        model: The user's own class, function or module that was trained, where its name does not find it.

    Raises:
        FileNotFoundError: There is no run.
    """

    def __init__(self, path: str | Path, model: Any = None) -> None:
        self.path = Path(path)
        self.handed = model
        if not (self.path / "run.yaml").is_file():
            also = "; weights of another library begin a training by --init-from, an audit by module:build"
            also *= (self.path / "config.json").is_file()
            raise FileNotFoundError(f"{self.path} is no run: it has no run.yaml of margin train{also}")
        self._record: dict[str, Any] | None = None
        self.ending = ""  # why the training ends at this step, to be marked with its checkpoint
        self._history: History | None = None
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
        return cls(_made(Path(path), record))

    @property
    def record(self) -> dict[str, Any]:
        """What ``run.yaml`` holds, read once.

        Raises:
            ValueError: The file is damaged, or has changed since it was written.
        """
        if self._record is None:
            record = read_record(self.path / "run.yaml")
            check_digest(self.path / "run.yaml", record)
            self._record = as_of_today(record)
        return self._record

    def refresh(self) -> None:
        """Forget what was read: a resumption has written anew."""
        self._record = self._history = self._checkpoints = None

    def amend(self, training: dict[str, Any]) -> None:
        """Record the options common to all trainings that a resumption goes on with."""
        record = copy.deepcopy(self.record)
        record["arguments"]["training"] = training
        self._write("run.yaml", _yaml(record))
        self._record = record

    @property
    def entry(self) -> Entry:
        """What was trained: a row of the catalog, or the user's own module.

        Raises:
            ValueError: The user's own module is not found again; the message says how it is handed over.
        """
        return entry_of(self.record, self.handed)

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
        rows = History(row for row in self.history if row["step"] <= state.step)
        self._history = rows
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        file = self.path / "history.jsonl"
        if not file.exists() or file.read_bytes() != text:
            self._write("history.jsonl", text)

    # history

    @property
    def history(self) -> History:
        """The rows of ``history.jsonl``, without a last line cut short by a kill; called, a DataFrame."""
        if self._history is None:
            self._history = History(read_history(self.path / "history.jsonl"))
        return self._history

    def append(self, row: dict[str, Any]) -> None:
        """Add a row to the history; NaN is written as JSON's null."""
        self.history.append(clean := _clean(row))
        if world().rank == 0:
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
    def evaluated(self) -> bool:
        """Whether ``metrics.json`` is there, and whole."""
        return (self.path / "metrics.json").exists() and self.metrics is not None

    def record_metrics(self, metrics: dict[str, float]) -> None:
        """Record the metrics of the weights that the run hands out."""
        self._write("metrics.json", json.dumps(_clean(metrics)).encode())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"Run({str(self.path)!r}: {self.record['recipe']['model']}; {shown or 'no metrics yet'})"

    def _repr_html_(self) -> str:
        head = f"<b>{escape(self.record['recipe']['model'])}</b> in {escape(str(self.path))}"
        rows = (f"<tr><td>{escape(k)}</td><td>{v:.4g}</td></tr>" for k, v in self.metrics.items())
        return f"<p>{head} ({escape(self.reason or 'not finished')})</p><table>{''.join(rows)}</table>"


def _made(path: Path, record: dict[str, Any]) -> Path:
    """A new directory with a record, by one rename."""
    if path.exists():
        raise FileExistsError(_occupied(path))
    new = path.with_name(path.name + ".new")
    if new.exists():
        shutil.rmtree(new)  # left by a kill: it was never a run
    make_directory(new, f"the run's directory {path}", "choose another --out")
    try:
        write_whole(new / "run.yaml", _yaml(record))
        new.rename(path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)  # no run yet: the name stays free
        raise
    return path


def _occupied(path: Path) -> str:
    if not (path / "run.yaml").is_file():
        return f"{path} exists and is no run: choose another --out"
    run = Run(path)
    if holder := holder_of(path):
        return f"{path} is being trained by {holder}: choose another --out"
    if run.reason in ("", "interrupted"):
        return f"{path} holds an interrupted run: go on with --resume {path}, or choose another --out"
    return f"{path} holds a finished run: choose another --out"


@functools.cache
def versions() -> dict[str, str]:
    """The versions that a training depends on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("margin", "torch", "numpy")
    }


def git_state() -> dict[str, Any]:
    """The revision of the working directory's repository, and whether it has uncommitted changes."""

    def ask(*words: str) -> str:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    if not shutil.which("git"):
        return {"revision": "", "dirty": False}
    revision = ask("rev-parse", "HEAD")
    return {"revision": revision, "dirty": bool(revision and ask("status", "--porcelain"))}


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


def record_of(
    entry: Entry,
    data: Data,
    arguments: Mapping[str, Any],
    training: Training,
    own: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a run keeps of how it began: with its data, enough to begin it again.

    Args:
        entry: What is trained.
        data: What it is trained on.
        arguments: The model's options, those of its step, the rule.
        training: The resolved options.
        own: Of the user's own module, how it is found and read again.
    """
    spec = spec_of(resolve(entry.build), data.spec, arguments["options"])
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
    } | ({"own": dict(own)} if own else {})


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


BROKEN = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What a constructor raises where a record holds other values than it was called with once."""


SPARE, TIMES = 2**28, 16
"""Bytes, and times the bytes of a checkpoint, that its model may take: what is no weight is in no file."""


def rebuilt(run: Run, record: Mapping[str, Any]) -> Preprocessed:
    """The module of a run's record before any training, no larger than its checkpoints let expect.

    Raises:
        BuilderError: The user's own constructor raises.
        ValueError: The record's recipe builds none.
    """
    if record.get("own"):
        entry_of(record, run.handed)  # its parameters are as they were
    try:
        return module_of(record, _room(run.path), object_of(record, run.handed))
    except BuilderError:
        raise
    except BROKEN as error:
        raise wrong(run.path / "run.yaml", "recipe", f"builds no model: {error}") from error


def _room(path: Path) -> Room:
    """The memory that a model may ask for whose weights are in the checkpoints of a run."""
    sizes = [file.stat().st_size for file in path.glob("*.safetensors")]
    if not sizes:
        return Room(memory_here())
    most = SPARE + TIMES * max(sizes)
    return Room(min(most, memory_here()), f"by the checkpoints of {path} it may be")


def load(run: str | Path | Run, mark: str = "best", *, model: Any = None) -> nn.Module:
    """The trained module of a run, in evaluation mode, taking inputs in the user's units.

    Args:
        run: The run or its directory.
        mark: Which weights: "best" (the last where nothing was held out), "last" or "initial".
        model: The user's own class, function or module, where its name does not find it.
    """
    run = run_of(run, model)
    record = run.record
    module = rebuilt(run, record)
    name = "average" if Training.recorded(record["arguments"]["training"]).average else "model"
    load_module(run.checkpoint(mark), name, module)
    return module.eval()


def run_of(run: str | Path | Run, model: Any = None) -> Run:
    """A run, or that of a directory, with the user's own module where it is handed over."""
    if isinstance(run, Run) and model is None:
        return run
    return Run(run.path if isinstance(run, Run) else run, model)


OTHERS = ("curriculum", "teacher")
"""The options that name a run whose weights a training asks at each beginning, also when it is resumed."""


def linked_runs(options: Mapping[str, Any]) -> dict[str, Any]:
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
