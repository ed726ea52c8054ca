"""Names in two Unicode forms, or with blanks around, are one name in every reader, which says so (UAX 15)."""

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from margin.data.formats.arrays.sources import from_arrays
from margin.data.formats.graphs.networkx import tables_of
from margin.data.formats.sequences.sources import from_sequences
from margin.data.formats.tables.tables import read_frame, read_table
from margin.data.formats.text.pairs import from_pairs
from margin.data.formats.text.sources import encode_prompt
from margin.data.open import encode, open_data

ONE, TWO = "caf\u00e9", "cafe\u0301"
"""The same word: its last letter one character, or a letter and an accent."""

NAMES = [(ONE, TWO, "tea")[k % 3] for k in range(60)]
SAID = "Unicode's normal form C"


def images(folder: Path) -> str:
    for part, name in (("train", TWO), ("test", ONE), ("train", "tea"), ("test", "tea")):
        place = folder / "images" / part / name
        place.mkdir(parents=True)
        for k in range(4):
            Image.new("L", (4, 4), 60 * k).save(place / f"{k}.png")
    return str(folder / "images")


def clouds(folder: Path) -> str:
    for part, name in (("train", TWO), ("test", ONE), ("train", "tea"), ("test", "tea")):
        place = folder / "clouds" / part / name
        place.mkdir(parents=True)
        for k in range(4):
            np.save(place / f"{k}.npy", np.random.default_rng(k).normal(size=(5, 3)))
    return f"points:{folder / 'clouds'}"


