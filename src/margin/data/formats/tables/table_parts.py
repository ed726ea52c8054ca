"""Steps of reading a table: which columns count rows, which rows are one group, the matrix of features."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import is_wide, listed
from margin.data.formats.encodings import feature_names, width, zero_one
from margin.data.formats.tables.columns import (
    EXACT,
    Column,
    Missing,
    features,
    fill_value,
    no_column,
)
from margin.data.formats.tables.dates import ambiguous, shown, varying
from margin.data.formats.tables.delimited import Table

INDEX = re.compile(r"Unnamed: 0(\.\d+)*|__index_level_\d+__")
"""How pandas names the index of a data frame that it writes, and reads it again."""


MOST_CATEGORIES = 50
"""With more values than this, and than half its cells, a column is text or an identifier."""

MOST_ALIKE = 20
"""From so many cells on it is no chance that no two are alike."""

NAMING = re.compile(
    r"(?:^|[^a-z])(?:id|ids|key|zip|zip_?code|postal_?code|post_?code|plz|phone|telephone|tel|mobile|fax|iban|isbn|ean)"
    r"(?:[^a-z]|no$|nr$|$)|(?-i:[a-z]I[Dd]$)",
    re.IGNORECASE,
)
"""Names of columns whose numbers are names."""

SENTINELS = np.array([s * (10.0**n - 1) for n in (2, 3, 4, 5, 6, 8) for s in (1, -1)] + [2932896.0])
"""99, -999, 9999 and their like, and the days from 1970 to 9999-12-31: how programs write what is missing."""

TOTAL = re.compile(
    r"(?:(?:(?:grand|sub)[ -]?)?totals?|sum|average|mean"
    r"|(?:gesamt|zwischen)?(?:summe|total)|gesamt|insgesamt|mittelwert|durchschnitt"
    r"|(?:sous-)?total(?: g\u00e9n\u00e9ral)?|somme|ensemble|moyenne|totale|somma|media|suma)\s*:?",
    re.IGNORECASE,
)
"""What the last row of a table is called where it sums the others."""

IDS = re.compile(r"\s*[\[(]?\s*\d+([,;\s]+\d+)+\s*[\])]?\s*")
"""A cell of several whole numbers."""

TARGETS = ("target", "label", "class", "y")
"""Names of a target column that need not be said."""


def target_name(table: Table, target: str | None, task: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The target column, None where there is none, and what is said where it was not named.

    Raises:
        ValueError: There is no such column, one is named although there is to be none, or none is named and
            the header may be a row of numbers.
    """
    names = table.frame.columns
    if task == "none":
        if target is not None:
            raise ValueError(
                f"{table.name}: --task none takes no target: got {target!r}; leave one of them out"
            )
        return None, ()
    if target is not None:
        if target not in names:
            raise ValueError(no_column(table, target))
        said = f"the first row holds numbers and is taken for names, {', '.join(names[:3])}, ...: "
        return target, (said + "if it is data, set --data.header none",) if _may_be_data(table) else ()
    likely = [name for name in names if name.lower() in TARGETS]
    if len(likely) == 1:
        return likely[0], (f"the target is column {likely[0]!r}, since no target was named",)
    if likely:
        raise ValueError(
            f"{table.name}: name the target column, or set --task none: {', '.join(likely)} may be it"
        )
    if not any(map(_is_number, names)):
        return None, ("no column is the target, since none was named: --target NAME names one",)
    raise ValueError(  # a header of numbers is a first row of data
        f"{table.name}: name the target column; it has: {', '.join(names)}; if the first row is data, set "
        "--data.header none; if there is no target, --task none"
    )


def _may_be_data(table: Table) -> bool:
    """Whether a header with a number may be a row: it is all numbers, has a fraction, or recurs below."""
    names = table.frame.columns
    numbers = [name for name in names if not table.typed and _is_number(name)]
    texts = [name for name in names if table.frame[name].dtype == pl.String and name not in numbers]
    return bool(numbers) and (
        len(numbers) == len(names)
        or not all(name.strip("+- ").isdigit() for name in numbers)
        or any((table.frame[name].str.strip_chars() == name).any() for name in texts)
    )


def _is_number(name: str) -> bool:
    try:
        float(name.replace(",", ".", 1))
    except ValueError:
        return False
    return True


