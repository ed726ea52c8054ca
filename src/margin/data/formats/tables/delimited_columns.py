"""Delimited text as columns, by polars: where every row is regular, which is checked first.

What is not regular (a ragged row, a quote inside of a cell, a blank line) is left to the reader that names
rows; this one only ever answers what that one would.
"""

import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

_CHUNK = 1 << 24
_VALUE = re.compile(r"(?i)[-+]?(\.?\d.*|inf.*)|true|false")
"""Words that polars would read as a number or as a truth value, were they not named as missing."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a file is written.

    Args:
        separator: What divides cells.
        decimal: The decimal mark.
        header: Whether the first row names the columns.
        missing: Cells that mean a missing value.
        text: Columns that stay text; None is all of them.
    """

    separator: str
    decimal: str
    header: bool
    missing: tuple[str, ...]
    text: Collection[str] | None


def columns_of(raw: bytes, names: Sequence[str], form: Form) -> pl.DataFrame | None:
    """The columns of a file, or None where its rows are not regular.

    A column of numbers alone has their type where ``form.text`` allows it, its missing cells null; any
    other is text as it stands, and so is one of whole numbers with a leading zero.

    Args:
        raw: The file in UTF-8, without a byte order mark.
        names: The names of the columns.
        form: How it is written.
    """
    body = _regular(raw, len(names), form.separator.encode())
    if body is None:
        return None
    read = _reader(body, names, form)
    frame = None if form.text is None else _typed(read, names, form)
    if frame is None:
        frame = read(infer_schema=False)
        return None if frame is None else _as_written(frame)
    whole = [k for k, dtype in enumerate(frame.dtypes) if dtype.is_integer()]
    if whole and _has_leading_zero(body, form.separator.encode()):
        text = read(columns=whole, infer_schema=False)
        if text is None:
            return None
        zeros = [column for column in text.get_columns() if column.str.contains(r"^[+-]?0\d").any()]
        frame = frame.with_columns(_as_written(pl.DataFrame(zeros)).get_columns())
    return frame


def _reader(body: bytes, names: Sequence[str], form: Form) -> Callable[..., pl.DataFrame | None]:
    def _read(**options: Any) -> pl.DataFrame | None:
        try:
            frame = pl.read_csv(
                io.BytesIO(body),
                has_header=False,
                skip_lines=int(form.header),
                separator=form.separator,
                decimal_comma=form.decimal == "," and options.get("infer_schema", True),
                **options,
            )
        except (pl.exceptions.PolarsError, ValueError):
            return None
        kept = options.get("columns", range(len(names)))
        if frame.width != len(kept):
            return None
        frame.columns = [names[k] for k in kept]
        return frame

    return _read


def _as_written(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of text with "" in their empty cells, as they stand in the file."""
    empty = [column.fill_null("") for column in frame.get_columns() if column.null_count()]
    return frame.with_columns(empty) if empty else frame


def _typed(read: Callable[..., pl.DataFrame | None], names: Sequence[str], form: Form) -> pl.DataFrame | None:
    """The columns with the types that polars finds, numbers and text; None where it finds none."""
    missing = list(form.missing)
    frame = None
    if form.decimal == ".":  # with a comma it reads decimal points in rows behind those it looked at first
        # a quarter faster without these words, and the same where no cell is one of them
        frame = None if any(map(_VALUE.fullmatch, missing)) else read(infer_schema_length=1000)
        if frame is None or _met(frame, missing):
            frame = read(infer_schema_length=1000, null_values=missing)
    if frame is None:
        frame = read(infer_schema_length=None, null_values=missing)
    if frame is None:
        return None
    kept = set(form.text or ())
    text = [
        k
        for k, (name, dtype) in enumerate(zip(names, frame.dtypes, strict=True))
        if not (dtype.is_numeric() or (dtype == pl.String and not frame[name].null_count()))
        or (name in kept and dtype != pl.String)
    ]
    if not text:
        return frame
    # as it stands: which of the missing words, and true or TRUE, messages and categories tell apart
    raw = read(columns=text, infer_schema=False)
    return None if raw is None else frame.with_columns(_as_written(raw).get_columns())


def _met(frame: pl.DataFrame, words: Sequence[str]) -> bool:
    """Whether a cell is one of the words, or a number that is none."""
    return any(
        column.is_in(words).any() if column.dtype == pl.String else column.sum() != column.sum()
        for column in frame.get_columns()
        if column.dtype == pl.String or column.dtype.is_float()
    )


def _regular(raw: bytes, width: int, separator: bytes) -> bytes | None:
    """The rows without blank lines behind them, where each has ``width`` cells and fills one line."""
    body = raw.rstrip(b"\r\n") if raw.endswith((b"\n\n", b"\n\r\n")) else raw
    if width < 2 or (b"\r" in body and body.count(b"\r") != body.count(b"\r\n")):
        return None
    bare = body
    if b'"' in body:
        edge = re.escape(separator)
        bare = re.sub(
            rb"(?:(?<=[\n" + edge + rb'])|\A)"(?:[^"\n]|"")*"(?=[\r\n' + edge + rb"]|\Z)", b"", body
        )
        if b'"' in bare or separator + b" " in bare or b"\n " in bare:
            return None
    elif b" " in body:
        for before, after in ((separator + b" ", separator), (b"\n ", b"\n")):
            while separator != b" " and before in body:
                body = body.replace(before, after)
        bare = body
    lines = _count(bare, b"\n") + (not bare.endswith(b"\n"))
    # polars finds a row that is longer than the first, so the sum tells that none is shorter or blank
    return body if _count(bare, separator) == (width - 1) * lines else None


def _count(text: bytes, mark: bytes) -> int:
    """How often a byte comes: bytes.count stops at each, which takes four times as long."""
    data = np.frombuffer(text, np.uint8)
    pieces = (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return sum(int(np.count_nonzero(piece == mark[0])) for piece in pieces)


def _has_leading_zero(body: bytes, separator: bytes) -> bool:
    """Whether a cell begins with a 0 and another digit, perhaps behind a sign or a quote."""
    data, mark = np.frombuffer(body, np.uint8), separator[0]
    for start in range(0, len(data), _CHUNK):
        part = data[max(0, start - 3) : start + _CHUNK + 2]
        zeros = np.flatnonzero((part[:-1] == 48) & (part[1:] >= 48) & (part[1:] <= 57))
        before = part[zeros - 1]
        signed = (before == 43) | (before == 45) | (before == 34)
        before = np.where(signed, part[zeros - 2], before)
        if ((before == mark) | (before == 10) | (zeros == 0)).any():
            return True
    return False
