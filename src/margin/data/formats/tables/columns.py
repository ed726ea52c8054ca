"""The kinds of a table's columns: numbers, categories, booleans, dates; how each becomes numbers.

A number stays one feature, a boolean becomes 0 or 1, a category becomes one 0/1 feature for each of its
values (one-hot), in the order of their names, a date the numbers of the calendar. A missing cell may become a
0/1 feature besides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from margin.core.catalog import nearest
from margin.data.formats.tables.dates import (
    ORDERED,
    ambiguous,
    calendar,
    days_of,
    may_be_digits,
    of_digits,
    unambiguous,
)
from margin.data.formats.tables.delimited import MARKERS, Table
from margin.data.formats.tables.written_numbers import ABSENT, NUMBERS_FROM, parse, ungrouped, unwritten

Kind = Literal["number", "category", "boolean", "date"]
Missing = Literal["error", "drop", "mean", "median", "mode", "indicate"]

SPELLINGS = (
    *({"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"}, {"on", "off"}),
    *({"ja", "nein"}, {"j", "n"}, {"wahr", "falsch"}, {"oui", "non"}, {"o", "n"}, {"vrai", "faux"}),
    *({"s\u00ec", "no"}, {"si", "no"}, {"s\u00ed", "no"}, {"vero", "falso"}),
)
"""Pairs of words that are the same in capitals."""

EXACT = 2.0**53
"""From here on not every whole number is a float64."""

FILL = "fill it in, set --missing drop, mean, median, mode or indicate, or set --ignore {column!r}{kept}"
"""What is to be done about a missing cell of a column."""

KEPT = "; if it is a value, name those that mean a missing one by --data.missing-values"
"""What is added where the cell is not empty."""


class Remedies(NamedTuple):
    """How messages name the options that leave a column out, or fill its missing cells."""

    ignore: str = "set --ignore {column!r}"
    missing: str = "set --missing"


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column that was understood.

    Args:
        name: Its name.
        kind: What its cells are.
        values: Float64 for numbers and for dates (days since 1970), Boolean or String; null where a cell is
            missing.
        whole: Whether a number column was written in whole numbers.
        mixed: Whether a category column holds some numbers too.
        zeros: Whether a category column holds whole numbers, of which one begins with a 0.
        grouped: The first number of a column whose thousands are divided by a mark, as it is written.
        unit: What each number was written with, as %; "" is nothing.
        form: How its dates were found to be written, as %d/%m/%Y; "" is ISO 8601, or as the user said.
        folded: Whether a category column holds one pair of words in small letters and in capitals.
        notes: What is said of how its cells are written.
    """

    name: str
    kind: Kind
    values: pl.Series
    whole: bool = False
    mixed: bool = False
    zeros: bool = False
    grouped: str = ""
    unit: str = ""
    form: str = ""
    folded: bool = False
    notes: tuple[str, ...] = ()


def understand(
    table: Table, name: str, remedies: Remedies | None = None, *, dates: Literal["read", "left"] = "left"
) -> Column:
    """The kind of a column from its cells.

    Args:
        table: The table.
        name: The column's name.
        remedies: What messages propose; None are the options of tables.
        dates: Whether dates are read as such, or left as the text that they are.

    Raises:
        ValueError: Every cell is missing, a numeric column has a cell of text or an infinite value, or
            the type is one that no model takes.
    """
    series = table.frame[name]
    remedies = remedies or Remedies()
    ignore = remedies.ignore.format(column=name)
    if series.dtype == pl.String and not table.typed:
        column = _from_text(table, name, _blanked(series, table.missing), remedies)
    elif series.dtype == pl.Boolean:
        column = Column(name, "boolean", series)
    elif series.dtype.is_numeric():
        column = Column(name, "number", _floats(series, table), whole=series.dtype.is_integer())
    elif series.dtype in (pl.String, pl.Categorical, pl.Enum):
        column = Column(name, "category", _typed_text(series, table))
    elif dates == "read" and series.dtype in (pl.Date, pl.Datetime):
        column = Column(name, "date", days_of(series))
    else:
        raise ValueError(
            f"{table.name}, column {name!r}: cells must be numbers, text, booleans or dates: got "
            f"{series.dtype}; {ignore}"
            + f", or --data.tokens {name!r} if they are tokens"
            * series.dtype.is_nested()
        )
    if dates == "read" and column.kind in ("category", "number"):
        column = _dated(table, column, remedies)
    if column.values.null_count() == len(column.values):
        raise ValueError(f"{table.name}, column {name!r}: every cell is missing; {ignore}")
    _check_finite(table, column, f", leave it empty and {remedies.missing}, or {ignore}")
    return column


