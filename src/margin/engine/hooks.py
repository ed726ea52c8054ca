"""Hooks: they look at the state and write to the run; what they must remember is its history."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from margin.core.types import TERMS, WARMING, Metrics
from margin.engine.hooks import EvaluationLeftError
from margin.engine.loop import Hook, State, is_loss
from margin.engine.runs import Run

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


def until(metric: str, below: float) -> Hook:
    """Stop when a step's own metric is at most ``below``: a gap, the number of mistakes.

    Raises:
        ValueError: The step reports no such metric.
    """

    def hook(state: State, metrics: Metrics) -> str | None:
        if not metrics:
            return None  # no step was taken: a resumption makes up for an evaluation
        if metric not in metrics:
            raise ValueError(f"until names a metric of the step: got {metric!r}, it has {', '.join(metrics)}")
        return f"{metric} <= {below:g}" if float(metrics[metric]) <= below else None

    return hook
