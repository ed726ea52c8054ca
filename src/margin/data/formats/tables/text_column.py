"""A table's column of texts, the one feature of its rows, as tokens."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from margin.data.arrays import listed
from margin.data.assembly import Raw, Schema
from margin.data.examples import Data
from margin.data.formats.sequences.files import load_sequences
from margin.data.formats.sequences.rows import Ragged, Sequences
from margin.data.formats.sequences.values import written_tokens
from margin.data.formats.tables.columns import no_column
from margin.data.formats.tables.delimited import Table, load_table, to_table
from margin.data.formats.tables.encoder import targets_known, writing_of
from margin.data.formats.tables.table_parts import MOST_CATEGORIES
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.texts import (
    ARCHIVES,
    Long,
    Reader,
    assemble_texts,
    in_classes,
    numbered_text,
    numbers_alone,
    strings_of,
)
from margin.data.formats.text.tokenizers import Tokenization
from margin.data.source import is_frame
from margin.data.splits import Split

TOKENS = "tokens must be whole numbers from 0 on, several a cell"

SENTENCE = 5
"""From so many words on, in the median, a cell is a sentence rather than a name, however often it recurs."""


def text_column(
    table: Table, used: Sequence[str], text: str | None, tokens: str | None, categories: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """The column that is read as texts or tokens, "" where none is, and what is said of it.

    That is the one that is chosen; else the only feature, where its cells are text of too many different
    values for categories.

    Raises:
        ValueError: There is no such column among the features, or texts and tokens are both chosen.
    """
    if text is not None and tokens is not None:
        raise ValueError(
            f"{table.name}: one column is read as tokens: got --data.text {text}, --data.tokens {tokens}"
        )
    if (chosen := text if tokens is None else tokens) is not None:
        if chosen not in table.frame.columns:
            raise ValueError(no_column(table, chosen))
        if chosen not in used:
            raise ValueError(
                f"{table.name}: what is read as tokens must be a column beside the target: got {chosen!r}, "
                "the target or left out"
            )
        others = [name for name in used if name != chosen]
        what = "texts" if tokens is None else "whole numbers"
        said = f"the {what} of column {chosen!r} are read as tokens"
        return chosen, (said + f"; left out: {listed(others)}" * bool(others),)
    cells = table.frame[used[0]]
    if len(used) != 1 or used[0] in categories or cells.dtype != pl.String:
        return "", ()
    filled = cells.filter((cells.str.strip_chars() != "") & cells.str.contains(r"\pL.*\s.*\pL"))
    words = float(np.median(filled.str.count_matches(r"\S+").to_numpy())) if len(filled) else 0.0
    many = (min if words >= SENTENCE else max)(MOST_CATEGORIES, len(filled) / 2)
    if 2 * len(filled) <= len(cells) or filled.n_unique() <= many:
        return "", ()
    return used[0], (
        f"the texts of column {used[0]!r} are read as tokens; --data.categories {used[0]} takes "
        "each for a category",
    )


def data_of_column(
    raw: Raw[list[str]],
    table: Table,
    rule: Tokenization,
    long: Long,
    split: Split,
    parts: Mapping[str, Tensor],
    held_out: Path | None,
) -> Data:
    """The Data of the texts of a table's column; ``held_out`` is a test part of its own."""
    column, kind = raw.encoding["columns"][0].values()
    rule = numbers_alone(rule, table.name) if kind == "tokens" else rule
    if held_out is not None:
        known = {**raw.encoding, "task": raw.task, "classes": raw.classes, "dtype": "float32"}
        texts, targets, _ = texts_of_table(held_out, {"shape": (), **known})
        if targets is None:
            raise ValueError(
                f"{held_out}: the test part needs the target column, as the training part has it"
            )
        raw = replace(raw, official=(texts, targets), notes=(*raw.notes, f"the test part is {held_out.name}"))
    place = partial(table.at, column=column)
    data = assemble_texts(raw, rule, long, split, parts=parts, place=place)
    return replace(data, name=Path(table.name).name)


