"""Words in columns with their tags; a tag stands at the first piece of its word alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator

from margin.data.formats.text.tagged import encode_tagged, from_tagged, read_tagged
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.open import encode, open_data

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n\n"
CONLLU = (
    "# sent_id = 1\n1-2\tdon't\t_\t_\t_\n1\tdo\tdo\tAUX\tV\n2\tn't\tnot\tPART\tR\n2.1\tleft\tleft\tVERB\tV\n"
    "3\t#\t#\tSYM\tS\n\n# text\n1\tgo\tgo\tVERB\tV\n"
)


def test_columns_of_both_forms(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL * 10)
    data = open_data(str(tmp_path / "a.conll"), {"min_count": 1, "case": "kept"})
    assert data.encoding["classes"] == ["B-ORG", "B-PER", "O"]
    assert {part: len(held) for part, held in data.splits.items()} == {"train": 16, "val": 2, "test": 2}
    assert {tuple(s) for s in data.splits["train"].sentences} == {("EU", "rejects"), ("Peter",)}
    chunks = open_data(str(tmp_path / "a.conll"), {"min_count": 1, "tag_column": 2})
    assert chunks.encoding["classes"] == ["NNP", "VBZ"]
    (tmp_path / "b.conllu").write_text((CONLLU + "\n") * 10)
    universal = read_tagged(tmp_path / "b.conllu", min_count=1)
    assert {tuple(s) for s in universal.splits["train"].sentences} == {("do", "n't", "#"), ("go",)}
    assert universal.encoding["classes"] == ["AUX", "PART", "SYM", "VERB"]


@pytest.mark.parametrize("level", ["characters", "words", "wordpiece", "bpe"])
def test_the_tag_of_a_word_stands_at_its_first_piece(level: str) -> None:
    sentences, tags = (
        [["unbelievable", "dogs"], ["dogs", "bark", "unbelievably"]] * 10,
        [["A", "N"], ["N", "V", "R"]] * 10,
    )
    rule = Tokenization(level=level, vocab_size=262 if level == "bpe" else 60, min_count=1)
    data = from_tagged(sentences, tags, tokens=rule)
    held = data.splits["train"]
    tokenizer = Tokenizer.from_json(data.encoding)
    (tokens, lengths), targets, weight = held.take(torch.arange(len(held)), Generator())
    names = data.encoding["classes"]
    for k, sentence in enumerate(held.sentences):
        at = weight[k].nonzero()[:, 0].tolist()
        assert len(at) == len(sentence)
        assert [names[i] for i in targets[k, at].tolist()] == tags[sentences.index(sentence)]
        assert weight[k, lengths[k] :].sum() == 0
        row = tokens[k, : lengths[k]].tolist()
        assert row == tokenizer.framed(tokenizer.pieces(sentence)[0])
        ends = [*at[1:], len(row) - (level == "wordpiece")]
        pieces = [tokenizer.decode(row[a:b]).strip() for a, b in zip(at, ends, strict=True)]
        assert pieces == sentence
    if level != "words":
        assert (lengths > weight.sum(1)).any()


def test_new_sentences_have_tags_or_none(tmp_path: Path) -> None:
    data = from_tagged([["a", "b"]] * 10, [["X", "Y"]] * 10, tokens=Tokenization(min_count=1))
    (tmp_path / "new.txt").write_text("b\na\n\nc\n")
    bare = encode(str(tmp_path / "new.txt"), data.encoding)
    assert bare.targets is None
    assert [list(s) for s in bare.sentences] == [["b", "a"], ["c"]]
    (tmp_path / "tags.txt").write_text("b Y\na X\n")
    assert encode_tagged(tmp_path / "tags.txt", data.encoding).targets.tolist() == [[1, 0]]
    shown = bare.shown({"class": [["Y", "X"], ["X", "X"]], "probability": [[0.9, 0.5], [0.7, 0.1]]})
    assert shown == {"sentence": ["b a", "c"], "tags": ["Y X", "X"], "probability": [0.5, 0.7]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "EU B-ORG\nrejects\n",
            "line 2: a line must have a word in column 1 and its tag in the last column: got 1 columns",
        ),
        ("\n\n", "there must be at least one word"),
    ],
)
def test_lines_without_a_tag_are_named(text: str, message: str, tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.conll"
    path.write_text(text)
    with refused(message):
        read_tagged(path)


def test_sentences_that_cannot_be_are_refused(tmp_path: Path, refused: Callable) -> None:
    with refused("sentence 1 has 2 words and 1 tags"):
        from_tagged([["a"], ["a", "b"]], [["X"], ["X"]])
    with refused("sentence 0", "at most longest=1 tokens: got 2", "--data.long cut"):
        from_tagged([["a", "b"]] * 10, [["X", "Y"]] * 10, tokens=Tokenization(longest=1))
    cut = from_tagged([["a", "b"]] * 10, [["X", "Y"]] * 10, tokens=Tokenization(longest=1), long="cut")
    assert cut.spec["longest"] == 1
    rule = Tokenization(level="wordpiece", vocab_size=40, min_count=1, longest=5)
    cut = from_tagged([["a", "b", "c", "d", "e"]] * 10, [["X"] * 5] * 10, tokens=rule, long="cut")
    tokenizer, (tokens, lengths) = (
        Tokenizer.from_json(cut.encoding),
        cut.splits["train"].tokens.padded(torch.arange(1)),
    )
    assert lengths.tolist() == [5] and tokens[0].tolist() == tokenizer.framed(tokens[0, 1:4].tolist())
    path, test = tmp_path / "a.conll", tmp_path / "b.conll"
    path.write_text("a X\n\n" * 10)
    test.write_text("a Z\n")
    with refused("tag 'Z' is not in the training part"):
        read_tagged(path, test_file=str(test))
