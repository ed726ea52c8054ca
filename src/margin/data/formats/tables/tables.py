"""Tables as data: a target column where there is one, the other columns as features.

What is understood of a table is recorded in the encoding, and new data are read by that record: by
column names, with the categories, classes and fill values of the training.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import is_wide_target
from margin.data.assembly import Raw, assemble, cut
from margin.data.examples import Arrays, Data
from margin.data.files.reading import plain
from margin.data.formats.encodings import zero_one
from margin.data.formats.tables.columns import FILL, Column, Missing, as_kind, no_column, understand
from margin.data.formats.tables.delimited import Header, Table, Writing, load_table, to_table
from margin.data.formats.tables.delimited_form import Decimal
from margin.data.formats.tables.encoder import (
    class_names,
    drop_rows,
    labels_of,
    official_part,
    refuse_missing,
)
from margin.data.formats.tables.table_parts import (
    counting_notes,
    group_codes,
    held_out_groups,
    identifier_notes,
    index_columns,
    is_blank,
    matrix_of,
    notes_of,
    record_of,
    refuse_total,
    sentinel_notes,
    target_name,
    written_of,
)
from margin.data.formats.tables.text_column import data_of_column, text_cells, text_column, token_cells
from margin.data.formats.text.texts import TEXTS, Long
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.options import option_groups
from margin.data.splits import Split, TargetKind, grouped

Index = Literal["leave_out", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a table is read: the options of :func:`read_table` that are not about the file or the split."""

    target: str | None
    task: TargetKind | None
    missing: Missing
    ignore: Sequence[str] | str
    domain: tuple[float, float] | None
    group: str | None = None
    index: Index = "leave_out"
    categories: Sequence[str] | str = ()
    text: str | None = None
    tokens: str | None = None
    rule: Tokenization = TEXTS
    long: Long = "error"


@option_groups()
def read_table(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    task: TargetKind | None = None,
    missing: Missing = "error",
    ignore: Sequence[str] | str = (),
    categories: Sequence[str] | str = (),
    header: Header = "first",
    separator: str | None = None,
    decimal: Decimal | None = None,
    missing_values: Sequence[str] | str | None = None,
    date_format: str = "",
    index: Index = "leave_out",
    group: str | None = None,
    test_file: str | None = None,
    domain: tuple[float, float] | None = None,
    text: str | None = None,
    tokens: str | None = None,
    rule: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = Split(),
) -> Data:
    """A table from a file: CSV, TSV (the separator is found out), Parquet or JSON lines, ``.gz`` too.

    Texts are categories and become one 0/1 feature for each value; dates as 2016-07-01 become days since 1970
    and what varies of year, month, day, weekday and hour; booleans become 0 or 1; whole numbers
    with a leading zero are text. As a target, text and booleans mean classes, numbers with a fraction
    mean values, and whole numbers are either, so ``task`` must say. Without a target every column is a
    feature, and models whose loss reads no target train on them. Where beside the target there is one column,
    of texts no two of which need be alike, an example is such a text, as tokens.

    Args:
        path: The file.
        target: The column to predict; by default the one called target, label, class or y, if there is one.
        task: Whether the target is a class or a value; none takes every column for a feature.
        missing: What a missing cell gets: an error, its row dropped, or the column's mean, median or mode
            over the training part (categories and booleans take the mode); indicate gives a column that lacks
            cells a 0/1 feature more that says where, beside the mean, or as a category of its own.
        ignore: Columns that are left out; names, or one text of names with commas between.
        categories: Columns of numbers that are names, as zip codes: each value is a category.
        header: Whether the first row names the columns; none calls them column_1, column_2, ...
        separator: What divides the cells of text; found out if not given.
        decimal: The decimal mark of numbers in text, a point or a comma; found out if not given.
        missing_values: Cells that mean a missing value, names with commas between; those of text are NA, N/A,
            n/a, NaN, nan, NULL, null, None, <NA>, #N/A and ? if not given, and those of typed columns none.
            An empty cell of text always does.
        date_format: How dates in text are written, as "%d/%m/%Y %H:%M" where the day comes first; ISO 8601,
            as 2016-07-01 12:30:00, if not given.
        index: Whether the index of a data frame that was written with it (Unnamed: 0, __index_level_0__, or a
            first column without a name that counts the rows) is left out or kept as a feature.
        group: A column that names the group of each row, as a patient: no group lies in two parts; it is no
            feature.
        test_file: A file with the same columns, which is the test part; its rows decide nothing else.
        domain: Least and largest value that a feature may take, in its own unit.
        text: The column whose texts are read as tokens, the target apart; others are left out.
        tokens: The column whose whole numbers, several a cell, are tokens, not amounts; others are left out.
        rule: What the tokens of a text are.
        long: What becomes of a text of more than ``longest`` tokens: an error, or its beginning is kept.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is a file of it.

    Returns:
        Inputs (N, d) in the user's units, float32.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The table cannot be read; the message names file, row, column and remedy.
    """
    named = _listed(missing_values)
    strings = (
        *((plain(group),) if group else ()),
        *(_listed(categories) or ()),
        *filter(None, [text, tokens]),
    )
    writing = Writing(
        header=header,
        separator=separator,
        decimal=decimal,
        missing=named,
        text=strings,
        dates=date_format,
        empty="left_out",
    )
    table = load_table(Path(path), writing=writing)
    reading = Reading(
        target=target and plain(target),
        task=task,
        missing=missing,
        ignore=ignore if isinstance(ignore, str) else [*map(plain, ignore)],
        domain=domain,
        group=group and plain(group),
        index=index,
        categories=categories if isinstance(categories, str) else [*map(plain, categories)],
        text=text and plain(text),
        tokens=tokens and plain(tokens),
        rule=rule,
        long=long,
    )
    return _data(table, reading, split, writing, None if test_file is None else Path(test_file))


