"""New rows of a table by the record of a finished run.

Columns are found by name and read with the kinds, categories, classes and fill values of the training.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from margin.data.arrays import check_finite, listed
from margin.data.columns import Column, as_kind, features, missing_cell
from margin.data.delimited import Table, load_table
from margin.data.examples import Arrays
from margin.data.frames import to_table


def encode_file(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays:
    """The rows of a file, as :func:`encode_table` reads them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The run was not trained on a table, or as :func:`encode_table`.
    """
    _check_record(encoding, str(source))
    return encode_table(load_table(Path(source), encoding["header"]), encoding)


def encode_frame(frame: Any, encoding: Mapping[str, Any]) -> Arrays:
    """The rows of a DataFrame, as :func:`encode_table` reads them.

    Raises:
        ValueError: The run was not trained on a table, or as :func:`encode_table`.
    """
    _check_record(encoding, type(frame).__name__)
    return encode_table(to_table(frame, "table"), encoding)


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
    blocks = []
    for record in encoding["columns"]:
        column = as_kind(table, record["name"], record["kind"])
        if record.get("fill") is None:
            refuse_missing(table, [column], "the run has no value to fill in: fill it in or remove the row")
        if record["kind"] == "category":
            check_known(table, column, record["categories"], "category")
        blocks.append(features(column, record))
    inputs = torch.from_numpy(np.concatenate(blocks, 1)).to(getattr(torch, encoding["dtype"]))
    check_finite(inputs.numpy(), table.name, "encoded input")
    if encoding["target"]["name"] not in table.frame.columns:
        return Arrays((inputs,))
    targets = _known_targets(table, encoding)
    return Arrays((inputs,), targets.to(inputs.dtype) if encoding["task"] == "values" else targets)


def _check_record(encoding: Mapping[str, Any], name: str) -> None:
    if encoding["format"] != "table":
        shape = ", ".join(str(size) for size in ("N", *encoding["shape"]))
        raise ValueError(f"{name}: the run was trained on arrays ({shape}): got a table")


def _known_targets(table: Table, encoding: Mapping[str, Any]) -> Tensor:
    """The targets of new rows: float64 values, or labels."""
    column = as_kind(table, encoding["target"]["name"], encoding["target"]["kind"])
    refuse_missing(table, [column], "fill it in, remove the row, or leave the whole column out")
    if encoding["task"] == "values":
        return torch.from_numpy(column.values.to_numpy().copy())
    names = class_names(table, column)
    check_known(table, Column(column.name, "category", names), encoding["classes"], "class")
    return labels_of(names, encoding["classes"])


def refuse_missing(table: Table, columns: Sequence[Column], remedy: str) -> None:
    """Refuse the first row, and in it the first column, where a cell is missing."""
    gaps = [(column.values.is_null().arg_true(), column) for column in columns]
    first = min(((int(rows[0]), k) for k, (rows, _) in enumerate(gaps) if len(rows)), default=None)
    if first is not None:
        raise ValueError(missing_cell(table, columns[first[1]], remedy))


def class_names(table: Table, target: Column) -> pl.Series:
    """The name of each row's class: text as it is, a whole number without its point, False or True."""
    if target.kind == "category":
        return target.values
    if target.kind == "boolean":
        return target.values.replace_strict([False, True], ["False", "True"], return_dtype=pl.String)
    broken = (target.values != target.values.round()).arg_true()
    if len(broken):
        raise ValueError(
            f"{table.at(broken[0], target.name)}: classes must be whole numbers or names: "
            f"got {target.values[broken[0]]}; set --task values"
        )
    return target.values.cast(pl.Int64).cast(pl.String)


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
