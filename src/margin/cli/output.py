"""What is printed: the result on standard output, progress on standard error.

Closed streams are opened on nothing. Progress that cannot be written is left out, so a terminal that went
away or a full disk behind it ends no training; a result that cannot be written is refused in one line.
"""

import errno
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from margin.cli.tables import width_of_stderr
from margin.figures.rows import GAP

if TYPE_CHECKING:
    from margin.core.types import Metrics
    from margin.engine.loop import Hook, State
    from margin.engine.runs import Run

SECONDS_BETWEEN_LINES = 2.0
SECONDS_BETWEEN_FRAMES = 0.1

SHOWN = (
    "train_loss",
    "train_mistakes",
    "val_loss",
    "val_accuracy",
    "val_mse",
    "val_pgd_accuracy",
    "val_certified_accuracy",
    "val_noisy_accuracy",
)
"""Columns of the history that a line shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A command's answer.

    Args:
        document: JSON values, printed with ``--json``.
        text: What is printed otherwise: a string, something that rich can render as wide as the terminal, or
            several of these in a tuple.
        status: The exit status.
    """

    document: Any
    text: Any
    status: int = 0


def show(output: Output, *, as_json: bool) -> int:
    """Print the answer to stdout; return its status."""
    arrived()
    if as_json:
        tell_result(json.dumps(finite(output.document), indent=2, allow_nan=False))
        return output.status
    for part in output.text if isinstance(output.text, tuple) else (output.text,):
        tell_result(part if isinstance(part, str) else _rendered(part))
    return output.status


def _rendered(part: Any) -> str:
    from rich.console import Console

    console = Console(soft_wrap=False)
    with console.capture() as shown:
        console.print(part)
    return shown.get().removesuffix("\n")


def finite(value: Any) -> Any:
    """JSON values in which a number that is not finite has become null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_closed() -> None:
    """Open the null device in place of each standard stream that is closed, lest a file takes its number.

    Raises:
        OSError: Standard output is closed: the result could not be told.
    """
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    for number in closed:  # the least free number is taken first
        found = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if found != number:
            os.dup2(found, number)
            os.close(found)
        os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (a stream of the process)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        raise OSError("standard output must be open for the result: it is closed; send it to a file")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


_waiting = [False]
"""Whether the last line of the terminal says what is waited for."""


def say(text: str, end: str = "\n") -> None:
    """Tell on stderr how it goes; nothing, from then on, where stderr takes no more."""
    if sys.stderr is None:  # closed before Python began: print would turn to stdout
        return
    try:
        print(f"{_clear(_waiting[0])}{text}", end=end, file=sys.stderr, flush=True)
        _waiting[0] = False
    except OSError:
        discard(sys.stderr.fileno())


def waiting(text: str) -> None:
    """Say on a terminal what is waited for, in a line that the next one replaces; elsewhere nothing."""
    if sys.stderr is not None and sys.stderr.isatty() and speaks():
        say(text[: width_of_stderr() - 1], end="")
        _waiting[0] = True


def arrived() -> None:
    """Take the line that said what was waited for off the terminal."""
    if _waiting[0]:
        say("", end="")


def speaks() -> bool:
    """Whether this process talks to the user: of those that torchrun has started, the first does."""
    return "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("RANK", "0") == "0"


def discard(number: int) -> None:
    """Let what a stream still holds, and all that follows, go nowhere: Python would fail on it at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)


def tell_result(text: str) -> None:
    """Print the result on stdout.

    Raises:
        BrokenPipeError: Whoever read it has gone.
        OSError: It cannot be written; the message says why.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout.fileno())
        reason = error.strerror or errno.errorcode.get(error.errno or 0, "")
        raise OSError(f"standard output cannot be written: {reason}; the command itself is done") from None


def progress(run: "Run", total: int, per_epoch: int) -> "Hook":
    """The hook that shows a training of ``total`` steps.

    A row of the history is shown when it is written, but not more often than every two seconds, the
    last one always; in a terminal the current step is shown in between.
    """
    terminal = sys.stderr is not None and sys.stderr.isatty()
    last = {"row": -1.0, "frame": 0.0}
    say(f"{run.record['recipe']['model']}: {total} steps, {per_epoch} an epoch -> {run.path}")

    def hook(state: "State", metrics: "Metrics") -> None:
        now = time.monotonic()
        row = run.history[-1] if run.history else {}
        fresh = row.get("step") == state.step
        if fresh and (now - last["row"] > SECONDS_BETWEEN_LINES or state.step == total):
            last["row"] = now
            say(f"{_clear(terminal)}{line(row, total, width_of_stderr() if terminal else math.inf)}")
        elif terminal and now - last["frame"] > SECONDS_BETWEEN_FRAMES:
            last["frame"] = now
            say(f"{_clear(terminal)}{bar(state.step, total)}", end="")

    return hook


def _clear(terminal: bool) -> str:
    return "\r\x1b[2K" if terminal else ""


def bar(step: int, total: int, width: int = 30) -> str:
    """A bar of ``width`` characters, fewer in a narrow terminal, and the step."""
    room = width_of_stderr() - len(f"[] step {total}/{total}") - 1
    width = max(0, min(width, room))
    done = width * step // max(1, total)
    return f"[{'#' * done}{'.' * (width - done)}] step {step}/{total}"


def line(row: dict[str, float], total: int, room: float = math.inf) -> str:
    """A row of the history in one line.

    Args:
        row: The row.
        total: Steps of the training.
        room: Columns; what does not fit is left out, the speed first, then from the end.
    """
    shown = [f"step {row['step']:>{len(str(total))}}/{total}", f"epoch {row['epoch']:.4g}"]
    for name in SHOWN:
        if row.get(name) is not None:
            shown.append(f"{name} {row[name]:.4g}")
    speed = f"{row['examples_per_second']:,.0f} examples/s"
    if len(GAP.join([*shown, speed])) <= room:
        return GAP.join([*shown, speed])
    while len(GAP.join(shown)) > room and len(shown) > 1:
        shown.pop()
    return GAP.join(shown)
