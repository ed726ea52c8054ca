"""WordPiece and byte pairs by their rules: by hand, and against the package tokenizers."""

import json
import os
import re
from pathlib import Path

import pytest

from margin.data.formats.text.tokenizers import Tokenizer
from margin.text.convolution.subwords import merged, train_wordpiece, wordpiece

TEXT = "the lower tower, the low tower lowers the newest lowest towers; " * 3


def test_the_longest_piece_is_taken_each_time() -> None:
    vocabulary = {"un", "##aff", "##able", "una", "##a", "##ff", "[UNK]"}
    assert wordpiece("unaffable", vocabulary - {"una"}) == ["un", "##aff", "##able"]
    # greedy: with "una" it begins longer, and goes on with what is left
    assert wordpiece("unaffable", vocabulary) == ["una", "##ff", "##able"]
    assert wordpiece("unaffablex", vocabulary) == ["[UNK]"]  # the whole word, not its end
    with pytest.raises(ValueError, match="a word must have a letter"):
        wordpiece("", vocabulary)


def test_the_package_cuts_the_same_pieces() -> None:
    tokenizer = Tokenizer.trained([TEXT], level="wordpiece", vocab_size=45)
    pieces = set(tokenizer.vocabulary)
    for word in {*re.findall(r"\w+", TEXT), "townest", "low", "lowx", "stereotower"}:
        ids = tokenizer.encode([word])[0]
        assert [tokenizer.vocabulary[k] for k in ids] == wordpiece(word, pieces)


def test_the_vocabulary_of_bert_cuts_a_thousand_words_alike() -> None:
    path = Path(os.environ.get("MARGIN_DATA", "")) / "minilm-ref" / "vocab.txt"
    if not path.is_file():
        pytest.skip("needs $MARGIN_DATA/minilm-ref")
    tokenizer = Tokenizer.from_path(path)
    pieces, whole = (
        set(tokenizer.vocabulary),
        [w for w in tokenizer.vocabulary if w.isascii() and w.isalpha()],
    )
    words = [whole[k * 7] + whole[k * 11 + 3] for k in range(1000)]
    for word, ids in zip(words, tokenizer.encode(words), strict=True):
        assert [tokenizer.vocabulary[k] for k in ids] == wordpiece(word, pieces)


def test_pairs_are_joined_by_ratio_not_by_count() -> None:
    # "a b" meet most often, but both are everywhere; "q u" only meet each other
    counts = {"ab": 5, "ac": 10, "bc": 10, "cb": 10, "qu": 3}
    pieces = train_wordpiece(counts, 8)
    assert pieces[:7] == ["##b", "##c", "##u", "a", "b", "c", "q"]
    assert pieces[7] == "qu"  # 3 / (3 * 3), against 5 / (15 * 15) of ab
    assert (
        train_wordpiece({"aaa": 1}, 9) == ["##a", "a", "##aa", "aaa"]
        or train_wordpiece({"aaa": 1}, 9)[-1] == "aaa"
    )
    assert set(train_wordpiece({"ab": 1}, 99)) == {"##b", "a", "ab"}  # nothing is left to join


def test_pairs_are_merged_in_the_order_of_learning() -> None:
    ranks = {("a", "b"): 1, ("b", "c"): 0, ("a", "bc"): 2}
    assert merged("abc", ranks) == ["abc"]
    assert merged("abab", ranks) == ["ab", "ab"]
    assert merged("abcab", {("b", "c"): 0, ("a", "b"): 1}) == ["a", "bc", "ab"]
    assert merged("", ranks) == []


def test_the_package_merges_the_same_pairs() -> None:
    tokenizer = Tokenizer.trained([TEXT], level="bpe", case="kept", vocab_size=285)
    record = json.loads(tokenizer.tokenizer)["model"]["merges"]
    ranks = {(a, b): k for k, (a, b) in enumerate(record)}
    for word in re.findall(r"\w+", TEXT):
        ids = tokenizer.encode([word])[0]
        assert [tokenizer.vocabulary[k] for k in ids] == merged(word, ranks)
