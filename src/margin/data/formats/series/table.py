"""The rows of a table in time: numbers, and a column of times that is checked for order, twins and gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from margin.data.files.reading import check_unpacked, plain
from margin.data.formats.series.clock import (
    CLOCK,
    Clock,
    Spacing,
    spacing_of,
    time_column_of,
    times_of,
    told,
)
from margin.data.formats.series.step import TimeStep
from margin.data.formats.tables.columns import Column, Remedies, as_kind, missing_cell, no_column, understand
from margin.data.formats.tables.dates import ambiguous
from margin.data.formats.tables.delimited import Table, load_table
from margin.data.formats.tables.table_parts import grouped_note, written_of

Missing = Literal["error", "last"]

REMEDIES = Remedies("train with --data.ignore {column!r}", "train with --data.missing last")
"""They are options of a training: a finished run reads new data as it read its own."""

FILL = f"fill it in, {REMEDIES.missing}, or {REMEDIES.ignore}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """A series as it was read.

    Args:
        name: What messages call it.
        values: One row a time, finite.
        columns: The columns' names.
        time_column: The name of the column of times, or None.
        missing: What a missing cell got.
        spacing: The times in words: from, to, the usual step.
        step: The usual time from a row to the next, where there are times.
        times: The time of each row as the file writes it; () where there is no column of times.
        later: The times of the rows that would follow.
        clock: How the times were read.
        written: How the numbers of columns are written that are not written plainly: their unit.
        notes: What was assumed.
    """

    name: str
    values: Float[Tensor, "time columns"]
    columns: tuple[str, ...]
    time_column: str | None = None
    missing: Missing = "error"
    spacing: str = ""
    step: TimeStep | None = None
    times: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    clock: Clock = CLOCK
    written: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_steps(
    path: Path,
    *,
    time_column: str | None = None,
    ignore: Sequence[str] | str = (),
    missing: Missing = "error",
    wanted: Mapping[str, Mapping[str, Any]] | None = None,
    clock: Clock = CLOCK,
    ahead: int = 0,
) -> Steps:
    """The series in a file of a table.

    Args:
        path: The file.
        time_column: The column of times; found by its name where it is not said, unless ``wanted`` is given.
        ignore: Columns that are left out.
        missing: What a missing cell gets.
        wanted: The columns to read, in this order, each with how the training's was written, as
            :attr:`Steps.written` has it; by default all numbers.
        clock: How the times are written, and what happens to those off the grid.
        ahead: How many rows after the last have a time too.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column is missing or holds no numbers, times fall or come twice, a cell is missing.
    """
    table = load_table(path)
    names = table.frame.columns
    if time_column is None and wanted is None:
        left = [name for name in names if name not in _listed(ignore, names)]
        time_column = time_column_of(table, left, clock)
    spaced, said = Spacing(), list[str]()
    if time_column is not None:
        clock, form = told(table, time_column, clock)
        table, stamps, order = _ascending(table, times_of(table, time_column, clock.form))
        said = [note for note in (form, order) if note]
        spaced = spacing_of(table, time_column, stamps, clock, ahead)
    if wanted is None:
        columns = [_number(table, name) for name in _used(table, ignore, time_column)]
    else:
        columns = [as_kind(table, name, "number", how) for name, how in wanted.items()]
    filled = [_filled(table, column, time_column, missing) for column in columns]
    notes = [*said, *spaced.notes, *(grouped_note(column) for column in columns if column.grouped)]
    notes += [note for column in columns for note in column.notes]
    gaps = sum(column.values.null_count() for column in columns)
    if gaps:
        notes.append(f"{gaps} missing cells get the last value before them")
    times = () if time_column is None else tuple(map(str, table.frame[time_column]))
    values = np.stack(filled, 1).astype(np.float32)
    if spaced.rows is not None:
        check_unpacked(path, values.nbytes, len(spaced.rows) * values[0].nbytes, "correct the times")
        values, times = values[spaced.rows], spaced.times
    return Steps(
        name=str(path),
        values=torch.from_numpy(values),
        columns=tuple(column.name for column in columns),
        time_column=time_column,
        missing=missing,
        spacing=spaced.text,
        step=spaced.step,
        times=times,
        later=spaced.later,
        clock=clock,
        written={column.name: how for column in columns if (how := written_of(column))},
        notes=tuple(notes),
    )


def _ascending(table: Table, stamps: pl.Series) -> tuple[Table, pl.Series, str]:
    """A table whose newest row is the first from its last row up, its times, and what is said of that."""
    if len(stamps) < 2 or not stamps.is_sorted(descending=True) or stamps.n_unique() < len(stamps):
        return table, stamps, ""
    turned = replace(table, frame=table.frame.reverse(), rows=table.rows[::-1])
    return turned, stamps.reverse(), "the newest row is the first: rows are read from the last one up"


def columns_of(steps: Steps, target: Sequence[str] | str | None) -> tuple[int, ...]:
    """The numbers of the columns that are foretold; None is all.

    Raises:
        ValueError: One is no column, or comes twice.
    """
    if target is None:
        return tuple(range(len(steps.columns)))
    if isinstance(target, str):
        target = [target] if target in steps.columns else [*map(plain, target.split(","))]
    for name in target:
        if name not in steps.columns:
            raise ValueError(f"{steps.name}: no column {name!r}; it has: {', '.join(steps.columns)}")
    if len(set(target)) < len(target) or not target:
        raise ValueError(f"{steps.name}: targets must be different columns, at least one: got {list(target)}")
    return tuple(steps.columns.index(name) for name in target)


def _used(table: Table, ignore: Sequence[str] | str, time_column: str | None) -> list[str]:
    names = table.frame.columns
    for name in (left_out := _listed(ignore, names)):
        if name not in names:
            raise ValueError(no_column(table, name))
    used = [name for name in names if name not in left_out and name != time_column]
    if not used:
        raise ValueError(f"{table.name}: a series needs a column of numbers: none is left")
    return used


def _listed(ignore: Sequence[str] | str, names: Sequence[str]) -> Sequence[str]:
    """Names of columns: a sequence, or one text with commas between."""
    if not isinstance(ignore, str):
        return ignore
    return [ignore] if ignore in names else [*map(plain, ignore.split(","))]


def _number(table: Table, name: str) -> Column:
    column = understand(table, name, REMEDIES)
    if column.kind == "number":
        return column
    raw = table.frame[name].drop_nulls()[0]
    raise ValueError(
        f"{table.name}, column {name!r}: a series must be numbers: got {str(raw)!r}; if these are its times, "
        f"set --data.time-column {name!r}{ambiguous(str(raw))}, else --data.ignore {name!r}"
    )


def _filled(table: Table, column: Column, time_column: str | None, missing: Missing) -> np.ndarray:
    if column.values.null_count() and missing == "error":
        message = missing_cell(table, column, FILL)
        row = int(column.values.is_null().arg_true()[0])
        when = "" if time_column is None else f", time {table.frame[time_column][row]}"
        raise ValueError(message.replace(f"column {column.name!r}", f"column {column.name!r}{when}", 1))
    values = column.values.fill_null(strategy="forward")
    if values.null_count():
        raise ValueError(
            f"{table.name}, row {table.rows[0]}, column {column.name!r}: the first value must be known: "
            f"it is missing, with {values.null_count()} at the start; remove these rows"
        )
    return values.cast(pl.Float64).to_numpy()