def as_kind(table: Table, name: str, kind: Kind, record: Mapping[str, Any] | None = None) -> Column:
    """A column of new data, read as the kind that it had in training.

    Args:
        table: The new data.
        name: The column's name.
        kind: Its kind in training.
        record: What was recorded of it: unit, form of its dates, whether its thousands were divided.

    Raises:
        ValueError: The column is missing, or a cell is not of that kind.
    """
    record = record or {}
    try:
        series = table.frame.get_column(name)
    except pl.exceptions.ColumnNotFoundError:
        raise ValueError(no_column(table, name)) from None
    if kind == "category":
        text = series.dtype == pl.String and not table.typed
        values = _blanked(series, table.missing) if text else _typed_text(series, table)
        return Column(name, kind, values.str.to_lowercase() if record.get("folded") else values)
    wanted = pl.Boolean if kind == "boolean" else pl.Float64
    form = record.get("form") or table.dates
    if series.dtype == pl.String:
        series = _blanked(series, _absent(table) if kind == "number" else table.missing)
        values = _read(series, kind, table, record)
    elif kind == "date" and series.dtype in (pl.Date, pl.Datetime):
        values = days_of(series)
    elif kind == "date" and series.dtype.is_integer() and form:
        values = days_of(series.cast(pl.String), form)
    elif kind == "number" and series.dtype.is_numeric():
        values = _floats(series, table)
        if record.get("unit") and values.null_count() < len(values):
            raise ValueError(_unit_lacks(table, name, values.is_not_null().arg_true()[0], record["unit"]))
    elif series.dtype == wanted or series.null_count() == len(series):
        values = series.cast(wanted)
    else:
        raise ValueError(f"{table.name}, column {name!r}: cells must be {kind}s: got {series.dtype}")
    if values.null_count() > series.null_count() and series.dtype == pl.String:
        bad = (values.is_null() & series.is_not_null()).arg_true()
        what = {"number": "a number", "date": f"a date, as {form or '2016-07-01'}"}.get(kind, "true or false")
        raise ValueError(f"{table.at(bad[0], name)}: {series[bad[0]]!r} is not {what}")
    column = Column(name, kind, values)
    _check_finite(table, column)
    return column


def no_column(table: Table, name: str) -> str:
    """The message for a column that a table lacks."""
    near = nearest(name, table.frame.columns)
    return f"{table.name}: no column {name!r}; {'nearest' if near else 'it has'}: " + (
        ", ".join(near or table.frame.columns)
    )


def missing_cell(table: Table, column: Column, remedy: str = FILL) -> str:
    """The message for the first missing cell of a column, or "" where none is missing."""
    if not column.values.null_count():
        return ""
    rows = column.values.is_null().arg_true()
    raw = table.written(rows[0], column.name)
    cell = "the cell is empty" if raw is None or not str(raw).strip() else f"{raw!r} means a missing value"
    others = f" ({len(rows)} such cells in the column)" if len(rows) > 1 else ""
    kept = KEPT * cell.endswith("means a missing value")
    return f"{table.at(rows[0], column.name)}: {cell}{others}; {remedy.format(column=column.name, kept=kept)}"


