"""The schema of encodings, which loads no reader, has the choices that the readers have."""

from typing import get_args

import pytest

from margin.data.formats import tables, text
from margin.data.formats.tables import columns
from margin.data.formats.text import vocabulary


@pytest.mark.parametrize(
    ("schema", "reader"),
    [
        (tables.MISSING, columns.Missing),
        (text.LEVEL, vocabulary.Level),
        (text.CASE, vocabulary.Case),
    ],
    ids=["missing", "level", "case"],
)
def test_the_choices_are_the_readers(schema: object, reader: object) -> None:
    assert get_args(schema) == get_args(reader) != ()
