"""The progress of a training in a notebook: one bar that moves, with the last row of the history."""

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

from margin.core.types import Metrics
from margin.engine.loop import Hook, State
from margin.engine.runs import Run

SECONDS_BETWEEN_FRAMES = 0.2

SHOWN = ("train_loss", "val_loss", "val_accuracy", "val_mse", "val_pgd_accuracy", "val_certified_accuracy")
"""Columns of the history that are shown."""


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and type(found).__name__ == "ZMQInteractiveShell"


def notebook_progress() -> Callable[[Run, int, int], Hook] | None:
    """What makes the hook that moves the bar; None outside of a notebook, where Python trains in silence."""
    return _shown if is_notebook() else None


def _shown(run: Run, total: int, per_epoch: int) -> Hook:
    """The hook of a training of ``total`` steps."""
    display: Any = sys.modules["IPython"].display
    handle = display.display(display.HTML(bar(run, 0, total)), display_id=True)
    last = [time.monotonic()]

    def hook(state: State, metrics: Metrics) -> None:
        now = time.monotonic()
        if now - last[0] > SECONDS_BETWEEN_FRAMES or state.step == total:
            last[0] = now
            handle.update(display.HTML(bar(run, state.step, total)))

    return hook


def bar(run: Run, step: int, total: int) -> str:
    """The bar at a step, and the last measurements, as HTML.

    Args:
        run: Whose model and history are shown.
        step: Steps taken.
        total: Steps in all.
    """
    row = run.history[-1] if run.history else {}
    told = "  ".join(f"{name} {row[name]:.4g}" for name in SHOWN if row.get(name) is not None)
    name = escape(str(run.record["recipe"]["model"]))
    return (
        f'<progress value="{step}" max="{max(1, total)}" style="width:20em"></progress> '
        f"{name}: step {step} of {total}  {escape(told)}"
    )
