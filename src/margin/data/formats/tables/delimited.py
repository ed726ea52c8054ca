"""Tables in files: delimited text (Shafranovich 2005, RFC 4180), Parquet, JSON lines; the place of each cell.

The first row is the header and has number 1, as an editor shows it; a quoted cell may hold line
breaks, so the number of a row is that of its first line.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal as Exact
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from margin.data.files.reading import panicking, plain, renamed
from margin.data.formats.tables.delimited_columns import Form, columns_of
from margin.data.formats.tables.delimited_form import NAMES, Decimal, check_form, decimal_of, separator_of
from margin.data.formats.tables.delimited_text import text_of, without_titles

Header = Literal["first", "none"]

MARKERS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A")
"""Cells of delimited text that mean a missing value, where no others are named."""

PARQUET = (".parquet", ".pq")
TYPED = (*PARQUET, ".jsonl", ".ndjson")

_CHUNK = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a file of a table is written, as far as the user says.

    Args:
        header: Whether the first row names the columns; "none" calls them column_1, column_2, ...
        separator: What divides cells; None finds it out.
        decimal: The decimal mark; None finds it out.
        usual: The decimal mark where a file does not tell.
        missing: Cells that mean a missing value; None: :data:`MARKERS`, and none where columns have types.
        text: Columns that stay text as it stands; None is all, () none of which every cell is a number.
        dates: How dates are written, as "%d/%m/%Y"; "" is ISO 8601.
        empty: Whether rows without a filled cell are left out: not of new data, which are answered by row.
    """

    header: Header = "first"
    separator: str | None = None
    decimal: Decimal | None = None
    usual: Decimal = "."
    missing: tuple[str, ...] | None = None
    text: tuple[str, ...] | None = None
    dates: str = ""
    empty: Literal["left_out", "kept"] = "kept"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns, and how messages call their cells.

    Args:
        name: The file's path, or what the user calls the table.
        frame: The columns: text as it stands in a delimited file, or numbers; else typed.
        rows: The number of each row for messages.
        typed: Whether the columns came with types; else text is still to be understood.
        unnamed: Columns whose cell in the header is empty, called by their position.
        missing: Cells of text that mean a missing value.
        decimal: The decimal mark of text.
        known: Whether the mark was said, or is told by numbers of the file: a comma beside a decimal point
            divides thousands.
        dates: How text writes dates, "" is ISO 8601.
        cell: The text of a cell by the number of its row and its column, where ``frame`` has lost it.
        head: The number of the row that names the columns.
        notes: What was found out of how the file is written.
    """

    name: str
    frame: pl.DataFrame
    rows: Sequence[int]
    typed: bool
    unnamed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    decimal: str = "."
    known: bool = False
    dates: str = ""
    cell: Callable[[int, str], str] | None = None
    head: int = 1
    notes: tuple[str, ...] = ()

    def at(self, row: int, column: str) -> str:
        """Where a cell is, for a message; ``row`` counts from 0."""
        return f"{self.name}, row {self.rows[row]}, column {column!r}"

    def written(self, row: int, column: str) -> Any:
        """What stands in a cell, for a message; ``row`` counts from 0."""
        found = self.frame[column][row]
        if self.cell is None or isinstance(found, str):
            return found
        return self.cell(self.rows[row], column)

    def keep(self, mask: pl.Series) -> "Table":
        """The table of the rows where ``mask`` is true."""
        rows = [row for row, kept in zip(self.rows, mask, strict=True) if kept]
        return replace(self, frame=self.frame.filter(mask), rows=rows)


def load_table(path: Path, header: Header = "first", writing: Writing | None = None) -> Table:
    """The table in a file; ``.gz`` is unpacked, separator and decimal mark are found out.

    Args:
        path: Delimited text in UTF-8, Parquet, or JSON with an object a line.
        header: Whether the first row names the columns, where ``writing`` is not given.
        writing: How the file is written.

    Returns:
        The table, its cells not yet understood.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is empty or has no rows, a row is ragged, a quote is not closed, or two
            columns have one name.
    """
    writing = writing or Writing(header=header)
    check_form(writing.separator, writing.decimal)
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    if path.name.lower().removesuffix(".gz").endswith(TYPED):
        return replace(_typed(path), missing=writing.missing or (), dates=writing.dates)
    raw, said, found = opened(path, writing.header)
    start = raw[: 1 << 20].decode(errors="ignore")
    separator = writing.separator or said or separator_of(start)
    decimal, doubt, known = decimal_of(start, separator, writing.usual)
    if writing.decimal:
        decimal, doubt, known = writing.decimal, "", True
    markers = MARKERS if writing.missing is None else ("", *writing.missing)
    kept = (
        None if separator == decimal else writing.text
    )  # polars reads no cells that the decimal mark divides
    form = Form(separator, decimal, writing.header == "first", markers, kept)
    head, names, unnamed = _names(raw, form, str(path))
    frame, rows = _columns(raw, names, form, str(path))
    if not len(rows):
        raise ValueError(f"{path}: the file has a header but no rows")
    form_notes = [f"cells are divided by {NAMES.get(separator, repr(separator))}"] * (separator != ",")
    form_notes += ["numbers are written with a decimal comma"] * (decimal == ",")
    if doubt and writing.usual == decimal == ".":
        form_notes += [f"{doubt} is no thousand: if its point divides thousands, set --data.decimal ','"]
    table = Table(
        str(path),
        frame,
        rows,
        typed=False,
        unnamed=unnamed,
        missing=markers,
        decimal=decimal,
        known=known,
        dates=writing.dates,
        cell=partial(_cell_of, path, writing.header, separator, names) if kept is not None else None,
        head=head,
        notes=(*found, *([", ".join(form_notes)] if form_notes else [])),
    )
    return table if writing.empty == "kept" else _without_empty(table)


def opened(path: Path, header: Header) -> tuple[bytes, str | None, list[str]]:
    """The text of a file, blank where titles stand above its header; the separator that it says; notes."""
    raw, notes = text_of(path)
    if header == "none":
        return raw, None, notes
    raw, said, titles = without_titles(raw)
    return raw, said, [*notes, *titles]


def _without_empty(table: Table) -> Table:
    """The table without rows of which every cell is empty, as spreadsheets leave them below a table."""
    empty: pl.Series | None = None
    for column in table.frame.get_columns() if table.frame.width > 1 else []:
        blank = column.str.strip_chars() == "" if column.dtype == pl.String else column.is_null()
        empty = blank if empty is None else empty & blank
        if not empty.any():
            return table
    if empty is None or empty.all():
        return table
    count = int(empty.sum())
    note = f"{count} row{'s' * (count > 1)} without a filled cell {'are' if count > 1 else 'is'} left out"
    return replace(table.keep(~empty), notes=(*table.notes, note))


def _names(raw: bytes, form: Form, file: str) -> tuple[int, list[str], tuple[str, ...]]:
    """The row of the header, the names of the columns, and those of which the header's cell is empty."""
    lines = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="")
    try:
        head, first = next(_records(lines, form.separator, file))
    except StopIteration:
        raise ValueError(f"{file}: the file is empty: it needs a header and rows") from None
    if not form.header:
        return head, [f"column_{k}" for k in range(1, len(first) + 1)], ()
    names = [cell.strip() or f"column_{k}" for k, cell in enumerate(first, 1)]
    _check_names(names, f"{file}, row {head}")
    return head, names, tuple(name for name, cell in zip(names, first, strict=True) if not cell.strip())


