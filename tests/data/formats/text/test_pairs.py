"""Pairs of sentences in files: aligned as they stand, vocabularies of the training part alone."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from margin.data.formats.text.pair_examples import EOS, UNK
from margin.data.formats.text.pairs import decode, encode_pairs, from_pairs, read_pairs
from margin.data.formats.text.tokenizers import SPECIAL, Tokenization
from margin.data.splits import Split

WORDS = ["eins", "zwei", "drei", "vier"]
LINES = [f"{WORDS[i % 4]} {WORDS[i // 4 % 4]}\t{i % 4 + 1} {i // 4 % 4 + 1}" for i in range(40)]


def sentences(data, part: str) -> list[tuple[str, str]]:
    pairs = data.splits[part]
    index = torch.arange(len(pairs))
    sources, answers = pairs.sources.padded(index)[0], pairs.targets
    return [
        (decode(x, data.encoding, "source_vocabulary"), decode(y, data.encoding))
        for x, y in zip(sources, answers, strict=True)
    ]


def test_two_columns_stay_together(csv: Callable) -> None:
    data = read_pairs(csv("\n".join(LINES) + "\n", "a.tsv"))
    found = [pair for part in data.splits for pair in sentences(data, part)]
    assert sorted(found) == sorted(tuple(line.split("\t")) for line in LINES)
    assert {part: len(rows) for part, rows in data.splits.items()} == {"train": 32, "val": 4, "test": 4}
    assert data.spec == {"source_vocab_size": 8, "vocab_size": 8, "longest": 3, "num_examples": 32}
    assert data.encoding["vocabulary"][:4] == list(SPECIAL)


def test_two_files_are_read_line_by_line(csv: Callable, tmp_path: Path, refused: Callable) -> None:
    one = csv("\n".join(LINES) + "\n", "a.tsv")
    sources = csv("\n".join(line.split("\t")[0] for line in LINES) + "\n", "a.de")
    answers = tmp_path / "a.en.gz"
    answers.write_bytes(gzip.compress("\n".join(line.split("\t")[1] for line in LINES).encode()))
    two = read_pairs(sources, target_file=str(answers))
    assert two.fingerprint == read_pairs(one).fingerprint
    short = csv("1\n2\n", "b.en")
    with refused("a.de", "b.en", "equally many lines: got 40 and 2"):
        read_pairs(sources, target_file=str(short))


def test_official_parts_are_kept_and_lend_no_words(csv: Callable) -> None:
    path = csv("\n".join(LINES), "a.tsv")
    val, test = csv("eins zehn\t1 10\n", "val.tsv"), csv("zwei\t2\nelf\t11\n", "test.tsv")
    data = read_pairs(path, val_file=str(val), test_file=str(test))
    assert {part: len(rows) for part, rows in data.splits.items()} == {"train": 40, "val": 1, "test": 2}
    assert "zehn" not in data.encoding["source_vocabulary"]
    assert sentences(data, "val") == [("eins <unk>", "1 <unk>")]
    assert sentences(data, "test") == [("zwei", "2"), ("<unk>", "<unk>")]
    assert data.encoding["split"] == {"test": None, "val": None, "seed": 0, "official": True}
    alone = read_pairs(path, test_file=str(test))
    assert {part: len(rows) for part, rows in alone.splits.items()} == {"train": 36, "val": 4, "test": 2}


def test_a_source_ends_and_an_empty_sentence_is_kept() -> None:
    data = from_pairs(["a", ""] * 10, ["b", "b"] * 10, rule=Tokenization(min_count=1))
    assert set(data.splits["train"].sources.lengths.tolist()) == {1, 2}
    ends = data.splits["train"].sources.offsets[1:] - 1
    assert set(data.splits["train"].sources.steps[ends].tolist()) == {EOS}


def test_rare_words_are_unknown() -> None:
    data = from_pairs(["a b"] * 19 + ["a c"], ["x"] * 20, split=Split(test=0.0, val=0.0))
    assert data.encoding["source_vocabulary"] == [*SPECIAL, "a", "b"]
    assert int((data.splits["train"].sources.steps == UNK).sum()) == 1
    assert "5.0%" not in dict(data.encoding["about"])["target"]


def test_long_training_pairs_are_left_out_and_counted_others_kept() -> None:
    long = "a " * 6
    official = {"val": (["a"], ["x"]), "test": ([long], ["x"])}
    data = from_pairs(
        ["a"] * 8 + [long, "a"],
        ["x"] * 9 + [long],
        rule=Tokenization(longest=5, min_count=1),
        official=official,
    )
    assert len(data.splits["train"]) == 8
    assert data.notes == ("2 training pairs of more than 5 tokens are left out",)
    assert data.splits["test"].sources.lengths.tolist() == [7]
    assert len(from_pairs(["a"] * 9 + [long], ["x"] * 10, rule=Tokenization(longest=0)).splits["train"]) == 8
    assert len(from_pairs(["a"] * 9 + [long], ["x"] * 10, rule=Tokenization(longest=6)).notes) == 0


def test_new_pairs_are_read_by_the_record(csv: Callable) -> None:
    data = read_pairs(csv("\n".join(LINES), "a.tsv"))
    both = encode_pairs(csv("Drei eins\t3 1\n", "b.tsv"), data.encoding)
    assert decode(both.targets[0], data.encoding) == "3 1"
    alone = encode_pairs(csv("drei eins\nsieben\n", "b.txt"), data.encoding)
    assert alone.targets is None
    assert alone.sources.steps.tolist()[-2:] == [UNK, EOS]
    aligned = encode_pairs((csv("drei\n", "b.de"), csv("3\n", "b.en")), data.encoding)
    assert decode(aligned.targets[0], data.encoding) == "3"


def test_a_target_is_decoded_up_to_its_end() -> None:
    record = {"vocabulary": [*SPECIAL, "a", "dog"], "level": "words", "case": "kept"}
    assert decode([1, 4, 5, EOS, 4, 4], record) == "a dog"
    assert decode([4, 0, 0], record) == "a"
    assert decode([EOS], record) == ""


@pytest.mark.parametrize(
    ("text", "options", "texts"),
    [
        ("a\tb\na b\n", {}, ("a.tsv, line 2", "two columns", "got 1", "--data.target-file")),
        ("a\tb\tc\n", {}, ("a.tsv, line 1", "got 3")),
        ("", {}, ("the file is empty",)),
        ("a\tb\n" * 20, {"longest": -1}, ("longest must be at least 0: got -1",)),
        ("a a\tb\n" * 20, {"longest": 1}, ("longest must leave a training pair: got longest=1",)),
        ("a\tb\n" * 20, {"min_count": 50}, ("min_count must leave a token", "seen 16 times")),
        ("a\tb\n" * 20, {"test_target_file": "x"}, ("test_target_file needs test_file beside it",)),
        ("a\tb\n", {}, ("every part (train, val, test) needs an example",)),
        (
            "a\tb\n" * 20 + "a\t \n" * 2,
            {},
            ("a.tsv, line 21: ", "both sides", "its target is empty (2 such pairs)"),
        ),
        ("a\tb\n" * 20 + "\tb\n", {}, ("a.tsv, line 21: ", "both sides", "its source is empty (1 such")),
    ],
    ids=["one", "three", "empty", "negative", "long", "rare", "half", "few", "no target", "no source"],
)
def test_what_is_no_pair_is_refused(
    csv: Callable, text: str, options: dict, texts: tuple, refused: Callable
) -> None:
    with refused(*texts):
        read_pairs(csv(text, "a.tsv"), **options)


def test_the_remedy_of_commas_reads_them(csv: Callable, refused: Callable) -> None:
    pandas = pytest.importorskip("pandas")
    path = csv('source,target\n"a, b",c\n' + "".join(f'"a, b",c{k}\n' for k in range(20)), "a.csv")
    with refused("line 1", "pandas.read_csv(FILE).to_csv(NEW, sep='\\t', index=False, header=False)"):
        read_pairs(path)
    pandas.read_csv(path).to_csv(path.with_name("b.tsv"), sep="\t", index=False, header=False)
    assert sum(map(len, read_pairs(path.with_name("b.tsv"), min_count=1).splits.values())) == 21


def test_of_two_files_a_line_that_one_lacks_is_named(tmp_path: Path, refused: Callable) -> None:
    for name, text in (("a.en", "a\nb\n" * 10), ("a.de", "c\n\n" * 10)):
        (tmp_path / name).write_text(text)
    with refused("a.de, line 2: a pair must have both sides: its target is empty (10 such pairs)"):
        read_pairs(tmp_path / "a.en", target_file=str(tmp_path / "a.de"))


def test_sources_without_targets_are_refused(refused: Callable) -> None:
    with refused("equal in number: got 2 and 1"):
        from_pairs(["a", "b"], ["c"])


@pytest.mark.parametrize("level", ["wordpiece", "bpe"])
def test_pieces_of_words_leave_nothing_unknown(level: str, tmp_path: Path) -> None:
    rule = Tokenization(level=level, vocab_size=300, longest=20)
    sources, targets = (list(side) for side in zip(*(line.split("\t") for line in LINES), strict=True))
    data = from_pairs(sources, targets, rule=rule)
    assert sorted(sentences(data, "train") + sentences(data, "val") + sentences(data, "test")) == sorted(
        zip(sources, targets, strict=True)
    )
    assert data.encoding["source_vocabulary"][:4] == data.encoding["vocabulary"][:4] == list(SPECIAL)
    assert data.spec["vocab_size"] == len(data.encoding["vocabulary"])
    (tmp_path / "new.txt").write_text("eins drei\nzweieins\n")
    new = encode_pairs(tmp_path / "new.txt", data.encoding)
    assert not (new.sources.steps == UNK).any()
    assert (
        decode(new.sources.padded(torch.tensor([1]))[0][0], data.encoding, "source_vocabulary") == "zweieins"
    )
    with pytest.raises(ValueError, match="longest must leave a training pair: got longest=1"):
        from_pairs(
            ["eins zwei"] * 10, ["1 2 3"] * 10, rule=Tokenization(level=level, vocab_size=300, longest=1)
        )
