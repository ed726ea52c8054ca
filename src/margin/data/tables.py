"""Tables as data: a target column, the other columns as features.

What is understood of a table is recorded in the encoding, and new data are read by that record: by
column names, with the categories, classes and fill values of the training.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.assembly import Raw, TaskName, assemble, cut
from margin.data.columns import (
    FILL,
    Column,
    Missing,
    as_kind,
    categories_of,
    features,
    fill_value,
    no_column,
    understand,
    width,
)
from margin.data.delimited import Header, Table, load_table
from margin.data.examples import Data
from margin.data.frames import to_table
from margin.data.rows import class_names, encode_table, labels_of, refuse_missing
from margin.data.splits import Split

TARGETS = ("target", "label", "class", "y")
"""Names of a target column that need not be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a table is read: the options of :func:`read_table` that are not about the file or the split."""

    target: str | None
    task: TaskName | None
    missing: Missing
    ignore: Sequence[str] | str
    domain: tuple[float, float] | None


def read_table(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    task: TaskName | None = None,
    missing: Missing = "error",
    ignore: Sequence[str] | str = (),
    header: Header = "first",
    test_file: str | None = None,
    domain: tuple[float, float] | None = None,
    test: float = 0.25,
    val: float = 0.15,
    split_seed: int = 0,
) -> Data:
    """A table from a file: CSV, TSV (the separator is found out) or Parquet, ``.gz`` too.

    Texts are categories and become one 0/1 feature for each value; booleans become 0 or 1. As a
    target, text and booleans mean classes, numbers with a fraction mean values, and whole numbers are
    either, so ``task`` must say.

    Args:
        path: The file.
        target: The column to predict; by default the one called target, label, class or y.
        task: Whether the target is a class or a value.
        missing: What a missing cell (empty, NA, NaN, null, ?) gets: an error, its row dropped, or the
            column's mean, median or mode over the training part (categories and booleans take the mode).
        ignore: Columns that are left out; names, or one text of names with commas between.
        header: Whether the first row names the columns; none calls them column_1, column_2, ...
        test_file: A file with the same columns, which is the test part; its rows decide nothing else.
        domain: Least and largest value that a feature may take, in its own unit.
        test: Share of the test part; without effect where there is a file of it.
        val: Share of the validation part.
        split_seed: Seed of who falls where.

    Returns:
        Inputs (N, d) in the user's units, float32.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The table cannot be read; the message names file, row, column and remedy.
    """
    table = load_table(Path(path), header)
    reading = Reading(target=target, task=task, missing=missing, ignore=ignore, domain=domain)
    split = Split(test=test, val=val, seed=split_seed)
    if test_file is None:
        return _data(table, reading, split, header)
    return _data(table, reading, split, header, load_table(Path(test_file), header))


def read_frame(  # more than 7 parameters: they are the options of the source
    frame: Any,
    *,
    name: str = "table",
    target: str | None = None,
    task: TaskName | None = None,
    missing: Missing = "error",
    ignore: Sequence[str] | str = (),
    domain: tuple[float, float] | None = None,
    test: float = 0.25,
    val: float = 0.15,
    split_seed: int = 0,
) -> Data:
    """A table from a polars or pandas DataFrame; read as a file's, but the columns keep their types.

    Args:
        frame: The DataFrame; rows are counted from 1.
        name: What messages and records call the data.
        target: The column to predict; by default the one called target, label, class or y.
        task: Whether the target is a class or a value.
        missing: What a missing cell gets (see :func:`read_table`).
        ignore: Columns that are left out.
        domain: Least and largest value that a feature may take, in its own unit.
        test: Share of the test part.
        val: Share of the validation part.
        split_seed: Seed of who falls where.

    Returns:
        Inputs (N, d) in the user's units, float32.

    Raises:
        ValueError: The table cannot be read.
    """
    reading = Reading(target=target, task=task, missing=missing, ignore=ignore, domain=domain)
    return _data(to_table(frame, name), reading, Split(test=test, val=val, seed=split_seed), "first")


def _data(
    table: Table, reading: Reading, split: Split, header: Header, held_out: Table | None = None
) -> Data:
    """Understand, drop, cut, fill from the training part, encode; ``held_out`` is a test part of its own."""
    name, notes = _target_name(table, reading.target)
    used = _used(table, reading.ignore, name)
    columns = [understand(table, used_name) for used_name in used]
    target = understand(table, name)
    if reading.missing == "drop":
        table, target, columns, dropped = _drop(table, target, columns)
        notes += dropped
    refuse_missing(table, [target], "fill it in, or set --missing drop")
    targets, task, classes = _targets(table, target, reading.task)
    if reading.missing == "error":
        refuse_missing(table, columns, FILL)
    raw = Raw(name=table.name, inputs=targets, targets=targets, task=task, classes=classes)
    parts = cut(raw, split if held_out is None else replace(split, test=0.0))
    records = [_record(table, column, reading.missing, parts["train"].numpy()) for column in columns]
    inputs = np.concatenate([features(c, r) for c, r in zip(columns, records, strict=True)], 1)
    indicators = [record["kind"] != "number" for record in records for _ in range(width(record))]
    encoding = {
        "format": "table",
        "columns": records,
        "target": {"name": name, "kind": target.kind},
        "missing": reading.missing,
        "ignored": [other for other in table.frame.columns if other not in (*used, name)],
        "header": header,
    }
    official = None
    if held_out is not None:
        known = {"task": task, "classes": classes, "dtype": "float32"}
        official, dropped = _official(held_out, encoding | known)
        notes += (f"the test part is {Path(held_out.name).name}", *dropped)
    raw = replace(
        raw,
        inputs=torch.from_numpy(inputs),
        domain=reading.domain,
        official=official,
        indicators=torch.tensor(indicators),
        encoding=encoding,
        notes=(*notes, *_notes(columns, records, reading)),
    )
    return replace(assemble(raw, split, parts), name=Path(table.name).name)


def _official(table: Table, encoding: Mapping[str, Any]) -> tuple[tuple[Tensor, Tensor], tuple[str, ...]]:
    """Inputs and targets of a test part of its own, and the note of its rows that are dropped."""
    dropped: tuple[str, ...] = ()
    if encoding["missing"] == "drop":
        wanted = [encoding["target"], *encoding["columns"]]
        target, *columns = (as_kind(table, record["name"], record["kind"]) for record in wanted)
        table, _, _, dropped = _drop(table, target, columns)
    part = encode_table(table, encoding)
    if part.targets is None:
        raise ValueError(no_column(table, encoding["target"]["name"]))
    return (part.inputs[0], part.targets), tuple(f"{Path(table.name).name}: {note}" for note in dropped)


def _target_name(table: Table, target: str | None) -> tuple[str, tuple[str, ...]]:
    names = table.frame.columns
    if target is not None:
        if target not in names:
            raise ValueError(no_column(table, target))
        return target, ()
    likely = [name for name in names if name.lower() in TARGETS]
    if len(likely) == 1:
        return likely[0], (f"the target is column {likely[0]!r}, since no target was named",)
    # A header of numbers is a first row of data.
    hint = "; if the first row is data, set --data.header none" if any(map(_is_number, names)) else ""
    raise ValueError(f"{table.name}: name the target column; it has: {', '.join(names)}{hint}")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _used(table: Table, ignore: Sequence[str] | str, target: str) -> list[str]:
    """The columns that become features."""
    names = table.frame.columns
    if isinstance(ignore, str):
        ignore = [ignore] if ignore in names else [name.strip() for name in ignore.split(",")]
    for name in ignore:
        if name not in names:
            raise ValueError(no_column(table, name))
    if target in ignore:
        raise ValueError(f"{table.name}: the target column cannot be ignored: got {target!r}")
    used = [name for name in names if name not in ignore and name != target]
    if unnamed := [name for name in (*used, target) if name in table.unnamed]:
        place = unnamed[0].removeprefix("column_")
        raise ValueError(
            f"{table.name}, row 1: column {place} has no name; name it in the header, or set "
            f"--ignore {unnamed[0]}"
        )
    if not used:
        raise ValueError(f"{table.name}: a table needs a column beside the target {target!r}: none is left")
    return used


def _drop(
    table: Table, target: Column, columns: Sequence[Column]
) -> tuple[Table, Column, list[Column], tuple[str, ...]]:
    """The table without the rows in which a cell is missing."""
    whole = target.values.is_not_null()
    for column in columns:
        whole = whole & column.values.is_not_null()
    dropped = len(whole) - int(whole.sum())
    if dropped == 0:
        return table, target, list(columns), ()
    if dropped == len(whole):
        worst = max((target, *columns), key=lambda column: column.values.null_count())
        raise ValueError(
            f"{table.name}: --missing drop leaves no row; column {worst.name!r} lacks "
            f"{worst.values.null_count()} of {len(whole)} cells: fill in, or set --ignore {worst.name!r}"
        )
    kept = [replace(column, values=column.values.filter(whole)) for column in (target, *columns)]
    note = f"{dropped} of {len(whole)} rows are dropped: a cell is missing"
    return table.keep(whole), kept[0], kept[1:], (note,)


def _targets(table: Table, target: Column, task: TaskName | None) -> tuple[Tensor, TaskName, tuple[str, ...]]:
    where = f"{table.name}, target {target.name!r}"
    if task is None and target.kind == "number" and target.whole:
        raise ValueError(
            f"{where}: whole numbers may be classes or values: set --task classes or --task values"
        )
    task = task or ("values" if target.kind == "number" else "classes")
    if task == "values":
        if target.kind != "number":
            raise ValueError(f"{where}: values must be numbers: got {target.kind} cells; set --task classes")
        return torch.from_numpy(target.values.to_numpy().copy()), task, ()
    names = class_names(table, target)
    classes = names.unique().to_list()
    classes.sort(key=float if target.kind == "number" else str)
    return labels_of(names, classes), task, tuple(classes)


def _record(table: Table, column: Column, missing: Missing, train: NDArray[np.int64]) -> dict[str, Any]:
    """What the encoding keeps of a column."""
    record: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind == "category":
        record["categories"] = categories_of(table, column)
    try:
        record["fill"] = fill_value(column, missing, train)
    except ValueError as error:
        raise ValueError(f"{table.name}, {error}") from None
    record["missing"] = column.values.null_count()
    return record


def _notes(columns: Sequence[Column], records: Sequence[Mapping[str, Any]], reading: Reading) -> list[str]:
    """What was assumed of the columns."""
    notes = [
        f"column {column.name!r} holds numbers and text: read as categories"
        for column in columns
        if column.mixed
    ]
    for record in records:
        if record["missing"]:
            how = reading.missing if record["kind"] == "number" else "mode"
            value = f"{record['fill']:g}" if isinstance(record["fill"], float) else repr(record["fill"])
            cells = f"column {record['name']!r}: {record['missing']} missing cells"
            notes.append(f"{cells} get the training part's {how}, {value}")
    if reading.domain is not None and any(record["kind"] != "number" for record in records):
        notes.append(
            "the domain covers the 0/1 features of categories too: they may be moved between 0 and 1"
        )
    return notes
