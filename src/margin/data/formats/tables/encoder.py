"""New rows of a table by the record of a finished run.

Columns are found by name and read with the kinds, categories, classes and fill values of the training.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from margin.data.arrays import check_finite, listed
from margin.data.examples import Arrays
from margin.data.formats.encodings import width
from margin.data.formats.tables.columns import EXACT, Column, as_kind, features, missing_cell, no_column
from margin.data.formats.tables.delimited import MARKERS, Table, Writing, load_table, to_table


def encode_file(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays:
    """The rows of a file, as :func:`encode_table` reads them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The run was not trained on a table, or as :func:`encode_table`.
    """
    _check_record(encoding, str(source))
    return encode_table(load_table(Path(source), writing=writing_of(encoding)), encoding)


def writing_of(encoding: Mapping[str, Any]) -> Writing:
    """How new files of a run are read: as its own was, where they do not tell; the text of categories stays.

    What a missing cell is in a file without types, one of a run of typed columns included, the run decides.
    """
    records = [*encoding["columns"], encoding.get("target")]
    group = {"name": encoding["group"]["column"], "kind": "category"} if "group" in encoding else None
    return Writing(
        header=encoding["header"],
        separator=encoding.get("separator"),
        usual=encoding.get("decimal") or ".",
        missing=tuple(encoding.get("missing_values", MARKERS)),
        dates=encoding.get("date_format", ""),
        text=tuple(r["name"] for r in (*records, group) if r is not None and r["kind"] != "number"),
    )


def named_missing(encoding: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of typed columns that mean a missing value: none but those that the user named."""
    recorded = tuple(encoding.get("missing_values", MARKERS))
    return () if recorded == MARKERS else recorded


def encode_frame(frame: Any, encoding: Mapping[str, Any]) -> Arrays:
    """The rows of a DataFrame, as :func:`encode_table` reads them.

    Raises:
        ValueError: The run was not trained on a table, or as :func:`encode_table`.
    """
    _check_record(encoding, type(frame).__name__)
    return encode_table(to_table(frame, "table", named_missing(encoding)), encoding)


def encode_table(table: Table, encoding: Mapping[str, Any]) -> Arrays:
    """New rows by the record of a finished run; targets are None where their column is absent.

    Args:
        table: The rows; columns that the run did not use are not looked at.
        encoding: What the run recorded.

    Returns:
        Inputs (N, d) and targets (N,), or no targets.

    Raises:
        ValueError: A column is missing, a cell is of another kind or missing without a fill value, or
            a category or class is unknown.
    """
    if table.typed:
        table = replace(table, missing=named_missing(encoding), dates=encoding.get("date_format", ""))
    records, start = encoding["columns"], 0
    inputs = np.empty((table.frame.height, sum(map(width, records))), encoding["dtype"])
    for record in records:
        column = as_kind(table, record["name"], record["kind"], record)
        if record.get("fill") is None and not record.get("indicator"):
            refuse_missing(table, [column], "the run has no value to fill in: fill it in or remove the row")
        if record["kind"] == "category":
            check_known(table, column, record["categories"], "category")
        inputs[:, start : start + width(record)] = features(column, record)
        start += width(record)
    check_finite(inputs, table.name, "encoded input")
    known = torch.from_numpy(inputs)
    if "target" not in encoding or encoding["target"]["name"] not in table.frame.schema:
        return Arrays((known,))
    targets = targets_known(table, encoding)
    return Arrays((known,), targets.to(known.dtype) if encoding["task"] == "values" else targets)


def _check_record(encoding: Mapping[str, Any], name: str) -> None:
    if encoding["format"] != "table":
        shape = ", ".join(str(size) for size in ("N", *encoding["shape"]))
        raise ValueError(f"{name}: the run was trained on arrays ({shape}): got a table")


def targets_known(table: Table, encoding: Mapping[str, Any]) -> Tensor:
    """The targets of new rows: float64 values, or labels."""
    record = encoding["target"]
    column = as_kind(table, record["name"], record["kind"], record)
    refuse_missing(table, [column], "fill it in, remove the row, or leave the whole column out")
    if encoding["task"] == "values":
        return torch.from_numpy(column.values.to_numpy().copy())
    names = class_names(table, column)
    check_known(table, Column(column.name, "category", names), encoding["classes"], "class")
    return labels_of(names, encoding["classes"])


def refuse_missing(table: Table, columns: Sequence[Column], remedy: str) -> None:
    """Refuse the first row, and in it the first column, where a cell is missing."""
    gaps: list[tuple[Sequence[int], Column]] = [
        (column.values.is_null().arg_true().to_list() if column.values.null_count() else [], column)
        for column in columns
    ]
    first = min(((int(rows[0]), k) for k, (rows, _) in enumerate(gaps) if len(rows)), default=None)
    if first is not None:
        raise ValueError(missing_cell(table, columns[first[1]], remedy))


