"""A learning rate that falls when the validation loss no longer does: a function of the history."""

from collections.abc import Mapping
from typing import Any

from margin.core.catalog import check_options
from margin.core.types import Metrics
from margin.engine.loop import State, Step
from margin.optim.schedules import plateau

METRIC = "val_loss"

DEFAULTS = {"patience": 5.0, "factor": 0.1}


def on_plateau(step: Step, options: Mapping[str, float]) -> Step:
    """Multiply every learning rate, which a schedule sets anew before each step, by its drops so far.

    Those are :func:`margin.optim.schedules.plateau` of the validation losses.

    Args:
        step: What is wrapped.
        options: ``patience``, torch's: so many evaluations in a row may bring no best validation loss, the
            next one drops the rate; and ``factor``, by which each drop multiplies it.

    Raises:
        ValueError: There is no such option, or it is out of range; later, nothing is held out.
    """
    check_options(plateau, options, "the schedule plateau")
    chosen = {**DEFAULTS, **options}
    plateau([], **chosen)  # refuses what is out of range before the first step

    def wrapped(state: State, batch: Any) -> Metrics:
        if any(METRIC not in row for row in state.history):
            raise ValueError("the schedule plateau watches the validation loss: nothing is held out")
        factor = plateau([_number(row[METRIC]) for row in state.history], **chosen)
        for optimizer in state.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] *= factor
        return step(state, batch)

    return wrapped


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