def _columns(raw: bytes, names: Sequence[str], form: Form, file: str) -> tuple[pl.DataFrame, Sequence[int]]:
    """The columns and the numbers of the rows: at once where the rows are regular, else one by one."""
    body = raw.lstrip(b"\r\n")
    frame = columns_of(body, names, form)
    if frame is not None:
        first = 1 + form.header + raw.count(b"\n", 0, len(raw) - len(body))
        return frame, range(first, first + frame.height)
    lines = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", newline="")
    records = _records(lines, form.separator, file)
    return _frame(islice(records, int(form.header), None), names, file)


def _cell_of(path: Path, header: Header, separator: str, names: Sequence[str], row: int, column: str) -> str:
    """The text of one cell, read again from its file."""
    lines = io.TextIOWrapper(io.BytesIO(opened(path, header)[0]), encoding="utf-8", newline="")
    record = next(record for number, record in _records(lines, separator, str(path)) if number == row)
    return record[names.index(column)]


def _typed(path: Path) -> Table:
    """The table of a file that has types: Parquet, or an object of JSON a line."""
    what = "a Parquet file" if path.suffix.lower() in PARQUET else "a file of JSON with an object a line"
    try:
        with panicking(path, what):
            if path.suffix.lower() in PARQUET:
                frame = pl.read_parquet(path)
            else:
                frame = pl.read_ndjson(io.BytesIO(text_of(path)[0]), infer_schema_length=None)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path}: not {what}: {str(error).splitlines()[0]}") from None
    if frame.height == 0:
        raise ValueError(f"{path}: the file has columns but no rows")
    return typed_table(frame, str(path))


