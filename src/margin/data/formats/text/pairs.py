"""Pairs of sentences in files: two columns, or two files whose lines belong together."""

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from margin.data.assembly import cut, tokens_schema
from margin.data.examples import Data
from margin.data.files.reading import COMPOSED
from margin.data.formats.sequences.rows import Ragged, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.pair_examples import EOS, UNK, Pairs
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.tokenizers import SPECIAL, Tokenization, Tokenizer
from margin.data.formats.text.vocabulary import tokens_of
from margin.data.options import option_groups
from margin.data.sampling.length_batches import padding_line
from margin.data.splits import Split

Sentences = tuple[Sequence[str], Sequence[str]]
"""Sources and their targets, equal in number."""


WORDS = Tokenization(min_count=2, longest=50)
SPLIT = Split(test=0.1, val=0.1)


@option_groups()
def read_pairs(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    target_file: str | None = None,
    val_file: str | None = None,
    val_target_file: str | None = None,
    test_file: str | None = None,
    test_target_file: str | None = None,
    tokens: Tokenization = WORDS,
    split: Split = SPLIT,
) -> Data:
    """Pairs of sentences: a file of two columns with a tab between, or two files whose lines belong together.

    The vocabularies are those of the training part and start with ``<pad>``, ``<bos>``, ``<eos>``, ``<unk>``;
    an unknown token of any part is ``<unk>``. A source is given with ``<eos>`` at its end, so none is empty.

    Args:
        path: The sources, or sources and targets (``.gz`` too), in UTF-8.
        target_file: The targets, a line for each line of ``path``.
        val_file: Likewise of an official validation part, which is kept.
        val_target_file: Its targets.
        test_file: Likewise of an official test part, which is kept.
        test_target_file: Its targets.
        tokens: What tokens are.
        longest: Tokens of a training sentence at most, source and target; longer pairs are left out and
            counted. 0 keeps all. Held-out parts are kept whole.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        val: Share of the validation part; likewise.

    Returns:
        Data whose encoding keeps both vocabularies.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has not two columns, two files differ in their number of lines, or no pair is left.
    """
    path = Path(path)
    official = {}
    for part, source, target in (
        ("val", val_file, val_target_file),
        ("test", test_file, test_target_file),
    ):
        if target is not None and source is None:
            raise ValueError(f"{part}_target_file needs {part}_file beside it: got {target}")
        if source is not None:
            official[part] = sentences_in(Path(source), None if target is None else Path(target))
    read = sentences_in(path, None if target_file is None else Path(target_file))
    return replace(
        from_pairs(*read, name=str(path), rule=tokens, split=split, official=official), name=path.name
    )


def from_pairs(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    name: str = "pairs",
    rule: Tokenization = WORDS,
    split: Split = SPLIT,
    official: Mapping[str, Sentences] | None = None,
) -> Data:
    """Pairs of sentences in memory.

    Args:
        sources: One sentence each.
        targets: As many.
        name: What messages and records call the data.
        rule: How sentences become tokens.
        split: Fractions and seed; an official part is not cut.
        official: Sentences of the official parts, "val" and "test".

    Returns:
        Data whose encoding keeps both vocabularies.

    Raises:
        ValueError: Sources and targets differ in number, or no pair is left.
    """
    official = official or {}
    texts, record = _parts((sources, targets), name, split, official)
    sides = [rule.made(side, SPECIAL) for side in texts["train"]] if rule.in_pieces else []
    texts["train"], left_out = _short(texts["train"], rule, sides, name)
    sides = sides or [rule.made(side, SPECIAL) for side in texts["train"]]
    if any(side.vocabulary[: len(SPECIAL)] != SPECIAL for side in sides):
        raise ValueError(
            f"{name}: a tokenizer of pairs must begin with {' '.join(SPECIAL)}: {rule.tokenizer}"
        )
    splits = {part: pairs_of(two, sides[0], sides[1]) for part, two in texts.items()}
    notes = [f"{left_out:,} training pairs of more than {rule.longest} tokens are left out"] * (left_out > 0)
    given = (
        sentence for two in ((sources, targets), *official.values()) for side in two for sentence in side
    )
    notes += [COMPOSED] * any(not unicodedata.is_normalized("NFC", sentence) for sentence in given)
    train = splits["train"]
    return Data(
        name=name,
        splits=splits,
        spec={
            "source_vocab_size": sides[0].size,
            "vocab_size": sides[1].size,
            "longest": int(max(train.sources.lengths.max(), train.asked.max())),
            "num_examples": len(train),
        },
        encoding=encoding_of(sides, {"split": record, "about": _about(splits, sides)}),
        fingerprint=fingerprint_of(splits),
        notes=tuple(notes),
    )