def fill_value(column: Column, missing: Missing, train: NDArray[Any]) -> float | bool | str | None:
    """What stands for a missing cell: a statistic of the column over the training rows.

    A mean or median is of numbers and dates; categories and booleans take their most frequent value. Of
    equally frequent values the least is taken. Cells that are indicated get the mean, of a category none of
    its values.

    Returns:
        The value, or None where missing cells are an error or rows with them are dropped.

    Raises:
        ValueError: No training row has a value.
    """
    if missing in ("error", "drop"):
        return None
    if missing == "indicate" and column.kind == "category" and column.values.null_count():
        return None
    numeric = column.kind in ("number", "date") and missing != "mode"
    numbers = column.values.to_numpy()[train] if numeric else np.zeros(0)
    numbers = numbers[~np.isnan(numbers)]
    present = column.values.gather(train).drop_nulls() if not numeric else numbers
    if len(present) == 0:
        name = repr(column.name)
        raise ValueError(f"column {name}: no training row has a value to fill in; set --ignore {name}")
    if isinstance(present, np.ndarray):
        return float(np.median(present) if missing == "median" else present.mean())
    return cast("float | bool | str", present.mode().sort()[0])


def features(column: Column, record: Mapping[str, Any]) -> NDArray[Any]:
    """The features of a column, (N, width), by its record: kind, categories, fill value, indicator."""
    found = _own_features(column, record)
    if not record.get("indicator"):
        return found
    return np.concatenate((found, column.values.is_null().to_numpy()[:, None]), 1)


def _own_features(column: Column, record: Mapping[str, Any]) -> NDArray[Any]:
    values = column.values
    if column.kind in ("number", "date"):
        numbers = values.to_numpy()
        if record.get("fill") is not None and values.null_count():
            numbers = np.where(np.isnan(numbers), record["fill"], numbers)
        return numbers[:, None] if column.kind == "number" else calendar(numbers, record["parts"])
    if record.get("fill") is not None:
        values = values.fill_null(record["fill"])
    if column.kind == "category":
        own = [(values == category).fill_null(value=False) for category in record["categories"]]
        return np.stack([one.to_numpy() for one in own], 1).astype(float)
    return values.cast(pl.Float64).to_numpy()[:, None]


def _from_text(table: Table, name: str, text: pl.Series, remedies: Remedies) -> Column:
    found = _number_of(table, name, text, remedies)
    if found is not None:
        return found
    booleans = _booleans(text)
    if booleans.null_count() == text.null_count():
        return Column(name, "boolean", booleans)
    numbers = parse(ungrouped(text, table.decimal, known=table.known)[0], table.decimal)
    _check_mark(table, name, text, numbers)
    return _spelled(name, text, mixed=numbers.null_count() < len(numbers))


def _number_of(table: Table, name: str, text: pl.Series, remedies: Remedies) -> Column | None:
    """A column of text as numbers, or None where it holds too few of them."""
    notes: list[str] = []
    unit, plain = "", text
    written = unwritten(text)
    if written is not None:
        plain, unit = written.cells.zip_with(written.cells.is_not_null(), text), written.unit
    plain, grouped = ungrouped(plain, table.decimal, known=table.known)
    numbers = parse(plain, table.decimal)
    good = len(numbers) - numbers.null_count()
    rest = numbers.is_null() & text.is_not_null()
    absent = rest & text.is_in(list(ABSENT)) if good and rest.any() and _default(table) else None
    if absent is not None and absent.any():
        notes.append(
            f"column {name!r}: {absent.sum()} cells are {text.filter(absent)[0]!r}: they are missing"
        )
        text, plain, rest = text.set(absent, None), plain.set(absent, None), rest & ~absent
    present = len(text) - text.null_count()
    if not present or good < NUMBERS_FROM * present:
        return None
    if good < present:
        raise ValueError(
            _no_number(table, text, rest.arg_true()[0], f"{good} of the column's {present}", remedies)
        )
    if written is not None and written.odd is not None:
        other = text.drop_nulls()[0]
        raise ValueError(
            f"{table.at(written.odd, name)}: the numbers of a column must have one unit: got "
            f"{text[written.odd]!r} beside {other!r}; write them alike, or "
            + remedies.ignore.format(column=name)
        )
    whole = plain.str.contains(r"^[+-]?\d+$").all(ignore_nulls=True)
    if whole and not unit and plain.str.contains(r"^[+-]?0\d").any(ignore_nulls=True):
        return Column(name, "category", text, zeros=True)
    if written is not None and written.first:
        value = numbers[int((text == written.first).arg_true()[0])]
        notes.append(f"column {name!r}: {written.first!r} is read as {value:.15g}" + f" {unit}" * bool(unit))
    return Column(name, "number", numbers, whole=whole, grouped=grouped, unit=unit, notes=tuple(notes))


