"""The schema of encodings, which loads no reader, has the choices that the readers have."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import margin.data
from margin.core.catalog import formats
from margin.data.formats import audio as audio_rows
from margin.data.formats import encodings
from margin.data.formats import graphs as graph_rows
from margin.data.formats import tables as table_rows
from margin.data.formats import text as text_rows
from margin.data.formats.audio import sources as audio
from margin.data.formats.graphs import node_data
from margin.data.formats.graphs import tables as graph_tables
from margin.data.formats.points import sets
from margin.data.formats.series import table as series
from margin.data.formats.tables import columns, delimited, delimited_form
from margin.data.formats.text import vocabulary
from margin.data.source import prefixes
from margin.data.splits import TargetKind

FORMATS: dict[str, Any] = {name: row.record for name, row in formats().items() if row.record is not None}


@pytest.mark.parametrize(
    ("schema", "reader"),
    [
        (table_rows.MISSING, columns.Missing),
        (text_rows.LEVEL, vocabulary.Level),
        (text_rows.CASE, vocabulary.Case),
        (table_rows.NAMED["kind"], columns.Kind),
        (graph_rows.NAMED["kind"], columns.Kind),
        (FORMATS["table"]["header"], delimited.Header),
        (get_args(FORMATS["table"]["decimal?"])[0], delimited_form.Decimal),
        (FORMATS["series"]["missing"], series.Missing),
        (FORMATS["points"]["scale"], sets.Scale),
        (graph_rows.TABLES["directed"], graph_tables.Directed),
        (FORMATS["graph"]["normalize"], node_data.Normalize),
        (audio_rows.SOUND["features"], audio.Features),
        (audio_rows.SOUND["level"], audio.Level),
    ],
    ids=lambda choices: "-".join(map(str, get_args(choices))),
)
def test_the_choices_are_the_readers(schema: object, reader: object) -> None:
    assert get_args(schema) == get_args(reader) != ()


def written(key: str) -> Iterator[Any]:
    """What the readers write under a key of an encoding, where it stands in their text.

    That is an entry of a dictionary, or an argument of a schema; the rows of the formats are what is tested.
    """
    for path in Path(margin.data.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "__init__.py" else ():
            pairs = [*zip(node.keys, node.values, strict=True)] if isinstance(node, ast.Dict) else []
            found = [value for name, value in pairs if isinstance(name, ast.Constant) and name.value == key]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = node.keywords if node.func.id in ("Schema", "tokens_schema") else []
                found += [word.value for word in given if word.arg == key]
            yield from (value.value for value in found if isinstance(value, ast.Constant))


def test_tasks_are_those_that_readers_write() -> None:
    found = {*written("task"), *get_args(TargetKind), *get_args(sets.SetTask)}
    assert found == set(get_args(encodings.TASK))


def test_types_are_those_that_readers_write_and_torch_has() -> None:
    """A reader writes the type of its tensor, or one of these; float16 and the like are a user's tensors."""
    known = get_args(encodings.DTYPE)
    assert set(written("dtype")) <= set(known)
    assert all(isinstance(getattr(torch, name), torch.dtype) for name in known)
    for dtype in (torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool):
        assert str(dtype).removeprefix("torch.") in known


def test_formats_are_those_that_readers_write() -> None:
    assert {*written("format"), *prefixes()} == set(FORMATS)
