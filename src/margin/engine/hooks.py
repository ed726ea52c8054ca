"""Training hooks: evaluation, checkpoints, early stopping, logging, and Ctrl-C between two steps.

A hook looks at the state and writes to the run; what it must remember is the run's history, so a resumed
training goes on as the unbroken one. ``history.jsonl`` is the record; CSV and TensorBoard files are written
from it. What is saved when a training is interrupted is whole.
"""

import csv
import io
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from margin.core.catalog import find, models, nearest, rules
from margin.core.options import Training
from margin.core.types import TERMS, WARMING, Batch, Metrics
from margin.data.files.writing import write_whole
from margin.engine.loop import Hook, NonFiniteError, State, fit, is_loss
from margin.engine.parallel.processes import summed, summed_later, world
from margin.engine.plan import Plan, Taken
from margin.engine.runs import Run
from margin.nn.preprocessed import device_of

INTERRUPTED = "interrupted"

Trial = tuple[State, Plan]
"""A state and its plan, made for one step and then left."""


class EvaluationLeftError(Exception):
    """An evaluation was left before its end, because the training is to stop."""


class Interruption:
    """A hook that stops the training after the step in which it was asked to.

    Args:
        stop: Asked after each step whether someone else wants the training to stop.
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop = stop
        self.asked = False
        self.left = False
        self._pending: list[Callable[[], Tensor]] = []

    def __call__(self, state: State, metrics: Metrics) -> str | None:
        """Why to stop, or None."""
        if world().size == 1:
            return INTERRUPTED if self._wanted() else None
        if self.left:  # all processes have left the evaluation of this step
            return INTERRUPTED
        # every process must end after the same step: they agree while the next one is computed
        self._pending.append(summed_later(self._vote(device_of(state.model))))
        return INTERRUPTED if len(self._pending) > 1 and bool(self._pending.pop(0)()) else None

    def until_asked(self, batches: Sequence[Batch]) -> Iterator[Batch]:
        """The batches of an evaluation, left before the next one once the training is to stop.

        Raises:
            EvaluationLeftError: It is to stop; of several processes all leave before the same batch.
        """
        self.left = False
        for batch in batches:
            self.left = bool(summed(self._vote(batch.inputs[0].device)))
            if self.left:
                raise EvaluationLeftError
            yield batch

    def settle(self) -> None:
        """Wait for what the processes still tell each other."""
        for wait_for_flag in self._pending:
            wait_for_flag()

    def _wanted(self) -> bool:
        return self.asked or self.stop()

    def _vote(self, device: torch.device) -> Tensor:
        return torch.tensor(float(self._wanted()), device=device)


@contextmanager
def interruptible(stop: Callable[[], bool] = lambda: False) -> Iterator[Interruption]:
    """A hook that stops after the step in which Ctrl-C came; a second Ctrl-C stops at once.

    Outside the main thread, where Python hands over no signals, only ``stop`` is asked.

    Args:
        stop: Asked after each step whether someone else wants the training to stop.
    """
    hook = Interruption(stop)

    def remember(number: int, frame: FrameType | None) -> None:
        if hook.asked:
            raise KeyboardInterrupt
        hook.asked = True

    if threading.current_thread() is not threading.main_thread():
        yield hook
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield hook
        hook.settle()
    finally:
        signal.signal(signal.SIGINT, before)


Evaluation = Callable[[State], dict[str, float]]


class Evaluating:
    """Every so many steps, append a row to the history: the steps' mean metrics and an evaluation.

    Args:
        run: Where the rows go.
        every: Steps between rows.
        evaluation: Metrics of the current weights on the validation part.
        per_epoch: Steps an epoch.
        batch_size: Examples a step, for the throughput.
        measure: Further columns of the current weights.
    """

    def __init__(
        self,
        run: Run,
        every: int,
        evaluation: Evaluation,
        *,
        per_epoch: int,
        batch_size: int,
        measure: Evaluation = lambda state: {},
    ) -> None:
        self.run = run
        self.every = every
        self.evaluation = evaluation
        self.measure = measure
        self.per_epoch = per_epoch
        self.batch_size = batch_size
        self._since = time.perf_counter()

    def __call__(self, state: State, metrics: Metrics) -> None:
        """Append a row where one is due."""
        if state.step % self.every == 0:
            self.row(state)

    def row(self, state: State) -> None:
        """Append the row of this step, and begin a new tally."""
        seconds = time.perf_counter() - self._since
        examples = float(state.tally.get("examples", state.tally.get("steps", 0.0) * self.batch_size))
        try:
            judged = {f"val_{name}": value for name, value in self.evaluation(state).items()}
        except EvaluationLeftError:
            return  # the tally stays: a resumption evaluates these weights, and the row is as it would be
        self.run.append(
            {
                "step": state.step,
                "epoch": state.step / self.per_epoch,
                **means(state),
                **judged,
                **self.measure(state),
                **_rates(state),
                "seconds": seconds,
                "examples_per_second": examples / seconds,
                **peak_memory(),
            }
        )
        state.tally.clear()
        self._since = time.perf_counter()


def means(state: State) -> dict[str, float]:
    """The mean metrics of the steps in the tally, under the names ``train_...``.

    A loss's is sum(w l) / sum(w) over the terms of all steps, as an evaluation's; any other's is over steps.
    """
    steps, terms = (float(state.tally.get(name, 0.0)) or math.nan for name in ("steps", TERMS))
    return {
        f"train_{name}": float(total) / (terms if is_loss(name) else steps)
        for name, total in state.tally.items()
        if name not in ("steps", "examples", TERMS)
    }


def _rates(state: State) -> dict[str, float]:
    rates = [float(group["lr"]) for o in state.optimizers.values() for group in o.param_groups[:1]]
    return {"lr": rates[0]} if rates else {}


def peak_memory() -> dict[str, float]:
    """The largest resident memory of this process so far, in MiB; {} where Python does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_memory_mib": peak / 2**20 if sys.platform == "darwin" else peak / 2**10}