def _no_number(table: Table, text: pl.Series, row: int, share: str, remedies: Remedies) -> str:
    """The message for a cell of a column of numbers that is none."""
    second = f"; if row {table.rows[0]} is a second header, remove it" if row == 0 else ""
    return (
        f"{table.at(row, text.name)}: {text[row]!r} is not a number, and {share} values are{second}; correct "
        f"the cell, leave it empty and {remedies.missing}, or {remedies.ignore.format(column=text.name)}"
    )


def _check_mark(table: Table, name: str, text: pl.Series, numbers: pl.Series) -> None:
    """Refuse numbers that are written with the other decimal mark, or with one that may divide thousands.

    Raises:
        ValueError: As said; the message names the options that read them.
    """
    other, mark = (".", "comma") if table.decimal == "," else (",", "point")
    alike = parse(ungrouped(text, other)[0], other)
    either = numbers.is_not_null() | alike.is_not_null()
    if not either.any() or int(either.sum()) < NUMBERS_FROM * (len(text) - text.null_count()):
        return
    row = (numbers.is_null() & alike.is_not_null()).arg_true()[0]
    thousands = parse(ungrouped(text, table.decimal, known=True)[0], table.decimal)
    divides = (
        "" if thousands.null_count() > text.null_count() else f", '{table.decimal}' if it divides thousands"
    )
    raise ValueError(
        f"{table.at(row, name)}: numbers must be written with a {mark} and no thousands separator: "
        f"got {text[row]!r}; set --data.decimal '{other}' if that is the decimal mark{divides}"
    )


def _spelled(name: str, text: pl.Series, *, mixed: bool) -> Column:
    """A column of categories, of which yes and YES are one, and what is said of others that differ so."""
    known = text.drop_nulls().unique()
    small = known.str.to_lowercase()
    if len(known) == small.n_unique():
        return Column(name, "category", text, mixed=mixed)
    if set(small) in map(set, SPELLINGS):
        note = f"column {name!r}: {', '.join(sorted(known))} are {' and '.join(sorted(set(small)))}"
        return Column(name, "category", text.str.to_lowercase(), folded=True, notes=(note,))
    alike = sorted(known.filter(small == small.filter(small.is_duplicated())[0]))
    note = (
        f"column {name!r}: {' and '.join(map(repr, alike))} differ in capitals alone and are categories apart"
    )
    return Column(name, "category", text, mixed=mixed, notes=(note,))


def _dated(table: Table, column: Column, remedies: Remedies) -> Column:
    """A column of text, or of whole numbers where the user says so, as dates, where it holds them.

    A few cells that are no dates are mistakes.
    """
    if column.kind == "number":
        return _digits(column, table.dates)
    text, ignore = column.values, remedies.ignore.format(column=column.name)
    form, said = (table.dates, "") if table.dates else unambiguous(text)
    days = days_of(text, form)
    present, good = (len(values) - values.null_count() for values in (text, days))
    if not good or good < NUMBERS_FROM * present:
        first = text.drop_nulls()[0] if present else ""
        how = ambiguous(first, "--data.date-format") if re.match(ORDERED, first) else ""
        if table.dates and present and (how or days_of(text).null_count() == len(text) - present):
            raise ValueError(
                f"{table.name}, column {column.name!r}: dates must be written as date_format says, "
                f"{table.dates}: got {first!r}; write those of all columns alike{how}, or {ignore}"
            )
        if how:
            raise ValueError(
                f"{table.at(int(text.is_not_null().arg_true()[0]), column.name)}: day and month must not be "
                f"mixed up: got {first!r}; write dates as 2016-07-01{how}, or {ignore}"
            )
        return column
    if good < present:
        row, written = (days.is_null() & text.is_not_null()).arg_true()[0], form or "2016-07-01"
        raise ValueError(
            f"{table.at(row, column.name)}: {text[row]!r} is not a date as {written}, and {good} of the "
            f"column's {present} values are; correct the cell, leave it empty and {remedies.missing}, "
            f"or {ignore}"
        )
    notes = (*column.notes, *([f"column {column.name!r}: {said}"] if said else []))
    return Column(column.name, "date", days, form="" if table.dates else form, notes=notes)