def encoding_of(sides: Sequence[Tokenizer], more: Mapping[str, Any]) -> dict[str, Any]:
    """The encoding of pairs by these tokenizers, of source and target; ``more`` holds the split."""
    source = {f"source_{key}": value for key, value in sides[0].as_json().items() if key in SIDED}
    own = {**source, **sides[1].as_json()}
    return tokens_schema(format="pairs", kind="pairs", shape=(0,), own={**own, **more}).as_json()


SIDED = ("vocabulary", "tokenizer")
"""What a record has of each side."""


def tokenizer_of(encoding: Mapping[str, Any], side: str = "") -> Tokenizer:
    """The tokenizer of a run's targets, or of its sources with the side ``source_``."""
    own = {key: encoding[side + key] for key in SIDED if side + key in encoding}
    return Tokenizer.from_json({"level": encoding["level"], "case": encoding["case"], **own})


def pairs_of(
    texts: tuple[Sequence[str], Sequence[str] | None], source: Tokenizer, target: Tokenizer
) -> Pairs:
    """Tokens of sources and targets as examples; without targets, sources alone."""
    sources = [[*row, EOS] for row in source.encode([text.strip() for text in texts[0]])]
    if texts[1] is None:
        return Pairs(_rows(sources))
    return Pairs(_rows(sources), _rows(target.encode([text.strip() for text in texts[1]])))


def encode_pairs(source: Any, encoding: Mapping[str, Any]) -> Pairs:
    """New pairs by a run's record: a file of one or two columns, two files ``(sources, targets)``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has more columns, or two files differ in their number of lines.
    """
    if isinstance(source, tuple | list):
        first, second = (Path(part) for part in source)
    else:
        first, second = Path(source), None
    lines = _lines(first)
    if second is None and not any("\t" in line for line in lines):
        texts: tuple[Any, Any] = lines, None
    else:
        texts = sentences_in(first, second)
    return pairs_of(texts, tokenizer_of(encoding, "source_"), tokenizer_of(encoding))


def decode(ids: Tensor | Sequence[int], encoding: Mapping[str, Any], side: str = "vocabulary") -> str:
    """The sentence of a target's tokens up to ``<eos>``; ``side`` "source_vocabulary" reads a source."""
    numbers = [int(k) for k in ids]
    end = numbers.index(EOS) if EOS in numbers else len(numbers)
    return tokenizer_of(encoding, side.removesuffix("vocabulary")).decode(numbers[:end])


def sentences_in(path: Path, target: Path | None) -> Sentences:
    """The sentences of a file of two columns, or of two files line by line.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has not two columns, or the files differ in their number of lines.
    """
    lines = _lines(path)
    if target is not None:
        answers = _lines(target)
        if len(lines) != len(answers):
            raise ValueError(
                f"{path} and {target} must have equally many lines: got {len(lines):,} and {len(answers):,}"
            )
        return _both(lines, answers, f"{path} and {target}")
    cells = [line.split("\t") for line in lines]
    for row, found in enumerate(cells, 1):
        if len(found) != 2:
            remedy = "; set --data.target-file where the targets are in a file of their own"
            if ".csv" in path.suffixes:
                remedy = (
                    "; write it so: pandas.read_csv(FILE).to_csv(NEW, sep='\\t', index=False, header=False)"
                )
            raise ValueError(
                f"{path}, line {row}: a pair must be two columns with a tab between: got {len(found)}"
                + remedy * (len(found) == 1)
            )
    return _both([source for source, _ in cells], [answer for _, answer in cells], str(path))