def index_columns(table: Table) -> list[str]:
    """The columns that are a data frame's index: by pandas' names, or the first, unnamed, counting rows."""
    names = table.frame.columns
    found = [name for name in names if INDEX.fullmatch(name)]
    first = names[0]
    if first in table.unnamed and first == "column_1":
        cells = table.frame[first].cast(pl.Int64, strict=False)
        counts = [pl.int_range(start, start + len(cells), eager=True) for start in (0, 1)]
        if cells.null_count() == 0 and any((cells == count).all() for count in counts):
            found.append(first)
    return found


def is_blank(cells: pl.Series) -> bool:
    """Whether no cell of a column is filled."""
    if cells.dtype == pl.String:
        return bool((cells.str.strip_chars() == "").all(ignore_nulls=True))
    return cells.null_count() == len(cells)


def refuse_total(table: Table, columns: Sequence[Column], missing: str) -> None:
    """Refuse a last row that is called a total and is the sum, or the mean, of the rows above it.

    Raises:
        ValueError: It would be an example among those that it sums.
    """
    last, names = table.frame.height - 1, [*table.frame.columns]
    called = [
        (name, cell)
        for name, cell in zip(names, table.frame.row(last), strict=True)
        if isinstance(cell, str) and TOTAL.fullmatch(cell.strip())
    ]
    if (
        not called
        or last < 2
        or (missing == "drop" and any(column.values[last] is None for column in columns))
    ):
        return
    for column in columns:
        numbers = column.values.to_numpy() if column.kind == "number" else np.zeros(0)
        total, above = (numbers[last], numbers[:last]) if len(numbers) else (0.0, numbers)
        if total and any(np.isclose(total, of(above), rtol=1e-6) for of in (np.nansum, np.nanmean)):
            raise ValueError(
                f"{table.at(last, called[0][0])}: the row {called[0][1]!r} sums those above it, as its "
                f"{column.name!r}, {total:g}: remove it"
            )


def counting_notes(columns: Sequence[Column]) -> list[str]:
    """What is said of features that count the rows, where others are beside them."""
    counting = []
    for column in columns:
        numbers = column.values.to_numpy() if column.whole and len(columns) > 1 else np.zeros(0)
        if len(numbers) > 2 and (np.diff(numbers) == 1).all():
            counting.append(column.name)
    return [
        f"column {name!r} counts the rows and is a feature: if it is an index, set --ignore {name!r}"
        for name in counting
    ]


def identifier_notes(columns: Sequence[Column]) -> list[str]:
    """What is said of features that may name something: by what they are called, or as no two are alike."""
    found: dict[str, list[str]] = {}
    for column in columns:
        if (how := _names_something(column)) and not any("date" in note for note in column.notes):
            found.setdefault(how, []).append(column.name)
    said = []
    for how, names in found.items():
        first = ",".join(names[:3])
        remedy = f"--ignore {first}" if "texts" in how else f"--data.categories {first}, or --ignore {first}"
        what = "if these are names, as of places, telephones or people, set"
        said.append(f"column {listed(names)}: {how}; {what} {remedy}")
    return said


def _names_something(column: Column) -> str:
    """What in a column may be names, "" where nothing says so."""
    cells = len(column.values)
    if column.kind == "category":
        alone = cells >= MOST_ALIKE and column.values.n_unique() == cells
        return f"{cells} texts, no two alike" if alone else ""
    if column.kind != "number" or not column.whole or column.unit:
        return ""
    if NAMING.search(column.name):
        return "whole numbers"
    numbers = column.values.to_numpy()
    digits = len(str(int(abs(numbers[0])))) if np.isfinite(numbers[0]) else 0
    if cells < MOST_ALIKE or digits < 4 or not 10 ** (digits - 1) <= abs(numbers[-1]) < 10**digits:
        return ""  # of most columns this look is enough
    low, high = numbers.min(), numbers.max()
    alone = 10 ** (digits - 1) <= low and high < 10**digits and len(np.unique(numbers)) == cells
    years, counted = low >= 1800 and high <= 2100, bool((np.diff(numbers) == 1).all())
    return f"numbers of {digits} digits, no two alike" if alone and not (years or counted) else ""


def group_codes(table: Table, name: str) -> Tensor:
    """The group of each row, counted from 0 in the order of their names.

    Raises:
        ValueError: A cell is missing.
    """
    return torch.from_numpy(np.unique(_group_names(table, name).to_numpy(), return_inverse=True)[1])


