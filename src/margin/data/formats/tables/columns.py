"""The kinds of a table's columns: numbers, categories, booleans, dates; how each becomes numbers.

A number stays one feature, a boolean becomes 0 or 1, a category becomes one 0/1 feature for each of its
values (one-hot), in the order of their names, a date the numbers of the calendar. A missing cell may become a
0/1 feature besides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from margin.core.catalog import nearest
from margin.data.formats.tables.dates import ambiguous, calendar, days_of
from margin.data.formats.tables.delimited import Table
from margin.data.formats.tables.delimited_form import SURE, THOUSANDS

Kind = Literal["number", "category", "boolean", "date"]
Missing = Literal["error", "drop", "mean", "median", "mode", "indicate"]

NUMBERS_FROM = 0.9
"""A column of text with at least this share of numbers is numeric; its other cells are mistakes."""

MOST_CATEGORIES = 50
"""With more values than this, and than half its cells, a column is text or an identifier."""

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
    """

    name: str
    kind: Kind
    values: pl.Series
    whole: bool = False
    mixed: bool = False
    zeros: bool = False
    grouped: str = ""


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
        )
    if dates == "read" and column.kind == "category":
        column = _dated(table, column, remedies)
    if column.values.null_count() == len(column.values):
        raise ValueError(f"{table.name}, column {name!r}: every cell is missing; {ignore}")
    _check_finite(table, column, f", leave it empty and {remedies.missing}, or {ignore}")
    return column


def as_kind(table: Table, name: str, kind: Kind) -> Column:
    """A column of new data, read as the kind that it had in training.

    Raises:
        ValueError: The column is missing, or a cell is not of that kind.
    """
    try:
        series = table.frame.get_column(name)
    except pl.exceptions.ColumnNotFoundError:
        raise ValueError(no_column(table, name)) from None
    if kind == "category":
        text = series.dtype == pl.String and not table.typed
        return Column(name, kind, _blanked(series, table.missing) if text else _typed_text(series, table))
    wanted = pl.Boolean if kind == "boolean" else pl.Float64
    if series.dtype == pl.String:
        series = _blanked(series, table.missing)
        values = _read(series, kind, table)
    elif kind == "date" and series.dtype in (pl.Date, pl.Datetime):
        values = days_of(series)
    elif kind == "number" and series.dtype.is_numeric():
        values = _floats(series, table)
    elif series.dtype == wanted or series.null_count() == len(series):
        values = series.cast(wanted)
    else:
        raise ValueError(f"{table.name}, column {name!r}: cells must be {kind}s: got {series.dtype}")
    if values.null_count() > series.null_count() and series.dtype == pl.String:
        bad = (values.is_null() & series.is_not_null()).arg_true()
        what = {"number": "a number", "date": f"a date, as {table.dates or '2016-07-01'}"}.get(
            kind, "true or false"
        )
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


def categories_of(table: Table, column: Column) -> list[str]:
    """The values of a category column, sorted.

    Raises:
        ValueError: There are so many that the column is text or an identifier.
    """
    categories = column.values.drop_nulls().unique().sort().to_list()
    cells = len(column.values) - column.values.null_count()
    if len(categories) > max(MOST_CATEGORIES, cells / 2):
        first = column.values.drop_nulls()[0]
        hint = "; whole numbers with a leading 0 are text" * column.zeros
        if how := ambiguous(first, "--data.date-format").partition(":")[2]:
            hint += f"; if they are dates, write them as 2016-07-01, or say how:{how}"
        raise ValueError(
            f"{table.name}, column {column.name!r}: {len(categories)} different texts in {cells} cells are "
            f"no categories (the first is {first!r}{hint}); set --ignore {column.name!r}; models of tokens "
            "train on texts: they read text:FILE, or two columns as pairs:FILE"
        )
    return categories


