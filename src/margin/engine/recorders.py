"""Copies of a run's history for the tools people use: a CSV file, TensorBoard's event files.

``history.jsonl`` stays the record; these are written from it, so a resumed run continues them without
a row twice.
"""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from margin.core.types import Metrics
from margin.data.files.writing import write_whole
from margin.engine.loop import Hook, State
from margin.engine.parallel.processes import world
from margin.engine.runs import Run

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
