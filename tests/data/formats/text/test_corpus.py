"""A corpus: lines are sentences, blank lines and files end documents, cut in its own order."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator

from margin.data.formats.text.corpus import from_corpus, read_corpus, sentences_of
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.open import encode, open_data

TEXT = "a b c\nb a\n\nc c a\n \t\n\na\nb b\n"


def test_lines_are_sentences_and_blank_lines_end_documents() -> None:
    rows, documents = sentences_of([TEXT, "c a\n", "\n"], "lines")
    assert rows == ["a b c", "b a", "c c a", "a", "b b", "c a"]
    assert documents == [0, 0, 1, 2, 2, 3]
    assert sentences_of(["\n\n", "\n \n\na\n\n\n\nb", ""], "lines") == (["a", "b"], [0, 1])


def test_marks_end_sentences_before_a_capital() -> None:
    text = 'He came. "Why?" she\nasked. It was 3.5 p.m. already! (No.) Yes'
    rows, documents = sentences_of([text], "marks")
    assert rows == ["He came.", '"Why?" she asked.', "It was 3.5 p.m. already!", "(No.", "Yes"]
    assert documents == [0] * 5


def test_parts_are_cut_in_order_and_the_vocabulary_is_of_training(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"w{k} w{k + 1}\n" + "\n" * (k % 4 == 3) for k in range(20)))
    data = read_corpus(path, test=0.1, val=0.2)
    tokenizer = Tokenizer.from_json(data.encoding)
    assert {part: len(corpus) for part, corpus in data.splits.items()} == {"train": 14, "val": 4, "test": 2}
    assert data.splits["train"].documents.tolist() == [k // 4 for k in range(14)]
    assert data.splits["test"].documents.tolist() == [4, 4]
    (tokens, lengths), targets, _ = data.splits["val"].take(torch.tensor([0, 1]), Generator())
    assert [tokenizer.decode(row) for row in tokens] == ["w14 <unk>", "<unk> <unk>"]
    assert (lengths.tolist(), targets) == ([2, 2], None)
    assert data.spec == {"vocab_size": 17, "longest": 2, "num_examples": 14}


def test_shares_are_rounded_to_the_nearest_number_of_sentences() -> None:
    data = from_corpus(["\n".join("ab"[k % 2] for k in range(35))], test=0.05, val=0.05)
    assert {part: len(corpus) for part, corpus in data.splits.items()} == {"train": 31, "val": 2, "test": 2}


def test_a_folder_and_a_list_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    texts = [TEXT * 4, "c a\n" * 10]
    (tmp_path / "a.txt").write_text(texts[0])
    (tmp_path / "sub" / "b.txt").write_text(texts[1])
    folder, memory = open_data(f"corpus:{tmp_path}", {}), open_data(texts, {})
    assert folder.fingerprint == memory.fingerprint
    again = encode(str(tmp_path), folder.encoding)
    assert torch.equal(
        again.sentences.steps[: len(folder.splits["train"].sentences.steps)],
        folder.splits["train"].sentences.steps,
    )
    assert again.documents.max() == 9
    assert encode(["a b"], memory.encoding).lengths.tolist() == [2]


def test_pieces_have_the_special_tokens_of_bert() -> None:
    data = from_corpus([TEXT] * 20, tokens=Tokenization(level="wordpiece"))
    assert data.encoding["vocabulary"][:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "every part (train, val, test) needs a sentence: got 0 in all"),
        ("a b\n" * 5, {}, "needs a sentence: got 5 in all, none for val, test"),
        (
            "a b\n" * 50,
            {"min_count": 99},
            "min_count must leave a token: got min_count=99, the most frequent",
        ),
    ],
)
def test_a_corpus_that_cannot_be_is_refused(
    text, options, message, tmp_path: Path, refused: Callable
) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    with refused(message):
        read_corpus(path, **options)


def test_unknown_bytes_are_named_by_file_and_place(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nb\xffd\n")
    with refused("a.txt, line 2", "0xff", "byte 6"):
        read_corpus(path)