def _from_text(table: Table, name: str, text: pl.Series, remedies: Remedies) -> Column:
    present = len(text) - text.null_count()
    plain, grouped = _ungrouped(text, table.decimal)
    numbers = _parse(plain, table.decimal)
    good = len(numbers) - numbers.null_count()
    if present and good >= NUMBERS_FROM * present:
        if good < present:
            row = (numbers.is_null() & text.is_not_null()).arg_true()[0]
            raise ValueError(
                f"{table.at(row, name)}: {text[row]!r} is not a number, and {good} of the column's {present} "
                f"values are; correct the cell, leave it empty and {remedies.missing}, or "
                + remedies.ignore.format(column=name)
            )
        whole = plain.str.contains(r"^[+-]?\d+$").all(ignore_nulls=True)
        if whole and plain.str.contains(r"^[+-]?0\d").any(ignore_nulls=True):
            return Column(name, "category", text, zeros=True)
        return Column(name, "number", numbers, whole=whole, grouped=grouped)
    booleans = _booleans(text)
    if booleans.null_count() == text.null_count():
        return Column(name, "boolean", booleans)
    other, mark = (".", "comma") if table.decimal == "," else (",", "point")
    alike = _parse(_ungrouped(text, other)[0], other)
    either = numbers.is_not_null() | alike.is_not_null()
    if int(either.sum()) >= NUMBERS_FROM * present:
        row = (numbers.is_null() & alike.is_not_null()).arg_true()[0]
        raise ValueError(
            f"{table.at(row, name)}: numbers must be written with a {mark} and no thousands separator: "
            f"got {text[row]!r}; set --data.decimal '{other}' if that is the decimal mark"
        )
    return Column(name, "category", text, mixed=good > 0)


def _dated(table: Table, column: Column, remedies: Remedies) -> Column:
    """A column of text as dates, where it holds them; a few cells that are none are mistakes."""
    days, text = days_of(column.values, table.dates), column.values
    present, good = (len(values) - values.null_count() for values in (text, days))
    if not good or good < NUMBERS_FROM * present:
        if table.dates and present and days_of(text).null_count() == len(text) - present:
            raise ValueError(
                f"{table.name}, column {column.name!r}: dates must be written as date_format says, "
                f"{table.dates}: got {text.drop_nulls()[0]!r}; write those of all columns alike, or "
                + remedies.ignore.format(column=column.name)
            )
        return column
    if good < present:
        row = (days.is_null() & text.is_not_null()).arg_true()[0]
        form = table.dates or "2016-07-01"
        raise ValueError(
            f"{table.at(row, column.name)}: {text[row]!r} is not a date as {form}, and {good} of the "
            f"column's {present} values are; correct the cell, leave it empty and {remedies.missing}, or "
            + remedies.ignore.format(column=column.name)
        )
    return Column(column.name, "date", days)


def _read(text: pl.Series, kind: Kind, table: Table) -> pl.Series:
    """Text as a kind that is known; null where a cell is of another."""
    if kind == "number":
        return _parse(_ungrouped(text, table.decimal)[0], table.decimal)
    return days_of(text, table.dates) if kind == "date" else _booleans(text)


def _blanked(text: pl.Series, missing: Sequence[str]) -> pl.Series:
    """The cells without surrounding space, null where they mean a missing value."""
    stripped = text.str.strip_chars()
    return stripped.set(stripped.is_in(list(missing)), None)


def _typed_text(series: pl.Series, table: Table) -> pl.Series:
    """Text that came with its type, as it stands: null only where the user names it as missing."""
    text = series.cast(pl.String)
    return text.set(text.is_in(list(table.missing)), None) if table.missing else text


def _parse(text: pl.Series, decimal: str = ".") -> pl.Series:
    if decimal == ",":
        text = text.set(text.str.contains(".", literal=True), None).str.replace(",", ".", literal=True)
    return text.cast(pl.Float64, strict=False)


def _ungrouped(text: pl.Series, decimal: str) -> tuple[pl.Series, str]:
    """The cells without the marks that divide thousands, and the first that had one, "" where none has.

    With a decimal comma a point can be nothing else. A comma alone may be a decimal mark: it divides
    thousands where another number of the column has both marks, or the comma twice.
    """
    grouped = text.str.contains(THOUSANDS[decimal]).fill_null(value=False)
    if not grouped.any() or (decimal == "." and not text.str.contains(SURE[decimal]).any()):
        return text, ""
    other = "." if decimal == "," else ","
    return text.str.replace_all(other, "", literal=True).zip_with(grouped, text), text.filter(grouped)[0]


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
    marks = [float(mark) for mark in table.missing if _parse(pl.Series([mark])).null_count() == 0]
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