def encode_texts(source: Any, encoding: Mapping[str, Any]) -> Sequences:
    """New texts by a run's record: a list, a pair of texts and targets, a DataFrame, a file.

    A file is a table with the run's column of texts, or, ending in ``.txt``, a text a line; a folder holds
    class folders, or ``.txt`` files of a text each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The column is missing, a text has no token or too many, or a class is unknown.
    """
    path = isinstance(source, str | os.PathLike)
    if path and Path(source).is_dir():
        source, path = _of_folder(Path(source), encoding), False
    elif path and Path(source).suffix in ARCHIVES:
        found = load_sequences(Path(source), "error", encoding["task"])
        rows, given = found.test or found.train
        texts = written_tokens(rows, str(source))
        source, path = (texts if given is None else (texts, given)), False
    if "columns" in encoding and (is_frame(source) or (path and not _is_lines(str(source)))):
        texts, targets, place = texts_of_table(source, encoding)
    elif is_frame(source):
        raise ValueError("the run was trained on a list of texts: got a table; give a list")
    else:
        name = str(source) if path else "texts"
        lines = text_in(Path(source)).removesuffix("\n").split("\n") if path else source
        pair = isinstance(lines, tuple) and len(lines) == 2 and not isinstance(lines[0], str)
        x, y = lines if pair else (lines, None)
        texts, place = strings_of(x, name), partial(numbered_text, name)
        targets = Schema.from_json(encoding).targets_if(y, len(texts), name)
    return Sequences(Ragged.of(Reader.of(encoding).rows(texts, place)), targets)


def _of_folder(folder: Path, encoding: Mapping[str, Any]) -> Any:
    """The texts of class folders with their classes, where these are the run's; else of ``.txt`` files."""
    folder = folder / "test" if (folder / "test").is_dir() else folder
    if not any(folder.glob("*/*.txt")):
        return [text_in(file) for file in sorted(folder.glob("*.txt"))]
    texts, names = in_classes(folder)
    known = encoding["task"] == "classes" and set(names) <= set(encoding["classes"])
    return (texts, np.array(names)) if known else texts


def _is_lines(path: str) -> bool:
    """Whether a file is a text a line: a table is none."""
    return path.lower().removesuffix(".gz").endswith(".txt")


def texts_of_table(
    source: Any, encoding: Mapping[str, Any]
) -> tuple[list[str], Tensor | None, Callable[[int], str]]:
    """The texts and targets of a new table, and what messages call a text."""
    if is_frame(source):
        table = to_table(source, "table", ())
    else:
        table = load_table(Path(source), writing=writing_of(encoding))
    column = encoding["columns"][0]["name"]
    if column not in table.frame.columns:
        names = ", ".join(table.frame.columns)
        raise ValueError(f"{table.name}: the column of texts must be {column!r}: it has {names}")
    cells = token_cells if encoding["columns"][0]["kind"] == "tokens" else text_cells
    texts, targets = cells(table, column).fill_null("").to_list(), None
    if "target" in encoding and encoding["target"]["name"] in table.frame.columns:
        known = targets_known(table, encoding)
        targets = known.to(Schema.from_json(encoding).dtype) if encoding["task"] == "values" else known
    return texts, targets, partial(table.at, column=column)


def text_cells(table: Table, name: str) -> pl.Series:
    """The cells of a column as texts; a blank one is missing, and no other.

    Raises:
        ValueError: A cell is a list.
    """
    if table.frame[name].dtype.is_nested():
        raise ValueError(
            f"{table.name}, column {name!r}: texts must be text: got {table.frame[name].dtype}; if these are "
            f"tokens, set --data.tokens {name!r}"
        )
    cells = table.frame[name].cast(pl.String)
    return cells.set(cells.str.strip_chars() == "", None)


def token_cells(table: Table, name: str) -> pl.Series:
    """The whole numbers of each cell with a blank between.

    A cell is a list, or text as ``3 17 5`` or ``[3, 17, 5]``. A cell without a number is missing.

    Raises:
        ValueError: A cell holds anything else, as a number with a fraction or below 0.
    """
    cells = table.frame[name]
    if isinstance(cells.dtype, pl.List | pl.Array) and cells.dtype.inner.is_integer():
        cells = cells.cast(pl.List(pl.Int64)).cast(pl.List(pl.String)).list.join(" ")
    elif not cells.dtype.is_nested():
        cells = cells.cast(pl.String)
    else:
        raise ValueError(f"{table.name}, column {name!r}: {TOKENS}: got cells of {cells.dtype}")
    cells = cells.str.strip_chars(" []()\t").str.replace_all(r"[,;\s]+", " ")
    wrong = (cells != "") & ~cells.str.contains(r"^\d+( \d+)*$")
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise ValueError(
            f"{table.at(row, column=name)}: {TOKENS}: got {cells[row][:60]!r} ({int(wrong.sum())} in all)"
        )
    return cells.set(cells == "", None)