def saving(run: Run, every: int, metric: str) -> Hook:
    """Every so many steps and at every evaluation, write a checkpoint; mark it where it is the best.

    Args:
        run: Where it goes.
        every: Steps between checkpoints.
        metric: The column of the history whose least value is the best; "" marks none.
    """

    def hook(state: State, metrics: Metrics) -> None:
        history = run.history
        evaluated = bool(history) and history[-1]["step"] == state.step
        if evaluated or state.step % every == 0:
            run.save(state, best=evaluated and is_best(history, metric))

    return hook


def is_best(history: list[dict[str, Any]], metric: str) -> bool:
    """Whether the last row has the smallest value of all; what is not finite is never the smallest."""
    *before, last = metric_values(history, metric)
    if last is None or not math.isfinite(last):
        return False
    return all(value is None or not value <= last for value in before)


def metric_values(history: list[dict[str, Any]], metric: str) -> list[float | None]:
    """The metric of each row, None where there is none or the model was still warming."""
    return [None if warming(row) else row.get(metric) for row in history]


def warming(row: dict[str, Any]) -> bool:
    """Whether the model did not yet learn, in a step of this row, what it is judged by."""
    return bool(row.get(f"train_{WARMING}"))


def patience(run: Run, metric: str, rows: int) -> Hook:
    """Stop when the best of the history is ``rows`` evaluations old."""

    def hook(state: State, metrics: Metrics) -> str | None:
        history = run.history
        if not history or history[-1]["step"] != state.step or warming(history[-1]):
            return None
        known = [row for row in history if not warming(row)]
        values = [math.inf if row.get(metric) is None else row[metric] for row in known]
        age = len(values) - 1 - values.index(min(values))
        return f"no better {metric} in {rows} evaluations" if age >= rows else None

    return hook


def check_stops(training: Training, before: Training, plan: Plan, trial: Callable[[], Trial]) -> None:
    """Refuse a stopping rule that would watch what is never measured, before anything is written.

    Args:
        training: The resolved options.
        before: Those that need no check: the entry's defaults, or those of a run that is resumed.
        plan: The training's plan.
        trial: Makes a state and a plan for a first step on trial: what a step reports, only a step says.

    Raises:
        ValueError: Nothing is held out for patience, or the step has no such metric.
    """
    watches = training.patience and training.patience != before.patience
    if watches and ("val" not in plan.held or plan.objective is None):
        lacking = "nothing is held out" if plan.objective else "the model has no loss"
        raise ValueError(f"patience watches the validation loss: {lacking}; leave out --patience")
    if not training.until or training.until == before.until:
        return
    state, tried = trial()
    found: list[Metrics] = []
    try:
        fit(
            state,
            tried.batches,
            tried.step,
            max_steps=state.step + 1,
            hooks=[lambda state, metrics: found.append(metrics)],
        )
    except NonFiniteError:
        return  # which the training itself meets at its first step, and keeps
    for metric in training.until:
        check_metric(metric, found[0])


def check_metric(metric: str, metrics: Metrics) -> None:
    """Refuse a name that no metric of a step has."""
    if metric not in metrics:
        near = ", ".join(nearest(metric, metrics))
        said = f"; nearest: {near};" if near else ","
        raise ValueError(
            f"until names a metric of the step: got {metric!r}{said} it has {', '.join(metrics)}"
        )


def until(metric: str, below: float) -> Hook:
    """Stop when a step's own metric is at most ``below``: a gap, the number of mistakes.

    Raises:
        ValueError: The step reports no such metric.
    """

    def hook(state: State, metrics: Metrics) -> str | None:
        if not metrics:
            return None  # no step was taken: a resumption makes up for an evaluation
        check_metric(metric, metrics)
        return f"{metric} <= {below:g}" if float(metrics[metric]) <= below else None

    return hook


Rows = Callable[[list[dict[str, Any]]], None]
"""Writes the history so far; called with all rows whenever one was added."""


