"""A format is added by its row: it is known, opened, read anew, checked and named in messages."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from margin.core.catalog import Format, formats
from margin.data.examples import Arrays, Data
from margin.data.formats.arrays.sources import from_arrays
from margin.data.formats.encodings import ruled, schemas_of
from margin.data.open import encode, open_data
from margin.data.source import Source
from margin.engine.check_options import inputs
from margin.runs.exporting import of_one_shape


def read_bits(path: str, *, val: float = 0.2) -> Data:
    """Lines of 0 and 1, the last of which is the class."""
    rows = torch.tensor([[float(c) for c in line] for line in Path(path).read_text().split()])
    return from_arrays(rows[:, :-1], rows[:, -1].long(), name="bits", val=val)


def encode_bits(source: Any, encoding: dict[str, Any]) -> Arrays:
    return Arrays((torch.tensor([[float(c) for c in line] for line in Path(source).read_text().split()]),))


@pytest.fixture
def bits(monkeypatch) -> Format:
    module = ModuleType("bits_of_a_test")
    module.read, module.encode = read_bits, encode_bits
    monkeypatch.setitem(sys.modules, "bits_of_a_test", module)
    row = Format(
        name="bits",
        reader="bits_of_a_test:read",
        encoder="bits_of_a_test:encode",
        prefix=True,
        endings=(".bits",),
        holds=("*.bits",),
        gives={"bit_size": "strings of bits"},
        record={"word": "words"},
    )
    rows = {**formats(), "bits": row}
    for name in (
        "data.source",
        "data.open",
        "engine.check_options",
        "data.formats.encodings",
        "runs.exporting",
    ):
        monkeypatch.setattr(f"margin.{name}.formats", lambda: rows)
    return row


def test_a_row_is_all_that_a_format_needs(bits: Format, tmp_path: Path) -> None:
    lines = "\n".join(f"{k % 2}{k // 2 % 2}{k % 2}" for k in range(40))
    for name in ("a.bits", "b.txt"):
        (tmp_path / name).write_text(lines)
    assert Source(tmp_path / "a.bits").form == Source(f"bits:{tmp_path / 'b.txt'}").form == "bits"
    assert Source(tmp_path).form == "bits"
    assert Source(tmp_path / "b.txt").form == "table"
    data = open_data(str(tmp_path / "a.bits"), {"val": 0.1})
    assert data.encoding["split"]["val"] == 0.1
    with pytest.raises(ValueError, match="has no option 'nothing'; it has: val"):
        open_data(f"bits:{tmp_path / 'b.txt'}", {"nothing": 1})
    record = json.loads(json.dumps({**data.encoding, "format": "bits"}))
    assert encode(str(tmp_path / "b.txt"), record).take(torch.arange(2), torch.Generator()).inputs[
        0
    ].shape == (2, 3)
    with pytest.raises(ValueError, match="must be read as the run's own were, as bits"):
        encode(f"text:{tmp_path / 'b.txt'}", record)
    assert inputs()["bit_size"] == ("strings of bits", "bits:")
    assert not of_one_shape({"data": {"encoding": record}})
    _, head, own, more = schemas_of(record)
    assert "bits" in str(head["format"])
    assert own == {"word": ruled("words")}
    assert more == {}


def test_every_row_has_what_its_readers_need() -> None:
    for name, row in formats().items():
        assert name == row.name
        assert not row.prefix or (row.reader and row.encoder and row.record is not None)
        assert all(ending.startswith(".") for ending in row.endings)
        for word in (w for schema in (row.record or {}).values() for w in [schema] if isinstance(w, str)):
            assert ruled(word) is not None
    endings = [ending for row in formats().values() for ending in row.endings]
    assert len(set(endings)) == len(endings)