def _digits(column: Column, form: str) -> Column:
    """A column of whole numbers as dates where the user says so; else those that may be dates are said."""
    if not column.whole:
        return column
    days = of_digits(column.values, form) if form else None
    if days is not None:
        return Column(column.name, "date", days, notes=column.notes)
    if form or not may_be_digits(column.values):
        return column
    first = column.values.drop_nulls().cast(pl.Int64)[0]
    note = f"column {column.name!r} is of numbers: if {first} is a date, set --data.date-format '%Y%m%d'"
    return replace(column, notes=(*column.notes, note))


def _read(text: pl.Series, kind: Kind, table: Table, record: Mapping[str, Any]) -> pl.Series:
    """Text as a kind that is known; null where a cell is of another."""
    if kind == "date":
        return days_of(text, record.get("form") or table.dates)
    if kind == "boolean":
        return _booleans(text)
    written, unit = unwritten(text), record.get("unit", "")
    if written is not None and written.unit == unit and written.odd is None:
        text = written.cells
    elif unit and text.null_count() < len(text):
        row = text.is_not_null().arg_true()[0] if written is None or written.odd is None else written.odd
        raise ValueError(_unit_lacks(table, text.name, row, unit))
    known = table.known or bool(record.get("grouped"))
    return parse(ungrouped(text, table.decimal, known=known)[0], table.decimal)


def _unit_lacks(table: Table, name: str, row: int, unit: str) -> str:
    """The message for a number without the unit of the training."""
    return (
        f"{table.at(row, name)}: numbers must be written with {unit}, as those of the training: got "
        f"{table.written(row, name)!r}"
    )


def _default(table: Table) -> bool:
    """Whether what means a missing value is the house's choice: text where the user has named nothing."""
    return not table.typed and set(table.missing) == set(MARKERS)


def _absent(table: Table) -> tuple[str, ...]:
    """The cells that mean a missing value in a column of numbers."""
    return (*table.missing, *(ABSENT if _default(table) else ()))


def _blanked(text: pl.Series, missing: Sequence[str]) -> pl.Series:
    """The cells without surrounding space, null where they mean a missing value."""
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(missing)), None)


def _typed_text(series: pl.Series, table: Table) -> pl.Series:
    """Text that came with its type, as it stands: null only where the user names it as missing."""
    if series.dtype.is_float() and (series == series.round()).all(ignore_nulls=True):
        series = series.cast(pl.Int64, strict=False)  # pandas has floats where a whole number is missing
    text = series.cast(pl.String)
    return text.set(text.is_in(list(table.missing)), None) if table.missing else text


def _booleans(text: pl.Series) -> pl.Series:
    return text.str.to_lowercase().replace_strict(
        ["true", "false"], [True, False], default=None, return_dtype=pl.Boolean
    )


def _floats(series: pl.Series, table: Table) -> pl.Series:
    """Numbers as float64, null where they are not a number, or one that the user names as missing."""
    values = series if series.dtype == pl.Float64 else series.cast(pl.Float64)
    numbers = values.to_numpy()  # an operation of polars costs more than its work on a short column
    if int(np.isnan(numbers).sum()) > values.null_count():
        values = values.fill_nan(None)
    if not table.typed or not table.missing:
        return values
    marks = [float(mark) for mark in table.missing if parse(pl.Series([mark])).null_count() == 0]
    return values.set(values.is_in(marks), None) if marks else values


def _check_finite(table: Table, column: Column, otherwise: str = "") -> None:
    """Refuse what no float32 holds; ``otherwise`` is proposed where the cell cannot be corrected."""
    if column.kind != "number":
        return
    largest = float(np.finfo(np.float32).max)
    rows = np.flatnonzero(np.abs(column.values.to_numpy()) > largest)
    if len(rows):
        row = int(rows[0])
        raw = table.written(row, column.name)
        raise ValueError(
            f"{table.at(row, column.name)}: values must be finite and at most {largest:.2g}: got {raw}; "
            f"correct the cell{otherwise}"
        )
