"""How a training goes, on stderr: a bar in a terminal, plain lines elsewhere."""

import shutil
import sys
import time

from margin.cli.streams import say
from margin.core.types import Metrics
from margin.engine.loop import Hook, State
from margin.engine.runs import Run

SECONDS_BETWEEN_LINES = 2.0
SECONDS_BETWEEN_FRAMES = 0.1


def progress(run: Run, total: int, per_epoch: int) -> Hook:
    """The hook that shows a training of ``total`` steps.

    A row of the history is shown when it is written, but not more often than every two seconds, the
    last one always; in a terminal the current step is shown in between.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    last = {"row": -1.0, "frame": 0.0}
    say(f"{run.record['recipe']['model']}: {total} steps, {per_epoch} an epoch -> {run.path}")

    def hook(state: State, metrics: Metrics) -> None:
        now = time.monotonic()
        row = run.history[-1] if run.history else {}
        fresh = row.get("step") == state.step
        if fresh and (now - last["row"] > SECONDS_BETWEEN_LINES or state.step == total):
            last["row"] = now
            say(f"{_clear(terminal)}{line(row, total)}")
        elif terminal and now - last["frame"] > SECONDS_BETWEEN_FRAMES:
            last["frame"] = now
            say(f"{_clear(terminal)}{bar(state.step, total)}", end="")

    return hook


def _clear(terminal: bool) -> str:
    return "\r\x1b[2K" if terminal else ""


def bar(step: int, total: int, width: int = 30) -> str:
    """A bar of ``width`` characters, fewer in a narrow terminal, and the step."""
    room = shutil.get_terminal_size().columns - len(f"[] step {total}/{total}") - 1
    width = max(0, min(width, room))
    done = width * step // max(1, total)
    return f"[{'#' * done}{'.' * (width - done)}] step {step}/{total}"


def line(row: dict[str, float], total: int) -> str:
    """A row of the history in one line."""
    shown = [f"step {row['step']:>{len(str(total))}}/{total}", f"epoch {row['epoch']:.4g}"]
    for name in ("train_loss", "train_mistakes", "val_loss", "val_accuracy", "val_mse"):
        if row.get(name) is not None:
            shown.append(f"{name} {row[name]:.4g}")
    shown.append(f"{row['examples_per_second']:,.0f} examples/s")
    return "  ".join(shown)