@option_groups()
def read_frame(  # more than 7 parameters: they are the options of the source
    frame: Any,
    *,
    name: str = "table",
    target: str | None = None,
    task: TargetKind | None = None,
    missing: Missing = "error",
    ignore: Sequence[str] | str = (),
    categories: Sequence[str] | str = (),
    missing_values: Sequence[str] | str | None = None,
    date_format: str = "",
    index: Index = "leave_out",
    group: str | None = None,
    domain: tuple[float, float] | None = None,
    text: str | None = None,
    tokens: str | None = None,
    rule: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = Split(),
) -> Data:
    """A table from a polars or pandas DataFrame; read as a file's, but the columns keep their types.

    Args:
        frame: The DataFrame; rows are counted from 1.
        name: What messages and records call the data.
        target: The column to predict; by default the one called target, label, class or y, if there is one.
        task: Whether the target is a class or a value; none takes every column for a feature.
        missing: What a missing cell gets (see :func:`read_table`).
        ignore: Columns that are left out.
        categories: Columns of numbers that are names (see :func:`read_table`).
        missing_values: Text or numbers that mean a missing value besides null; none if not given.
        date_format: How dates in text are written (see :func:`read_table`).
        index: Whether a column that is a data frame's index is left out or kept (see :func:`read_table`).
        group: A column that names the group of each row: no group lies in two parts; it is no feature.
        domain: Least and largest value that a feature may take, in its own unit.
        text: The column whose texts are read as tokens (see :func:`read_table`).
        tokens: The column whose whole numbers are tokens (see :func:`read_table`).
        rule: What the tokens of a text are.
        long: What becomes of a text of more than ``longest`` tokens (see :func:`read_table`).
        split: Test and validation part, seed.

    Returns:
        Inputs (N, d) in the user's units, float32.

    Raises:
        ValueError: The table cannot be read.
    """
    reading = Reading(
        target=target and plain(target),
        task=task,
        missing=missing,
        ignore=ignore if isinstance(ignore, str) else [*map(plain, ignore)],
        domain=domain,
        group=group and plain(group),
        index=index,
        categories=categories if isinstance(categories, str) else [*map(plain, categories)],
        text=text and plain(text),
        tokens=tokens and plain(tokens),
        rule=rule,
        long=long,
    )
    named = _listed(missing_values)
    table = replace(to_table(frame, name, named or ()), dates=date_format)
    return _data(table, reading, split, Writing(missing=named, dates=date_format))