def held_out_groups(table: Table, test: Table, name: str) -> Tensor:
    """The group of each row of a test part that has a file of its own.

    Raises:
        ValueError: A cell is missing, the file has no such column, or a group lies in both files.
    """
    if name not in test.frame.schema:
        raise ValueError(f"{no_column(test, name)}; which groups it holds must be known")
    ours, theirs = _group_names(table, name), _group_names(test, name)
    both = theirs.is_in(ours.unique().to_list())
    if both.any():
        row = int(both.arg_true()[0])
        raise ValueError(
            f"{test.at(row, name)}: no group may lie in two parts: {theirs[row]!r} is in {table.name} too, "
            f"as are {theirs.filter(both).n_unique()} groups of the test file; remove their rows from one"
        )
    return group_codes(test, name)


def _group_names(table: Table, name: str) -> pl.Series:
    """The name of each row's group; a missing one is refused."""
    cells = table.frame[name].cast(pl.String)
    if not table.typed:
        cells = cells.str.strip_chars()
    cells = cells.set(cells.is_in(["", *table.missing]), None)
    if cells.null_count():
        row = int(cells.is_null().arg_true()[0])
        raise ValueError(f"{table.at(row, name)}: every row needs its group: the cell is empty; fill it in")
    return cells


def sentinel_notes(
    columns: Sequence[Column], records: Sequence[Mapping[str, Any]], inputs: NDArray[Any]
) -> list[str]:
    """What is said of numbers such as 9999 and -999, and dates in 9999, that stand apart from all others."""
    starts = np.cumsum([0, *map(width, records)])[:-1]
    numbers = [k for k, column in enumerate(columns) if column.kind in ("number", "date")]
    at = starts[numbers]
    low, high = inputs.min(0, initial=np.inf)[at], inputs.max(0, initial=-np.inf)[at]
    found = []
    for k in np.flatnonzero(np.isin(low, SENTINELS) | np.isin(high, SENTINELS)):
        column, values = columns[numbers[k]], inputs[:, at[k]]
        for mark in {low[k], high[k]} & {*SENTINELS}:
            rest = values[values != mark]
            if not len(rest) or np.abs(rest - mark).min() <= 2 * (rest.max() - rest.min()):
                continue
            cell = shown(float(mark)) if column.kind == "date" else f"{mark:.0f}"
            found.append(
                f"column {column.name!r}: {cell} ({len(values) - len(rest)} cells) lies far from all other "
                f"cells: if it means a missing value, set --data.missing-values {cell}"
            )
    return found


def matrix_of(
    columns: Sequence[Column], records: Sequence[Mapping[str, Any]], train: NDArray[np.int64]
) -> tuple[NDArray[Any], list[str]]:
    """The features (N, d), and what is said of columns that float32 would collapse.

    Returns:
        float32, or float64 where a column's spread in the training part is too small for float32.
    """

    def _matrix(dtype: type[Any]) -> NDArray[Any]:
        inputs = np.empty((len(columns[0].values), sum(map(width, records))), dtype)
        start = 0
        for column, record in zip(columns, records, strict=True):
            found = features(column, record)
            inputs[:, start : start + width(record)] = found
            start += width(record)
            if record["kind"] in ("number", "date") and dtype is np.float32 and is_wide(found[train, 0]):
                wide.append(column.name)
        return inputs

    wide: list[str] = []
    inputs = _matrix(np.float32)
    if wide:
        del inputs  # both at once would be half as much memory again
        inputs = _matrix(np.float64)
    notes = [
        f"column {name!r} varies little beside its size, less than float32 resolves: it is kept in float64"
        for name in wide
    ]
    return inputs, notes


