"""Texts with a class or a value each: in memory, in tables, in folders; read again by the record."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch import Generator

from margin.data.formats.tables.text_column import encode_texts
from margin.data.formats.text.texts import from_texts
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.open import encode, open_data

COLORS, THINGS, MARKS = ["red", "blue", "green", "gray"], ["house", "dog", "tree"], ["!", ".", "?", ";", ":"]
TEXTS = [f"a {c} {t} by the {d}{m}" for c in COLORS for t in THINGS for d in THINGS for m in MARKS]
LABELS = ["warm" if "red" in text else "cold" for text in TEXTS]
ROWS = "".join(f'{k},"{text}",{label}\n' for k, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)))


def shown(data, part: str) -> set[tuple[str, str]]:
    tokenizer, held = Tokenizer.from_json(data.encoding), data.splits[part]
    (tokens, lengths), targets, _ = held.take(torch.arange(len(held)), Generator())
    rows = [row[:n] for row, n in zip(tokens, lengths, strict=True)]
    assert all((row == 0).all() for row in (t[n:] for t, n in zip(tokens, lengths, strict=True)))
    names = data.encoding["classes"]
    return {(tokenizer.decode(row), names[k]) for row, k in zip(rows, targets.tolist(), strict=True)}


def test_a_table_of_texts_and_labels_is_read_as_tokens(csv: Callable) -> None:
    data = open_data(csv(_two()), {})
    assert data.encoding["format"] == "texts"
    sizes = {"vocab_size": 17, "longest": 7, "num_examples": 108, "num_classes": 2}
    assert data.spec == sizes | {"vocabulary": tuple(data.encoding["vocabulary"])}
    assert data.encoding["vocabulary"][:2] == ["<pad>", "<unk>"]
    pairs = {(t[:-1] + " " + t[-1], y) for t, y in zip(TEXTS, LABELS, strict=True)}
    assert set.union(*(shown(data, part) for part in data.splits)) == pairs
    assert any("the texts of column 'text' are read as tokens" in note for note in data.notes)


def test_a_few_sentences_are_texts_and_no_categories(csv: Callable) -> None:
    """Of five words at least, where most differ: as categories each would be a feature of its row alone."""
    few = [f"{text} and so the long day ends" for text in TEXTS[:36]]
    rows = "".join(f'"{t}",{"ab"[k % 2]}\n' for k, t in enumerate(few))
    assert open_data(csv("text,label\n" + rows), {}).encoding["format"] == "texts"
    answers = "".join(f'"{few[k % 4]}",{"ab"[k % 2]}\n' for k in range(36))
    assert open_data(csv("text,label\n" + answers, "b.csv"), {}).encoding["format"] == "table"


def _two() -> str:
    return "text,label\n" + "".join(f'"{t}",{y}\n' for t, y in zip(TEXTS, LABELS, strict=True))


def test_the_column_of_texts_can_be_chosen(csv: Callable, refused: Callable) -> None:
    path = csv("number,text,label\n" + ROWS, "a.csv")
    with refused("column 'text': 180 different texts in 180 cells", "--data.text 'text'"):
        open_data(path, {"target": "label"})
    data = open_data(path, {"target": "label", "text": "text"})
    assert any("left out: 'number'" in note for note in data.notes)
    assert data.encoding["columns"] == [{"name": "text", "kind": "text"}]
    with refused("no column is read as texts", "--data.text"):
        open_data(path, {"target": "label", "ignore": "text", "level": "characters"})
    with refused("'title'"):
        open_data(path, {"target": "label", "text": "title"})


@pytest.mark.parametrize("level", ["characters", "words", "wordpiece", "bpe"])
def test_new_texts_are_read_by_the_record(csv: Callable, level: str, tmp_path: Path) -> None:
    data = open_data(csv(_two()), {"level": level, "vocab_size": 300, "case": "lower"})
    new = csv("label,text,more\ncold,a GRAY dog,1\nwarm,one red dog,2\n", "new.csv")
    found = encode(new, data.encoding)
    tokens, _ = found.take(torch.tensor([0]), Generator()).inputs
    tokenizer = Tokenizer.from_json(data.encoding)
    assert tokens[0].tolist() == tokenizer.framed(tokenizer.encode(["a gray dog"])[0])
    assert (tokens[0, 0] == tokenizer.special.get("[CLS]", -1)) == (level == "wordpiece")
    assert found.targets.tolist() == [0, 1]
    for again in (
        encode(["a gray dog", "one red dog"], data.encoding),
        encode((["a gray dog", "one red dog"], ["cold", "warm"]), data.encoding),
        encode(pd.DataFrame({"text": ["a gray dog", "one red dog"]}), data.encoding),
        encode(pl.DataFrame({"text": ["a gray dog", "one red dog"]}), data.encoding),
    ):
        assert torch.equal(again.ragged.steps, found.ragged.steps)
    (tmp_path / "lines.txt").write_text("a gray dog\none red dog\n")
    assert torch.equal(encode(tmp_path / "lines.txt", data.encoding).ragged.steps, found.ragged.steps)


def test_texts_in_memory_are_those_of_a_table(csv: Callable) -> None:
    table = open_data(csv(_two()), {})
    for given in (
        (TEXTS, LABELS),
        (np.array(TEXTS), np.array(LABELS)),
        (pd.Series(TEXTS), LABELS),
    ):
        assert open_data(given, {}).fingerprint == table.fingerprint
    frame = open_data(pl.DataFrame({"text": TEXTS, "label": LABELS}), {})
    assert frame.fingerprint == table.fingerprint
    stars = open_data((TEXTS, [float(len(text)) for text in TEXTS]), {})
    assert stars.encoding["task"] == "values"
    assert stars.splits["train"].targets.dtype == torch.float32


def test_a_folder_of_class_folders_keeps_its_test_part(tmp_path: Path) -> None:
    for k, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)):
        file = tmp_path / ("test" if k % 7 == 0 else "train") / label / f"{k}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    data = open_data(f"texts:{tmp_path}", {})
    assert data.encoding["split"]["official"]
    assert len(data.splits["test"]) == 26
    assert {pair for pair in shown(data, "test") if pair[1] == "warm"} == {
        (t[:-1] + " " + t[-1], "warm") for t in TEXTS[::7] if "red" in t
    }
    size, notes = len(data.splits["train"]), data.notes
    (tmp_path / "train" / "unsup").mkdir()  # the layout of IMDb
    (tmp_path / "train" / "unsup" / "0_0.txt").write_text("a red dog")
    data = open_data(f"texts:{tmp_path}", {})
    assert data.encoding["classes"] == ["cold", "warm"] and len(data.splits["train"]) == size
    assert set(data.notes) - set(notes) == {"1 texts in unsup have no class and are left out"}


def test_a_test_file_is_kept_and_lends_no_words(csv: Callable) -> None:
    test = csv("text,label\na red zebra,warm\nthe gray dog,cold\n", "test.csv")
    data = open_data(csv(_two()), {"test_file": str(test)})
    assert shown(data, "test") == {("a red <unk>", "warm"), ("the gray dog", "cold")}


def test_longer_texts_are_refused_or_cut(refused: Callable) -> None:
    rule = Tokenization(longest=5)
    with refused("text 0 (from 0)", "at most longest=5 tokens: got 7 (180 texts in all)", "--data.long cut"):
        from_texts(TEXTS, LABELS, tokens=rule)
    data = from_texts(TEXTS, LABELS, tokens=rule, long="cut")
    assert data.spec["longest"] == 5
    assert Tokenizer.from_json(data.encoding).decode(data.splits["train"].ragged.steps[:5]).startswith("a ")
    assert encode_texts(["the red dog by the tree"], data.encoding).lengths.tolist() == [5]
    pieces = Tokenization(level="wordpiece", longest=5, vocab_size=300)
    framed = from_texts(TEXTS, LABELS, tokens=pieces, long="cut")
    ends = framed.splits["train"].ragged.padded(torch.arange(3))[0][:, [0, -1]]
    assert ends.tolist() == [[2, 3]] * 3  # [CLS] and [SEP] are kept


@pytest.mark.parametrize(
    ("texts", "labels", "options", "message"),
    [
        (["a b", ""] * 9, ["x", "y"] * 9, {}, "text 1 (from 0): a text must have a token: got '' (9 in all)"),
        (["a b", 3] * 9, ["x", "y"] * 9, {}, "every text must be a string: got int at index 1 (9 in all)"),
        ([], [], {}, "there must be at least one text"),
        (["a b", "c d"] * 9, ["x"] * 18, {}, "class"),
        (["a b", "c d"] * 9, ["x", "y"], {}, "got 18 inputs, 2 targets"),
        (
            TEXTS,
            LABELS,
            {"tokens": Tokenization(min_count=999)},
            "must leave a token: got min_count=999",
        ),
    ],
)
def test_texts_that_cannot_be_learned_are_refused(texts, labels, options, message, refused: Callable) -> None:
    with refused(message):
        from_texts(texts, labels, **options)


def test_an_empty_cell_of_text_is_named_by_its_row(csv: Callable, refused: Callable) -> None:
    path = csv(_two() + ",warm\n", "a.csv")
    with refused("row 182", "'text'"):
        open_data(path, {})
    assert sum(len(part) for part in open_data(path, {"missing": "drop"}).splits.values()) == 180


def test_sentences_that_recur_are_texts_and_names_are_categories(csv: Callable) -> None:
    sentences = [f"the {c} {t} by the {d}" for c in COLORS for t in THINGS for d in [*THINGS, "road", "barn"]]
    rows = [(text, "ab"[k % 2]) for k, text in enumerate(sentences)] * 5
    recurring = csv("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), "r.csv")
    assert open_data(recurring, {}).encoding["format"] == "texts"
    assert open_data(recurring, {"categories": "text"}).encoding["format"] == "table"
    names = csv("text,label\n" + "".join(f"{text[4:12]},{label}\n" for text, label in rows), "n.csv")
    assert open_data(names, {}).encoding["format"] == "table"


def test_new_folders_have_classes_or_none(tmp_path: Path) -> None:
    data = from_texts(TEXTS, LABELS)
    for label, text in (("warm", "a red dog"), ("cold", "a gray dog")):
        (tmp_path / "new" / label).mkdir(parents=True)
        (tmp_path / "new" / label / "0.txt").write_text(text)
        (tmp_path / f"{label}.txt").write_text(text)
    found, bare = encode_texts(tmp_path / "new", data.encoding), encode_texts(tmp_path, data.encoding)
    assert found.targets.tolist() == [0, 1]
    assert torch.equal(
        found.ragged.steps, encode_texts(["a gray dog", "a red dog"], data.encoding).ragged.steps
    )
    (tmp_path / "new" / "warm").rename(tmp_path / "new" / "hot")
    assert encode_texts(tmp_path / "new", data.encoding).targets is None
    assert bare.targets is None and len(bare) in (1, 2)