def _listed(names: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Names as they were given, or one text of them with commas between."""
    if names is None:
        return None
    return tuple(map(plain, names.split(",") if isinstance(names, str) else names))


class _Understood(NamedTuple):
    """A table whose columns are understood, without the rows that are dropped."""

    table: Table
    target: Column | None
    columns: list[Column]
    targets: Tensor
    task: TargetKind
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    text: bool = False


def _understood(table: Table, reading: Reading) -> _Understood:
    name, notes = target_name(table, reading.target, reading.task)
    used, left_out = _used(table, reading, name)
    named = _of_columns(table, reading.categories)
    asked = reading.text or reading.tokens
    own, beside = text_column(table, used, reading.text, reading.tokens, named) if name or asked else ("", ())
    if own:
        cells = token_cells if reading.tokens else text_cells
        columns = [Column(own, "category", cells(table, own))]
    else:
        if (reading.rule, reading.long) != (TEXTS, "error"):
            raise ValueError(
                f"{table.name}: no column is read as texts, whose tokens are meant; set --data.text"
            )
        columns = [
            as_kind(table, own, "category") if own in named else understand(table, own, dates="read")
            for own in used
        ]
    target = None if name is None else understand(table, name)
    if table.dates and all(column.kind != "date" for column in columns):
        raise ValueError(f"{table.name}: date_format must be how a column writes dates: got {table.dates!r}")
    refuse_total(table, [*columns, *([] if target is None else [target])], reading.missing)
    if reading.missing == "drop":
        table, target, columns, dropped = drop_rows(table, target, columns)
        notes += dropped
    targets, task, classes = _targets(table, target, reading.task)
    if reading.missing == "error":
        refuse_missing(table, columns, FILL)
    said = beside if own else (*counting_notes(columns), *identifier_notes(columns))
    notes = (*table.notes, *notes, *left_out, *said)
    return _Understood(table, target, columns, targets, task, classes, notes, bool(own))


def _data(
    table: Table, reading: Reading, split: Split, writing: Writing, held_out: Path | None = None
) -> Data:
    """Understand, drop, cut, fill from the training part, encode; ``held_out`` is a test part of its own."""
    table, target, columns, targets, task, classes, notes, text = understood = _understood(table, reading)
    groups = None if reading.group is None else group_codes(table, reading.group)
    own = {} if held_out is None else {"test": None}
    parts, _ = cut(table.name, targets, task, split, classes, own=own, groups=groups)
    if text:
        return _texts(understood, reading, split, writing, held_out, parts, groups)
    records = [record_of(table, column, reading.missing, parts["train"].numpy()) for column in columns]
    inputs, wide = matrix_of(columns, records, parts["train"].numpy())
    notes += tuple(sentinel_notes(columns, records, inputs))
    indicators = [mark for record in records for mark in zero_one(record)]
    encoding = _encoding(table, reading, writing, records, target)
    if groups is not None:
        encoding["group"] = grouped(reading.group, groups, parts)
    precise = _precise(inputs, targets, task)
    official = None
    if held_out is not None:
        known = {"task": task, "classes": classes, "dtype": str(precise).removeprefix("torch.")}
        official, dropped, tested = official_part(held_out, encoding | known)
        notes += (f"the test part is {held_out.name}", *dropped)
    said = columns if target is None else [*columns, target]
    if target is not None and task == "classes":  # a class is its own number, however large: none is rounded
        said[-1] = replace(target, whole=False)
    raw = Raw(
        name=table.name,
        inputs=torch.from_numpy(inputs),
        targets=targets,
        task=task,
        classes=classes,
        groups=groups,
        dtype=precise,
        wide=precise == torch.float64,
        domain=reading.domain,
        official=official,
        indicators=torch.tensor(indicators),
        encoding=encoding,
        notes=(*notes, *notes_of(said, records, reading.missing, reading.domain), *wide),
    )
    data = replace(assemble(raw, split, parts), name=Path(table.name).name)
    return data if held_out is None or groups is None else _with_groups(data, table, tested)


def _texts(
    found: _Understood,
    reading: Reading,
    split: Split,
    writing: Writing,
    held_out: Path | None,
    parts: Mapping[str, Tensor],
    groups: Tensor | None,
) -> Data:
    """The Data of a table whose one feature is a text."""
    record = {"name": found.columns[0].name, "kind": "tokens" if reading.tokens else "text"}
    encoding = _encoding(found.table, reading, writing, [record], found.target) | {"format": "texts"}
    if groups is not None:
        encoding["group"] = grouped(reading.group, groups, parts)
    raw = Raw(
        name=found.table.name,
        inputs=found.columns[0].values.to_list(),
        targets=found.targets,
        task=found.task,
        classes=found.classes,
        groups=groups,
        encoding=encoding,
        notes=found.notes,
    )
    return data_of_column(raw, found.table, reading.rule, reading.long, split, parts, held_out)


def _with_groups(data: Data, table: Table, tested: Table) -> Data:
    """The data with the groups of a test part that has a file of its own."""
    kept = data.encoding["group"]
    codes, test = held_out_groups(table, tested, kept["column"]), data.splits["test"]
    if not isinstance(test, Arrays):
        raise TypeError(f"a table's part must be arrays: got {type(test).__name__}")
    counts = kept["counts"] | {"test": int(codes.max()) + 1}
    return replace(
        data,
        splits={**data.splits, "test": replace(test, groups=codes)},
        encoding={**data.encoding, "group": kept | {"counts": counts}},
    )


def _encoding(
    table: Table,
    reading: Reading,
    writing: Writing,
    records: Sequence[Mapping[str, Any]],
    target: Column | None,
) -> dict[str, Any]:
    """What is recorded of the table itself."""
    own = (
        {} if target is None else {"target": {"name": target.name, "kind": target.kind, **written_of(target)}}
    )
    taken = {reading.group, *(record["name"] for record in (*records, *own.values()))}
    return {
        "format": "table",
        "columns": records,
        **own,
        "missing": reading.missing,
        "ignored": [other for other in table.frame.columns if other not in taken],
        "header": writing.header,
        "separator": writing.separator,
        "decimal": table.decimal,
        "missing_values": list(table.missing),
        **({"date_format": writing.dates} if writing.dates else {}),
    }


def _precise(inputs: NDArray[Any], targets: Tensor, task: TargetKind) -> torch.dtype:
    """float64 where a feature or a target needs it, else float32."""
    needed = inputs.dtype == np.float64 or (task == "values" and is_wide_target(targets.numpy()))
    return torch.float64 if needed else torch.float32


def _used(table: Table, reading: Reading, target: str | None) -> tuple[list[str], list[str]]:
    """The columns that become features, and what is said of those that are left out by themselves."""
    ignore, names = _of_columns(table, reading.ignore), table.frame.columns
    for name in (*ignore, *_of_columns(table, reading.categories), *filter(None, [reading.group])):
        if name not in table.frame.schema:
            raise ValueError(no_column(table, name))
    if reading.group and reading.group in (target, *ignore):
        raise ValueError(f"{table.name}: the group must be a column beside the target: got {reading.group!r}")
    if target in ignore:
        raise ValueError(f"{table.name}: the target column cannot be ignored: got {target!r}")
    index = [name for name in index_columns(table) if name not in (*ignore, target, reading.group)]
    index = index if reading.index == "leave_out" else []
    apart = {*ignore, *index, target, reading.group}
    used = [name for name in names if name not in apart]
    blank = [name for name in used if name in table.unnamed and is_blank(table.frame[name])]
    used = [name for name in used if name not in blank]
    if unnamed := [name for name in (*used, target) if name in table.unnamed]:
        place = unnamed[0].removeprefix("column_")
        raise ValueError(
            f"{table.name}, row {table.head}: column {place} has no name; name it in the header, or set "
            f"--ignore {unnamed[0]}"
        )
    if not used:
        beside = "a column" if target is None else f"a column beside the target {target!r}"
        raise ValueError(f"{table.name}: a table needs {beside}: none is left")
    notes = [
        f"column {name!r} is the index of a data frame: it is left out; --data.index keep uses it"
        for name in index
    ]
    notes += [f"{name} has neither a name nor a filled cell: it is left out" for name in blank]
    return used, notes


def _of_columns(table: Table, names: Sequence[str] | str) -> Sequence[str]:
    """Names of columns: a sequence, or one text with commas between."""
    if not isinstance(names, str):
        return names
    return [names] if names in table.frame.columns else [*map(plain, names.split(","))]


def _targets(
    table: Table, target: Column | None, task: TargetKind | None
) -> tuple[Tensor, TargetKind, tuple[str, ...]]:
    if target is None:
        return torch.empty(table.frame.height, 0), "none", ()
    refuse_missing(table, [target], "fill it in, or set --missing drop{kept}")
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
    classes.sort(key=int if target.kind == "number" else str)
    return labels_of(names, classes), task, tuple(classes)
