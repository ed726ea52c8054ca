"""The rows of a table in time: numbers, and a column of times that is checked for order, twins and gaps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from margin.data.columns import Column, Remedies, as_kind, missing_cell, no_column, understand
from margin.data.delimited import Table, load_table
from margin.data.series_step import TimeStep

Missing = Literal["error", "last"]

TIMES = ("date", "time", "datetime", "timestamp", "year", "month", "day", "week", "ds")
"""Names of a column of times that need not be said."""

REMEDIES = Remedies("train with --data.ignore {column!r}", "train with --data.missing last")
"""They are options of a training: a finished run reads new data as it read its own."""

FILL = f"fill it in, {REMEDIES.missing}, or {REMEDIES.ignore}"

MOST_GAPS = 3


FORMS = (
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y/%m/%d", "%Y-%m"),
    *("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%+"),
)
"""How dates are written; the last is ISO 8601 with its zone, as 2016-07-01T00:00:00Z."""


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
    notes: tuple[str, ...] = ()


def load_steps(
    path: Path,
    *,
    time_column: str | None = None,
    ignore: Sequence[str] | str = (),
    missing: Missing = "error",
    wanted: Sequence[str] | None = None,
) -> Steps:
    """The series in a file of a table.

    Args:
        path: The file.
        time_column: The column of times; found by its name where it is not said, unless ``wanted`` is given.
        ignore: Columns that are left out.
        missing: What a missing cell gets.
        wanted: The columns to read, in this order; by default all numbers.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column is missing or holds no numbers, times fall or come twice, a cell is missing.
    """
    table = load_table(path)
    names = table.frame.columns
    if time_column is None and wanted is None:
        left = [name for name in names if name not in _listed(ignore, names)]
        time_column = next((name for name in left if name.lower() in TIMES and _is_time(table, name)), None)
    spacing, step, notes = "", None, list[str]()
    if time_column is not None:
        spacing, step, notes = _spacing(table, time_column, _times(table, time_column))
    used = list(wanted) if wanted is not None else _used(table, ignore, time_column)
    columns = [
        as_kind(table, name, "number") if wanted is not None else _number(table, name) for name in used
    ]
    filled = [_filled(table, column, time_column, missing) for column in columns]
    gaps = sum(column.values.null_count() for column in columns)
    if gaps:
        notes.append(f"{gaps} missing cells get the last value before them")
    return Steps(
        name=str(path),
        values=torch.from_numpy(np.stack(filled, 1).astype(np.float32)),
        columns=tuple(used),
        time_column=time_column,
        missing=missing,
        spacing=spacing,
        step=step,
        times=() if time_column is None else tuple(map(str, table.frame[time_column])),
        notes=tuple(notes),
    )


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
    return [ignore] if ignore in names else [name.strip() for name in ignore.split(",")]


def _number(table: Table, name: str) -> Column:
    column = understand(table, name, REMEDIES)
    if column.kind == "number":
        return column
    raw = table.frame[name].drop_nulls()[0]
    raise ValueError(
        f"{table.name}, column {name!r}: a series must be numbers: got {str(raw)!r}; if these are its times, "
        f"set --data.time_column {name!r}, else --data.ignore {name!r}"
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


def _is_time(table: Table, name: str) -> bool:
    try:
        _times(table, name)
    except ValueError:
        return False
    return True


def _times(table: Table, name: str) -> pl.Series:
    """A column of times as dates, or as numbers.

    Raises:
        ValueError: There is no such column, or a cell is no time.
    """
    if name not in table.frame.columns:
        raise ValueError(no_column(table, name))
    cells = table.frame[name]
    if (days := _days(cells)) is not None:
        return days
    if cells.dtype != pl.String:
        times = cells
    else:
        stripped = cells.str.strip_chars()
        numbers, dates = stripped.cast(pl.Float64, strict=False), _dates(stripped)
        times = dates if dates.null_count() < numbers.null_count() else numbers
    if times.dtype.is_float():
        times = times.set(~times.is_finite(), None)  # NaN is neither before nor after a time
    if len(bad := times.is_null().arg_true()):
        raise ValueError(
            f"{table.at(bad[0], name)}: a time must be a date such as 2016-07-01 00:00:00, or a number: "
            f"got {cells[bad[0]]!r}"
        )
    return times


def _days(cells: pl.Series) -> pl.Series | None:
    """Dates of eight digits, as 19580329, or None where they are not all such."""
    text = cells.cast(pl.String) if cells.dtype.is_integer() else cells
    if (
        text.dtype != pl.String
        or not text.str.strip_chars().str.contains(r"^[12]\d{7}$").fill_null(False).all()
    ):
        return None
    days = text.str.strip_chars().str.to_datetime("%Y%m%d", strict=False)
    return None if days.null_count() else days


def _dates(cells: pl.Series) -> pl.Series:
    tried = []
    for form in FORMS:
        text = cells + "-01" if form == "%Y-%m" else cells
        dates = text.str.to_datetime("%Y-%m-%d" if form == "%Y-%m" else form, strict=False)
        if dates.null_count() == 0:
            return dates
        tried.append(dates)
    return min(tried, key=lambda dates: dates.null_count())


def _spacing(table: Table, name: str, times: pl.Series) -> tuple[str, TimeStep | None, list[str]]:
    """The times in words, their step, and a note of their gaps.

    Raises:
        ValueError: A time comes twice, or falls.
    """
    shown = table.frame[name]
    if len(times) < 2:
        return str(shown[0]), None, []
    steps = times.diff()[1:]
    numbers = steps.dt.total_microseconds() if steps.dtype == pl.Duration else steps
    values = numbers.cast(pl.Float64).to_numpy()
    if len(twin := np.flatnonzero(values == 0)):
        row = int(twin[0]) + 1
        raise ValueError(
            f"{table.at(row, name)}: every time must come once: {shown[row]} comes twice; if {name!r} is not "
            f"the rows' time, train with --data.time_column, or leave it out by --data.ignore {name!r}"
        )
    if len(fall := np.flatnonzero(values < 0)):
        row = int(fall[0]) + 1
        raise ValueError(
            f"{table.at(row, name)}: rows must be in order of time: got {shown[row]} "
            f"after {shown[row - 1]}; sort them"
        )
    usual = float(np.median(values))
    monthly = steps.dtype == pl.Duration and usual > 20 * 86_400e6  # months and years differ in length
    wide = np.flatnonzero(values > usual * (1.2 if monthly else 1 + 1e-6))
    dated = steps.dtype == pl.Duration
    step = TimeStep(usual / 1e6 if dated else usual, dated)
    text = f"{shown[0]} to {shown[len(shown) - 1]}, {step} a row"
    if not len(wide):
        return text, step, []
    places = ", ".join(f"{shown[int(k)]} to {shown[int(k) + 1]}" for k in wide[:MOST_GAPS])
    more = f" and {len(wide) - MOST_GAPS} more" if len(wide) > MOST_GAPS else ""
    note = f"gaps in time, read as if there were none (a step is {step}): {places}{more}"
    return f"{text}, {len(wide)} gap{'s' * (len(wide) > 1)}", step, [note]
