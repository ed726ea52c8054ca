"""What looks at a training on its run's behalf, and what the run says of how far it came."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from margin.core.catalog import find, rules
from margin.core.types import Metrics
from margin.engine.hooks import INTERRUPTED, Evaluating, patience, saving, until
from margin.engine.loop import Hook, State
from margin.engine.plan import Plan, Taken
from margin.engine.runs import Run

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
    best = not (rule and find(rules(), rule, "rule").last)
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
