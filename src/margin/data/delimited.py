"""Tables in files: delimited text (Shafranovich 2005, RFC 4180) and Parquet, with the place of every cell.

The first row is the header and has number 1, as an editor shows it; a quoted cell may hold line
breaks, so the number of a row is that of its first line.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import polars as pl

from margin.data.reading import panicking, unpacked

Header = Literal["first", "none"]

SEPARATORS = ",;\t|"
PARQUET = (".parquet", ".pq")

_CHUNK = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Named columns, and how messages call their cells.

    Args:
        name: The file's path, or what the user calls the table.
        frame: The columns: text as it stands in a delimited file, typed from Parquet or a data frame.
        rows: The number of each row for messages.
        typed: Whether the columns came with types; else they are text, still to be understood.
        unnamed: Columns whose cell in the header is empty, called by their position.
    """

    name: str
    frame: pl.DataFrame
    rows: Sequence[int]
    typed: bool
    unnamed: tuple[str, ...] = ()

    def at(self, row: int, column: str) -> str:
        """Where a cell is, for a message; ``row`` counts from 0."""
        return f"{self.name}, row {self.rows[row]}, column {column!r}"

    def keep(self, mask: pl.Series) -> "Table":
        """The table of the rows where ``mask`` is true."""
        rows = [row for row, kept in zip(self.rows, mask, strict=True) if kept]
        return replace(self, frame=self.frame.filter(mask), rows=rows)


def load_table(path: Path, header: Header = "first") -> Table:
    """The table in a file; ``.gz`` is unpacked, the separator is found out.

    Args:
        path: Delimited text in UTF-8, or Parquet.
        header: Whether the first row names the columns; "none" calls them column_1, column_2, ...

    Returns:
        The table, its cells not yet understood.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is empty or has no rows, a row is ragged, a quote is not closed, or two
            columns have one name.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    if path.suffix.lower() in PARQUET:
        return _parquet(path)
    text = _text(path)
    records: Iterator[tuple[int, list[str]]] = _records(text, _separator(text), str(path))
    try:
        number, first = next(records)
    except StopIteration:
        raise ValueError(f"{path}: the file is empty: it needs a header and rows") from None
    unnamed: tuple[str, ...] = ()
    if header == "none":
        names = [f"column_{k}" for k in range(1, len(first) + 1)]
        records = chain([(number, first)], records)
    else:
        names = [cell.strip() or f"column_{k}" for k, cell in enumerate(first, 1)]
        unnamed = tuple(name for name, cell in zip(names, first, strict=True) if not cell.strip())
        _check_names(names, str(path))
    frame, rows = _frame(records, names, str(path))
    if not rows:
        raise ValueError(f"{path}: the file has a header but no rows")
    return Table(str(path), frame, rows, typed=False, unnamed=unnamed)


def _parquet(path: Path) -> Table:
    try:
        with panicking(path, "a Parquet file"):
            frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None
    if frame.height == 0:
        raise ValueError(f"{path}: the file has columns but no rows")
    return Table(str(path), frame, range(1, frame.height + 1), typed=True)


def _text(path: Path) -> str:
    raw = unpacked(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte {raw[error.start]:02x}"
        raise ValueError(f"{path}, row {row}: a table must be UTF-8 text: got {byte}; save it so") from None
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}, row {row}: a table must be text: got a zero byte")
    return text


def _separator(text: str) -> str:
    """The separator that divides the most of the first lines as it divides the first."""
    lines = [line for line in text[:65536].splitlines()[:50] if line.strip()]

    def score(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
        if not widths or widths[0] == 1:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    return max(SEPARATORS, key=score)


def _records(text: str, separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the number of its first line."""
    # A space before the cell is skipped so that `1, "a, b"` is two cells; a tab is a separator itself.
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
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
                raise ValueError(
                    f"{file}, row {number}: every row must have {len(names)} cells, as the first has: "
                    f"got {len(record)}; complete the row, or quote a cell that holds the separator"
                )
            rows.append(number)
        columns = zip(*(record for _, record in chunk), strict=True)
        frames.append(pl.DataFrame(dict(zip(names, columns, strict=True)), schema=schema))
    return pl.concat(frames, rechunk=True), rows


def _check_names(names: Sequence[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = ", ".join(str(k) for k, name in enumerate(names, 1) if name == twice[0])
        raise ValueError(
            f"{file}, row 1: every column must have a name of its own: {twice[0]!r} names columns {places}; "
            "rename them, or set --data.header none if the file has no header"
        )