def _both(sources: list[str], targets: list[str], name: str) -> Sentences:
    """The sentences of a file, no pair of which may lack a side."""
    empty = [[not sentence.strip() for sentence in side] for side in (sources, targets)]
    if alone := [k for k, (one, other) in enumerate(zip(*empty, strict=True)) if one != other]:
        raise ValueError(
            f"{name}, line {alone[0] + 1}: a pair must have both sides: its "
            f"{'source' if empty[0][alone[0]] else 'target'} is empty ({len(alone):,} such pairs); fill it "
            "in, or leave the line out"
        )
    return sources, targets


def _lines(path: Path) -> list[str]:
    lines = text_in(path).split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    if not lines:
        raise ValueError(f"{path}: the file is empty: it needs a sentence a line")
    return lines


def _equal(two: Sentences, name: str) -> Sentences:
    if len(two[0]) != len(two[1]):
        raise ValueError(
            f"{name}: sources and targets must be equal in number: got {len(two[0])} and {len(two[1])}"
        )
    return two


def _parts(
    two: Sentences, name: str, split: Split, official: Mapping[str, Sentences]
) -> tuple[dict[str, Sentences], dict[str, Any]]:
    """The sentences of each part, the official ones and those cut from the rest; the record of the split."""
    whole = _equal(two, name)
    kept = {part: _equal(given, f"{name}, {part} part") for part, given in official.items()}
    found, record = cut(name, two[0], "tokens", split, own=dict.fromkeys(kept))
    return {part: _chosen(whole, index.tolist()) for part, index in found.items()} | kept, record


def _chosen(two: Sentences, index: Sequence[int]) -> Sentences:
    return [two[0][i] for i in index], [two[1][i] for i in index]


def _short(
    two: Sentences, rule: Tokenization, sides: Sequence[Tokenizer], name: str
) -> tuple[Sentences, int]:
    """The pairs of at most ``longest`` tokens on either side, and how many were left out.

    Characters and words are counted before there is a vocabulary, which is that of the pairs that are kept.
    """
    if not rule.longest:
        return two, 0
    sizes = [
        [len(row) for row in (sides[k].encode(side) if sides else _cut(side, rule))]
        for k, side in enumerate(two)
    ]
    kept = [i for i, lengths in enumerate(zip(*sizes, strict=True)) if max(lengths) <= rule.longest]
    if not kept:
        raise ValueError(f"{name}: longest must leave a training pair: got longest={rule.longest}")
    return _chosen(two, kept), len(two[0]) - len(kept)


def _cut(side: Sequence[str], rule: Tokenization) -> Iterator[list[str]]:
    return (tokens_of(sentence.strip(), rule.level, rule.case) for sentence in side)


def _rows(ids: Sequence[Sequence[int]]) -> Ragged:
    return Ragged.of([torch.tensor(row, dtype=torch.int64) for row in ids])


def _about(splits: Mapping[str, Pairs], sides: Sequence[Tokenizer]) -> list[list[str]]:
    text = []
    for side, label in enumerate(("source", "target")):
        rows = {part: (pairs.sources, pairs.answers)[side] for part, pairs in splits.items()}
        lengths = torch.cat([row.lengths for row in rows.values() if row is not None])
        unknown = ", ".join(
            f"{part} {(row.steps == UNK).double().mean():.1%}"
            for part, row in rows.items()
            if row is not None
        )
        text.append([label, f"{sides[side].size:,} kinds; {lengths_line(lengths, 'tokens')}"])
        text.append(["  unknown", unknown])
    train = splits["train"]
    text.append(["padding", padding_line(train.lengths, train.sources.lengths, train.asked)])
    return text