def _records(lines: Iterable[str], separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the number of its first line."""
    # A space before the cell is skipped so that `1, "a, b"` is two cells; a tab is a separator itself.
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    number = 1
    try:
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield number, record
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{name}, row {number}: the quotes of a cell are not closed: {error}") from None


def _frame(
    records: Iterator[tuple[int, list[str]]], names: Sequence[str], file: str
) -> tuple[pl.DataFrame, list[int]]:
    """The rows as columns of text, in chunks: a row of Python strings is many times its text."""
    schema = dict.fromkeys(names, pl.String)
    frames: list[pl.DataFrame] = [pl.DataFrame(schema=schema)]
    rows: list[int] = []
    while chunk := list(islice(records, _CHUNK)):
        for number, record in chunk:
            if len(record) != len(names):
                title = "; if what stands above it is a title, remove it" * (
                    not rows and len(record) > len(names)
                )
                raise ValueError(
                    f"{file}, row {number}: every row must have {len(names)} cells, as the first has: "
                    f"got {len(record)}; complete the row, or quote a cell that holds the separator{title}"
                )
            rows.append(number)
        columns = zip(*(record for _, record in chunk), strict=True)
        frames.append(pl.DataFrame(dict(zip(names, columns, strict=True)), schema=schema))
    return pl.concat(frames, rechunk=True), rows


def _check_names(names: Sequence[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = ", ".join(str(k) for k, name in enumerate(names, 1) if name == twice[0])
        raise ValueError(
            f"{where}: every column must have a name of its own: {twice[0]!r} names columns {places}; "
            "rename them, or set --data.header none if the file has no header"
        )


# data frames


def to_table(frame: Any, name: str, missing: tuple[str, ...] = ()) -> Table:
    """The table of a DataFrame; rows are counted from 1, an index is no column.

    Args:
        frame: Of polars or pandas.
        name: What messages call it.
        missing: Cells of text, or numbers, that mean a missing value.

    Raises:
        ValueError: There are no rows, or two columns have one name.
    """
    names = [str(column) for column in frame.columns]
    _check_own(names, name)
    if len(frame) == 0:
        raise ValueError(f"{name}: the table has no rows")
    if not isinstance(frame, pl.DataFrame):
        frame = pl.DataFrame([_series(frame.iloc[:, k], names[k]) for k in range(len(names))])
    return typed_table(frame, name, missing)


def typed_table(frame: pl.DataFrame, name: str, missing: tuple[str, ...] = ()) -> Table:
    """The table of columns that came with types: names and text as :func:`plain` makes them, which is said.

    Raises:
        ValueError: Two columns have one name.
    """
    given, names = frame.columns, [plain(column) for column in frame.columns]
    _check_own(names, name)
    notes = renamed(given)
    if names != given:
        frame = frame.rename(dict(zip(given, names, strict=True)))
    text = frame.select(pl.selectors.by_dtype(pl.String, pl.Categorical, pl.Enum).cast(pl.String))
    read = text.select(pl.all().str.normalize("NFC").str.strip_chars())
    changed = [column for column in text.columns if not text[column].equals(read[column])]
    for column in changed[:1]:
        notes += renamed(text[column].filter(text[column] != read[column]).head(1))
    frame = frame.with_columns(read[column] for column in changed)
    rows = range(1, len(frame) + 1)
    return Table(name, frame, rows, typed=True, missing=missing, notes=tuple(dict.fromkeys(notes)))


def _check_own(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        raise ValueError(f"{where}: every column must have a name of its own: {twice!r} names two")


def _series(column: Any, name: str) -> pl.Series:
    """A pandas column by its values: numbers and booleans keep their type, all else is text."""
    missing = column.isna().to_numpy()
    cells = [None if gone else _plain(cell) for gone, cell in zip(missing, column.tolist(), strict=True)]
    present = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool) for cell in present):
        return pl.Series(name, cells, dtype=pl.Boolean)
    if all(isinstance(cell, int) for cell in present):
        return pl.Series(name, cells, dtype=_integer(present))
    if all(isinstance(cell, int | float) for cell in present):
        return pl.Series(name, cells, dtype=pl.Float64, strict=False)
    if present and all(isinstance(cell, timedelta) for cell in present):
        return pl.Series(name, cells, dtype=pl.Duration)
    return pl.Series(name, [None if cell is None else str(cell) for cell in cells], dtype=pl.String)


def _plain(cell: Any) -> Any:
    """A number of NumPy or decimal's in a column of objects as one of Python's."""
    if isinstance(cell, np.bool_ | np.number):
        return cell.item()
    return float(cell) if isinstance(cell, Exact) else cell


def _integer(cells: list[int]) -> Any:
    """The type that holds whole numbers exactly."""
    low, high = min(cells, default=0), max(cells, default=0)
    if low >= -(2**63) and high < 2**63:
        return pl.Int64
    return pl.UInt64 if low >= 0 and high < 2**64 else pl.Int128
