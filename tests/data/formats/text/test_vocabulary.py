"""Tokens by a stated rule, and a vocabulary whose order is the frequency in training."""

import pytest

from margin.data.formats.text.vocabulary import text_of, tokens_of, vocabulary_of, written


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A man's T-shirt, blue.", ["A", "man's", "T-shirt", ",", "blue", "."]),
        ("Ein Mädchen-- 'so'!", ["Ein", "Mädchen", "-", "-", "'", "so", "'", "!"]),
        ("it’s 3 1/2\nnew  line", ["it’s", "3", "1", "/", "2", "\n", "new", "line"]),
        ("", []),
    ],
)
def test_a_word_is_letters_and_digits_a_mark_is_itself(text: str, tokens: list[str]) -> None:
    assert tokens_of(text, "words", "kept") == tokens
    assert tokens_of(text, "words", "lower") == [token.lower() for token in tokens]


def test_characters_are_kept_as_they_are() -> None:
    assert tokens_of("A \n", "characters", "kept") == ["A", " ", "\n"]
    assert text_of(["A", " ", "\n"], "characters") == "A \n"
    assert text_of(["a", "dog", ".", "\n", "two"], "words") == "a dog .\ntwo"


def test_small_letters_keep_their_spelling() -> None:
    assert tokens_of("STRA\u00dfE \u00c9", "words", "lower") == ["stra\u00dfe", "\u00e9"]  # not folded to ss


def test_the_most_frequent_come_first_and_ties_by_letter() -> None:
    tokens = list("ccabbcd")
    assert vocabulary_of(tokens) == ("c", "b", "a", "d")
    assert vocabulary_of(tokens, min_count=2, special=("<unk>",)) == ("<unk>", "c", "b")
    assert vocabulary_of([*tokens, "<unk>", "<unk>"], min_count=2, special=("<unk>",)).count("<unk>") == 1


def test_a_vocabulary_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="min_count=4, the most frequent of 4 kinds is seen 3 times"):
        vocabulary_of("ccabbcd", min_count=4)
    with pytest.raises(ValueError, match="min_count must be at least 1: got 0"):
        vocabulary_of("ab", min_count=0)


@pytest.mark.parametrize(
    ("vocabulary", "ids", "text"),
    [
        (("<pad>", "<unk>", "dog", "the"), [3, 2, 1, 0, 0], "the dog <unk>"),
        (("<pad>", "<unk>", "a", " ", "b"), [2, 3, 4, 1, 0], "a b<unk>"),
        (("[PAD]", "[CLS]", "un", "##able", "dog"), [1, 2, 3, 4, 0], "[CLS] unable dog"),
        (("the", "\u0120dog", "s", "\u010a"), [0, 1, 2, 3, 0], "the dogs\nthe"),
        (("a", "b"), [0, 1, 7], "ab"),  # a number that is no token is left out
    ],
)
def test_tokens_are_written_as_a_person_reads_them(vocabulary, ids, text) -> None:
    assert written(ids, vocabulary) == text