@contextmanager
def recording(run: Run, names: Sequence[str]) -> Iterator[Hook]:
    """A hook that passes every new row of the history on; of several processes the first one's does.

    Args:
        run: Whose history it is.
        names: ``csv`` (RUN/history.csv), ``tensorboard`` (RUN/tensorboard); others are left to others.

    Raises:
        ValueError: TensorBoard is not installed.
    """
    with ExitStack() as stack:
        leads = world().rank == 0
        writers = (
            [stack.enter_context(RECORDERS[name](run)) for name in names if name in RECORDERS]
            if leads
            else []
        )

        def copy(state: State) -> None:
            for write in writers:
                write(run.history)

        yield at_rows(run, copy)


def at_rows(run: Run, do: Callable[[State], None]) -> Hook:
    """A hook that does something whenever the history has a new row.

    Args:
        run: Whose history it is.
        do: What is done with the state of that row.
    """
    last = [run.history[-1]["step"] if run.history else -1]

    def hook(state: State, metrics: Metrics) -> None:
        if run.history and run.history[-1]["step"] != last[0]:
            last[0] = run.history[-1]["step"]
            do(state)

    return hook


@contextmanager
def csv_file(run: Run) -> Iterator[Rows]:
    """RUN/history.csv: a line a row, a column a metric; empty where a number is not finite."""

    def write(rows: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(text, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(run.path / "history.csv", text.getvalue().encode())

    yield write


@contextmanager
def tensorboard(run: Run) -> Iterator[Rows]:
    """RUN/tensorboard: a scalar a metric, ``train/loss`` and ``val/loss`` in groups, by step.

    Raises:
        ValueError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("tensorboard is not installed: pip install 'margin[tensorboard]'") from None
    rows = run.history
    # what an interrupted training has told beyond its last checkpoint is told anew
    writer = SummaryWriter(run.path / "tensorboard", purge_step=rows[-1]["step"] + 1 if rows else 0)

    def write(rows: list[dict[str, Any]]) -> None:
        row = rows[-1]
        for name, value in row.items():
            if name != "step" and value is not None:
                part, _, metric = name.partition("_")
                tag = f"{part}/{metric}" if part in ("train", "val") else f"run/{name}"
                writer.add_scalar(tag, value, row["step"])
        writer.flush()

    try:
        yield write
    finally:
        writer.close()


RECORDERS = {"csv": csv_file, "tensorboard": tensorboard}
"""What each name of ``Training.log`` writes."""

NOT_FINITE = "not finite"
"""How the reason begins of a training that met numbers that are not finite."""


def watching(run: Run, plan: Plan, taken: Taken) -> tuple[Evaluating, list[Hook], list[Hook]]:
    """The run's own hooks: history, checkpoints, and the reasons to stop; ``taken`` is of an evaluation."""
    training = plan.training
    every = training.evaluate_every or plan.per_epoch
    evaluating = Evaluating(
        run,
        every,
        partial(plan.evaluate, taken=taken),
        per_epoch=plan.per_epoch,
        batch_size=plan.batch_size,
        measure=plan.measure,
    )
    stops = [until(name, below) for name, below in (training.until or {}).items()]
    rule = run.record["arguments"]["rule"]
    entry = models().get(run.record["recipe"]["model"])  # none of the user's own module
    best = not ((entry and entry.last) or (rule and find(rules(), rule, "rule").last))
    if best and training.patience and "val" in plan.held:  # nothing else tells whether it gets better
        stops.append(patience(run, "val_loss", training.patience))
    keeping = saving(run, training.checkpoint_every or every, "val_loss" if best else "")

    def deciding(state: State, metrics: Metrics) -> None:
        # before the checkpoint: a kill behind it must not lose why the training ended
        run.ending = next((reason for stop in stops if (reason := stop(state, metrics))), "")

    return evaluating, [deciding, keeping], [lambda state, metrics: run.ending or None]


def caught_up(run: Run, state: State, watched: Sequence[Hook]) -> str:
    """Make up for the evaluation in which a training was interrupted; why it ends with that, or ""."""
    if not state.tally or has_row(run, state):
        return ""
    return next((reason for hook in watched if (reason := hook(state, {}))), "")


def has_row(run: Run, state: State) -> bool:
    """Whether the history has a row of this step."""
    return bool(run.history) and run.history[-1]["step"] == state.step


def is_over(run: Run, state: State, plan: Plan) -> bool:
    """Whether nothing is left to do: the training ended here and its weights were judged."""
    if run.checkpoints.get("ended") != state.step or not run.evaluated:
        return False
    return state.step >= plan.total or bool(ended(run, state))


def ended(run: Run, state: State) -> str:
    """Why a training stopped here of its own accord, or "": then a resumption does not go on."""
    marks = run.checkpoints
    reason = str(marks.get("reason", ""))
    early = reason not in ("max_steps", INTERRUPTED) and not reason.startswith(NOT_FINITE)
    return reason if early and marks.get("ended") == state.step else ""


EARLY = ("until", "patience")
"""The options by which a training ends before its steps are done."""


def asked_on(run: Run, state: State, total: int, changed: Mapping[str, Any]) -> bool:
    """Whether a training that stopped here of its own accord was asked to go on: what ended it changed."""
    return state.step < total and bool(ended(run, state)) and any(name in changed for name in EARLY)
