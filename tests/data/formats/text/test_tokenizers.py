"""Tokenizers against the reference encodings of GPT-2 and BERT, and trained on a text of known counts."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from margin.data.formats.text.tokenizers import BERT, SPECIAL, Tokenizer

TEXTS = ["the low tower", "the lower tower lowers", "The newest lowest  low, low tower!\n"] * 4

DECODED = {
    "words": "The newest lowest low , low tower !\n",
    "wordpiece": "The newest lowest low, low tower!",
}
"""What is left of the third text where blanks are not tokens."""


def _folder(name: str) -> Path:
    folder = Path(os.environ.get("MARGIN_DATA", "")) / name
    if not folder.is_dir():
        pytest.skip(f"needs $MARGIN_DATA/{name}")
    return folder


def test_the_byte_pairs_of_gpt2_are_the_published_ones() -> None:
    folder = _folder("gpt2-bpe")
    tokenizer = Tokenizer.from_path(folder)
    assert (tokenizer.level, tokenizer.case, tokenizer.size) == ("bpe", "kept", 50257)
    assert tokenizer.special == {"<|endoftext|>": 50256}
    for case in json.loads((folder / "reference_ids.json").read_text()):
        assert tokenizer.encode([case["text"]]) == [case["ids"]]
        assert tokenizer.decode(case["ids"]) == case["text"]
    assert tokenizer.decode([50256, 15496, 995, 50256]) == "Hello world"


def test_the_pieces_of_bert_are_the_published_ones() -> None:
    folder = _folder("minilm-ref")
    tokenizer = Tokenizer.from_path(folder / "vocab.txt")
    assert (tokenizer.level, tokenizer.case, tokenizer.size) == ("wordpiece", "lower", 30522)
    assert tokenizer.special == {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    held = np.load(folder / "minilm_ref.npz")
    rows = tokenizer.encode([str(text) for text in held["sentences"]])
    for row, ids, mask in zip(rows, held["input_ids"], held["attention_mask"], strict=True):
        assert tokenizer.framed(row) == ids[mask == 1].tolist()
    assert tokenizer.decode(tokenizer.framed(rows[2])) == "the stock market fell sharply on monday."


@pytest.mark.parametrize("level", ["characters", "words", "wordpiece", "bpe"])
def test_a_trained_tokenizer_is_kept_whole_in_a_record(level: str) -> None:
    tokenizer = Tokenizer.trained(TEXTS, level=level, case="kept", vocab_size=300, min_count=2)
    again = Tokenizer.from_json(json.loads(json.dumps(tokenizer.as_json())))
    assert again == tokenizer
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert Tokenizer.trained(TEXTS, level=level, case="kept", vocab_size=300, min_count=2) == tokenizer
    assert len(tokenizer.vocabulary) == tokenizer.size == len(set(tokenizer.vocabulary))
    text = tokenizer.decode(tokenizer.encode([TEXTS[2]])[0])
    assert text == DECODED.get(level, TEXTS[2])


def test_special_tokens_come_first_and_no_text_is_cut_into_them() -> None:
    words = Tokenizer.trained(TEXTS, level="words", special=SPECIAL)
    assert words.special == {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3}
    assert words.encode(["low <pad> high"])[0][1] == words.unknown == 3
    assert Tokenizer.trained(["b a b"], special=()).encode(["a b"]) == [[1, 0]]
    pieces = Tokenizer.trained(TEXTS, level="wordpiece", vocab_size=40)
    assert list(pieces.special.items()) == [(token, k) for k, token in enumerate(BERT)]
    assert pieces.encode(["ж"]) == [[pieces.unknown]]
    byte_pairs = Tokenizer.trained(TEXTS, level="bpe", vocab_size=270, special=("<pad>",))
    assert byte_pairs.special == {"<pad>": 0}
    assert byte_pairs.decode([0, *byte_pairs.encode(["Ж日"])[0], 0]) == "ж日"


def test_byte_pairs_reach_any_text_from_a_small_alphabet() -> None:
    tokenizer = Tokenizer.trained(["a"], level="bpe", case="kept", vocab_size=256)
    assert tokenizer.size == 256
    text = "naïve 日本語 🤖\t\n"
    assert len(tokenizer.encode([text])[0]) == len(text.encode())
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@pytest.mark.parametrize("level", ["characters", "words", "wordpiece", "bpe"])
def test_spans_are_where_the_tokens_stand(level: str) -> None:
    tokenizer = Tokenizer.trained(TEXTS, level=level, case="lower", vocab_size=300, special=None)
    text = "The tower, low!" if level in ("characters", "words") else "The İ tower, low!"
    ids, places = tokenizer.spans(text)
    assert ids == tokenizer.encode([text])[0]
    assert len(ids) == len(places)
    cut = [text[a:b].strip() for a, b in places]
    assert "".join(cut) == text.replace(" ", "") if level != "bpe" else text.endswith(cut[-1])


@pytest.mark.parametrize("level", ["characters", "words", "wordpiece", "bpe"])
def test_every_word_keeps_a_piece(level: str) -> None:
    tokenizer = Tokenizer.trained(
        [*TEXTS, "don't \x01"],
        level=level,
        vocab_size=290,
        special=("[UNK]",) if level == "wordpiece" else (),
    )
    words = ["the", "low", "tower", "the"] if level == "words" else ["the", "\x01", "don't", "towers"]
    ids, of = tokenizer.pieces(words)
    assert len(ids) == len(of)
    assert sorted(set(of)) == [0, 1, 2, 3] and of == sorted(of)
    if level == "words":
        assert of == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "words", "min_count": 99}, "min_count must leave a token: got min_count=99"),
        ({"level": "bpe", "min_count": 0}, "min_count must be at least 1: got 0"),
        ({"level": "bpe", "vocab_size": 255}, "vocab_size must hold the 256 bytes and the 0 special tokens"),
        ({"level": "wordpiece", "vocab_size": 9}, "must hold the letters and the 5 special tokens"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.trained(TEXTS, **options)


def test_an_unknown_token_is_named_by_its_text_and_line() -> None:
    tokenizer = Tokenizer.trained(["ab\nc"], level="characters")
    with pytest.raises(ValueError, match="reviews, text 1, line 2: every character must be in the training"):
        tokenizer.encode(["ab", "a\nxbx"], "reviews")


def test_what_is_no_tokenizer_is_refused_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a folder of a tokenizer needs one of: tokenizer[.]json; vocab[.]txt"
    ):
        Tokenizer.from_path(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer[.]json: no tokenizer could be read: "):
        Tokenizer.from_path(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"vocab.txt: no tokenizer could be read: .* must have \[UNK\]"):
        Tokenizer.from_path(tmp_path / "vocab.txt")
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(FileNotFoundError, match=r"no such file of a tokenizer: .*merges[.]txt"):
        Tokenizer.from_path(tmp_path / "vocab.json")