def notes_of(
    columns: Sequence[Column],
    records: Sequence[Mapping[str, Any]],
    missing: str,
    domain: tuple[float, float] | None,
) -> list[str]:
    """What was assumed of the columns, the target the last of them."""
    notes = [
        f"column {column.name!r} holds numbers and text: read as categories"
        for column in columns
        if column.mixed
    ]
    notes += [
        f"column {column.name!r} holds whole numbers with leading zeros: read as text, which keeps them"
        for column in columns
        if column.zeros
    ]
    notes += [grouped_note(column) for column in columns if column.grouped]
    notes += [note for column in columns for note in column.notes]
    notes += [
        f"column {column.name!r} holds whole numbers of 2^53 and more, which are rounded to a float64"
        for column in columns
        if column.whole and bool((np.abs(column.values.to_numpy()) >= EXACT).any())
    ]
    same = [column.name for column in columns[: len(records)] if _is_constant(column)]
    if same:
        several = (
            f"columns {listed(same)} hold one value each"
            if len(same) > 1
            else f"column {same[0]!r} holds one value"
        )
        notes.append(f"{several}, which tells a model nothing; --ignore {','.join(same[:3])}")
    notes += [
        f"the target {column.name!r} has one value in every row: nothing can be learned of it"
        for column in columns[len(records) :]
        if column.kind == "number" and _is_constant(column)
    ]
    for record in records:
        if record["missing"]:
            cells = f"column {record['name']!r}: {record['missing']} missing cells"
            notes.append(f"{cells} {_filled(record, missing)}")
    if domain is not None and any(any(zero_one(record)) for record in records):
        notes.append(
            "the domain holds for numbers: an audit's attacks move categories and 0/1 features as a whole"
        )
    return notes


def _is_constant(column: Column) -> bool:
    """Whether all cells are one value; where any is missing, that tells something."""
    values = column.values
    if column.kind in ("number", "date"):
        numbers = values.to_numpy()  # an operation of polars costs more than its work on a short column
        return bool(numbers[0] == numbers[-1] and (numbers == numbers[0]).all())
    if values.null_count() or values[0] != values[-1]:
        return False
    return bool((values == values[0]).all())


def _filled(record: Mapping[str, Any], missing: str) -> str:
    """What missing cells of a column get, in words."""
    own = f"a feature of their own, {feature_names([record])[-1]!r}"
    if record["fill"] is None:
        return f"get {own}"
    how = {"indicate": "mean"}.get(missing, missing) if record["kind"] in ("number", "date") else "mode"
    value = f"{record['fill']:g}" if isinstance(record["fill"], float) else repr(record["fill"])
    value = shown(record["fill"]) if record["kind"] == "date" else value
    return f"get the training part's {how}, {value}" + f", and {own}" * bool(record.get("indicator"))


def grouped_note(column: Column) -> str:
    """What is said of numbers whose thousands are divided by a mark."""
    mark = next(c for c in column.grouped if c in ".,")
    what = "points" if mark == "." else "commas"
    return f"column {column.name!r}: the {what} of {column.grouped} divide thousands"


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
        if unit := re.fullmatch(r"[+-]?[\d.,]+ ?([A-Za-z°]{1,6}\d?)", first):
            hint = f"; if they are numbers, write them without {unit[1]!r}"
        if how := ambiguous(first, "--data.date-format").partition(":")[2]:
            hint += f"; if they are dates, write them as 2016-07-01, or say how:{how}"
        counts = {len(str(cell).split()) for cell in (column.name, *categories)}
        if table.frame.width == 1 and len(counts) == 1 and counts != {1}:
            hint += "; if spaces divide the cells, set --data.separator ' '"
        option, what = ("tokens", "whole numbers") if IDS.fullmatch(first) else ("text", "texts")
        raise ValueError(
            f"{table.name}, column {column.name!r}: {len(categories)} different texts in {cells} cells are "
            f"no categories (the first is {first!r}{hint}); set --ignore {column.name!r}, or "
            f"--data.{option} {column.name!r} to read its {what} as tokens; models of the next token read "
            "text:FILE, of translation two columns as pairs:FILE"
        )
    return categories


def record_of(table: Table, column: Column, missing: Missing, train: NDArray[np.int64]) -> dict[str, Any]:
    """What the encoding keeps of a column.

    Raises:
        ValueError: It is text of no categories, or no training row has a value to fill in.
    """
    record: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.kind == "category":
        record["categories"] = categories_of(table, column)
    try:
        record["fill"] = fill_value(column, missing, train)
    except ValueError as error:
        raise ValueError(f"{table.name}, {error}") from None
    if column.kind == "date":
        record["parts"] = varying(column.values.to_numpy()[train])
    record["missing"] = column.values.null_count()
    record |= written_of(column)
    if missing == "indicate" and record["missing"]:
        record["indicator"] = True
    return record


def written_of(column: Column) -> dict[str, Any]:
    """What the encoding keeps of how a column's cells are written, by which new ones are read."""
    own = {"unit": column.unit, "form": column.form, "grouped": bool(column.grouped), "folded": column.folded}
    return {key: value for key, value in own.items() if value}