def class_names(table: Table, target: Column) -> pl.Series:
    """The name of each row's class: text as it is, a whole number without its point, False or True."""
    if target.kind == "category":
        return target.values
    if target.kind == "boolean":
        return target.values.replace_strict([False, True], ["False", "True"], return_dtype=pl.String)
    written = table.frame[target.name]
    if written.dtype.is_integer():
        return written.cast(pl.String).set(target.values.is_null(), None)
    broken = (target.values != target.values.round()).arg_true()
    if len(broken):
        raise ValueError(
            f"{table.at(broken[0], target.name)}: classes must be whole numbers or names: "
            f"got {target.values[broken[0]]}; set --task values"
        )
    digits = (
        _digits(written)
        if written.dtype == pl.String
        else pl.repeat(None, len(written), dtype=pl.String, eager=True)
    )
    large = ((target.values.abs() >= EXACT) & digits.is_null()).arg_true()
    if len(large):
        raise ValueError(
            f"{table.at(large[0], target.name)}: classes that are floats must be below 2^53, where they "
            f"are exact: got {target.values[large[0]]:.0f}; save them as integers or text"
        )
    rounded = target.values.set(target.values.abs() >= EXACT, None).cast(pl.Int64).cast(pl.String)
    return digits.zip_with(digits.is_not_null(), rounded).set(target.values.is_null(), None)


def _digits(text: pl.Series) -> pl.Series:
    """Whole numbers by their digits, which a float64 does not all hold; null where a cell is none."""
    parts = text.str.strip_chars().str.extract_groups(r"^\+?(?<sign>-?)0*(?<digits>\d+)$").struct
    return (parts.field("sign") + parts.field("digits")).replace("-0", "0")


def labels_of(names: pl.Series, classes: Sequence[str]) -> Tensor:
    """The place of each name among the classes."""
    labels = names.replace_strict(list(classes), list(range(len(classes))), return_dtype=pl.Int64)
    return torch.from_numpy(labels.to_numpy().copy())


def check_known(table: Table, column: Column, known: Sequence[str], what: str) -> None:
    """Refuse the first value of a column that is not known; ``what`` is a category or a class."""
    strange = (column.values.is_not_null() & ~column.values.is_in(list(known))).arg_true()
    if len(strange):
        raise ValueError(
            f"{table.at(strange[0], column.name)}: every {what} must be one of {listed(known)}: "
            f"got {column.values[strange[0]]!r}"
        )


def drop_rows(
    table: Table, target: Column | None, columns: Sequence[Column]
) -> tuple[Table, Column | None, list[Column], tuple[str, ...]]:
    """The table without the rows in which a cell is missing."""
    every = [*columns, *([] if target is None else [target])]
    whole = every[0].values.is_not_null()
    for column in every:
        if column.values.null_count():
            whole = whole & column.values.is_not_null()
    dropped = len(whole) - int(whole.sum())
    if dropped == 0:
        return table, target, list(columns), ()
    if dropped == len(whole):
        worst = max(every, key=lambda column: column.values.null_count())
        raise ValueError(
            f"{table.name}: --missing drop leaves no row; column {worst.name!r} lacks "
            f"{worst.values.null_count()} of {len(whole)} cells: fill in, or set --ignore {worst.name!r}"
        )
    kept = [replace(column, values=column.values.filter(whole)) for column in every]
    note = f"{dropped} of {len(whole)} rows are dropped: a cell is missing"
    return table.keep(whole), None if target is None else kept.pop(), kept, (note,)


def official_part(
    path: Path, encoding: Mapping[str, Any]
) -> tuple[tuple[Tensor, Tensor], tuple[str, ...], Table]:
    """Inputs and targets of a test part of its own, the note of its rows that are dropped, and its table."""
    dropped: tuple[str, ...] = ()
    table = load_table(path, writing=writing_of(encoding))
    if encoding["missing"] == "drop":
        wanted = [*encoding["columns"], *([encoding["target"]] if "target" in encoding else [])]
        named = replace(table, missing=named_missing(encoding)) if table.typed else table
        columns = [as_kind(named, record["name"], record["kind"], record) for record in wanted]
        table, _, _, dropped = drop_rows(table, None, columns)
    part = encode_table(table, encoding)
    if "target" not in encoding:
        part = replace(part, targets=torch.empty(len(part), 0))
    if part.targets is None:
        raise ValueError(no_column(table, encoding["target"]["name"]))
    notes = tuple(f"{Path(table.name).name}: {note}" for note in dropped)
    return (part.inputs[0], part.targets), notes, table
