"""Texts from the folder of sets: sizes as published, and what is said where they are missing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from margin.data.formats.text.pairs import decode
from margin.data.formats.text.sources import decode as decode_text
from margin.data.sets.corpora import multi30k, tiny_shakespeare


def test_tiny_shakespeare_is_a_million_characters_of_65_kinds(shared: Path) -> None:
    data = tiny_shakespeare(time=100)
    assert data.spec["vocab_size"] == 65
    asked = {part: blocks.asked for part, blocks in data.splits.items()}
    assert asked == {"train": 1_115_394 - 2 * 55_770 - 1, "val": 55_770, "test": 55_770}
    whole = torch.cat([data.splits["train"].ids, *(data.splits[part].ids[1:] for part in ("val", "test"))])
    text = (shared / "tinyshakespeare" / "input.txt").read_text()
    assert decode_text(whole, data.encoding) == text


def test_multi30k_has_its_official_parts(shared: Path) -> None:
    data = multi30k()
    assert {part: len(rows) for part, rows in data.splits.items()} == {
        "train": 29_000,
        "val": 1014,
        "test": 1000,
    }
    source, lengths = data.splits["test"].sources.padded(torch.tensor([0]))
    assert decode(source[0], data.encoding, "source_vocabulary") == (
        "ein mann mit einem orangefarbenen hut , der etwas <unk> ."
    )
    assert lengths.item() == 12
    assert (
        decode(data.splits["test"].targets[0], data.encoding)
        == "a man in an orange hat starring at something ."
    )


def test_missing_files_are_named(tmp_path: Path, refused: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    with refused("tinyshakespeare needs", "missing input.txt", str(tmp_path), error=FileNotFoundError):
        tiny_shakespeare()
    with refused("missing train.de, train.fr", error=FileNotFoundError):
        multi30k(target="fr")
    monkeypatch.delenv("MARGIN_DATA")
    with refused("MARGIN_DATA names, which is not set", error=FileNotFoundError):
        multi30k()
    with refused("source and target must be two languages: got de twice"):
        multi30k(target="de")