def sounds(folder: Path) -> str:
    (folder / "sounds").mkdir()
    for k, name in enumerate(NAMES[:24]):
        with wave.open(str(folder / "sounds" / f"{name}_{k}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(64))
    return f"audio:{folder / 'sounds'}"


def table(folder: Path) -> str:
    rows = "\n".join(f"{k},{name}" for k, name in enumerate(NAMES))
    (folder / "t.csv").write_text(f"a,y\n{rows}\n", encoding="utf-8")
    return str(folder / "t.csv")


def parquet(folder: Path) -> str:
    names = [f"{name} " for name in NAMES]
    pl.DataFrame({"a": np.arange(60.0), "y": names}).write_parquet(folder / "t.parquet")
    return str(folder / "t.parquet")


def archive(folder: Path, shape: tuple[int, ...], prefix: str = "") -> str:
    path = folder / f"{prefix or 'a'}.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(60, *shape)), y=np.array(NAMES))
    return f"{prefix}:{path}" if prefix else str(path)


def lines(folder: Path) -> str:
    text = "\n".join(f"{name}\t{k}\t2" for k, name in enumerate(NAMES))
    (folder / "s.tsv").write_text(text, encoding="utf-8")
    return f"sequences:{folder / 's.tsv'}"


def graph(folder: Path) -> str:
    ring = np.stack([np.arange(60), (np.arange(60) + 1) % 60])
    np.savez(folder / "g.npz", x=np.eye(60), edge_index=ring, y=np.array(NAMES))
    return f"graph:{folder / 'g.npz'}"


READ: dict[str, Callable[[Path], str]] = {
    "images": images,
    "clouds": clouds,
    "sounds": sounds,
    "table": table,
    "parquet": parquet,
    "arrays": lambda folder: archive(folder, (3,)),
    "sequences": lambda folder: archive(folder, (4, 2), "sequences"),
    "points": lambda folder: archive(folder, (4, 2), "points"),
    "lines": lines,
    "graph": graph,
}


@pytest.mark.parametrize("form", READ)
def test_classes_in_two_forms_are_one_and_said(form: str, tmp_path: Path) -> None:
    data = open_data(READ[form](tmp_path), {})
    assert tuple(data.encoding["classes"]) == (ONE, "tea")
    assert any(SAID in note for note in data.notes), data.notes


@pytest.mark.parametrize("form", ["table", "arrays", "images", "clouds"])
def test_new_data_in_the_other_form_are_of_the_same_classes(form: str, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    data = open_data(READ[form](tmp_path), {})
    new = encode(READ[form](tmp_path / "new"), data.encoding)
    assert set(new.targets.tolist()) == {0, 1}


def test_objects_in_memory_are_read_as_files_are() -> None:
    x = np.random.default_rng(0).normal(size=(60, 4))
    given: list[Any] = [from_arrays(x, np.array(NAMES)), from_sequences(x, np.array(NAMES))]
    given.append(read_frame(pl.DataFrame({"a": x[:, 0], f"{TWO} ": NAMES}), target=ONE))
    assert given[-1].encoding["target"]["name"] == ONE
    for data in given:
        assert tuple(data.encoding["classes"]) == (ONE, "tea")
        assert any(SAID in note for note in data.notes)
    nodes = networkx.Graph()
    nodes.add_nodes_from((k, {"kind": name}) for k, name in enumerate(NAMES))
    assert set(tables_of(nodes, "g")[0].frame["kind"]) == {ONE, "tea"}
    assert not from_arrays(x, np.array(["a", "b"] * 30)).notes


def test_columns_categories_and_groups_of_a_table(csv, refused) -> None:
    rows = "".join(f"{name},{k % 7},{'xy'[k % 2]}\n" for k, name in enumerate(NAMES))
    path = csv(f"{TWO},b,y\n{rows}")
    data = read_table(path, target="y", missing_values=f"{TWO}", missing="mode")
    assert data.encoding["columns"][0]["name"] == ONE
    assert data.encoding["columns"][0]["categories"] == ["tea"]
    with refused("every part (train, val, test) needs a group of its own: there are 2 groups"):
        read_table(path, target="y", group=TWO)
    with refused("every column must have a name of its own"):
        read_table(csv(f"{TWO},{ONE},y\n1,2,a\n3,4,b\n"), target="y")
    with refused("every column must have a name of its own"):
        read_frame(pl.DataFrame({"a": [1.0], "a ": [2.0], "y": ["b"]}), target="y")


def test_groups_in_two_forms_are_one() -> None:
    names = np.array([f"{(ONE, TWO)[k % 2]}{k // 4}" for k in range(80)])
    counts = from_arrays(np.ones((80, 2)), np.arange(80) % 2, groups=names).encoding["group"]["counts"]
    assert sum(counts.values()) == 20


@pytest.mark.parametrize("form", ["images", "clouds", "sounds"])
def test_two_folders_of_one_name_are_refused(form: str, tmp_path: Path, refused) -> None:
    """Which of the two is meant nobody knows: on another system they would be one folder."""
    source = READ[form](tmp_path)
    if form == "sounds":
        for name in (ONE, TWO):
            (tmp_path / "two" / name).mkdir(parents=True)
            (tmp_path / "two" / name / "a.wav").write_bytes(
                (tmp_path / "sounds" / f"{NAMES[0]}_0.wav").read_bytes()
            )
        source = f"audio:{tmp_path / 'two'}"
    else:
        train = tmp_path / form / "train"
        (train / ONE).mkdir()
        file = next((train / TWO).iterdir())
        (train / ONE / file.name).write_bytes(file.read_bytes())
    with refused("every class must have a name of its own: 'cafe\\u0301' and 'caf\\xe9' are one"):
        open_data(source, {})


def test_classes_named_in_an_archive_must_differ(tmp_path: Path, refused) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((8, 2)), y=np.arange(8) % 2, classes=np.array(["a", "a "]))
    with refused("a.npz: every class must have a name of its own: 'a' and 'a ' are one"):
        open_data(tmp_path / "a.npz", {})


def test_text_is_read_in_one_form(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{ONE} {TWO}\n" * 200, encoding="utf-8")
    for level, kinds in (("characters", 6), ("words", 2)):
        data = open_data(f"text:{tmp_path / 'a.txt'}", {"level": level, "time": 8})
        assert len(data.encoding["vocabulary"]) == kinds  # c a f é, blank, line break; é alone, line break
        assert any(SAID in note for note in data.notes)
        assert torch.equal(encode_prompt(ONE, data.encoding), encode_prompt(TWO, data.encoding))
    pairs = from_pairs([ONE, TWO] * 20, ["tea"] * 40)
    assert pairs.encoding["source_vocabulary"][4:] == [ONE]
    assert any(SAID in note for note in pairs.notes)
