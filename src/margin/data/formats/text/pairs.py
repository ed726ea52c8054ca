"""Pairs of sentences in files: two columns, or two files whose lines belong together."""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from margin.data.assembly import cut, tokens_schema
from margin.data.examples import Data
from margin.data.files.reading import COMPOSED
from margin.data.formats.sequences.rows import Ragged, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.pair_examples import BOS, EOS, PAD, SPECIAL, UNK, Pairs
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.vocabulary import (
    Case,
    Level,
    ids_of,
    numbered,
    text_of,
    tokens_of,
    vocabulary_of,
)
from margin.data.options import option_groups
from margin.data.sampling.length_batches import padding_line
from margin.data.splits import Split

Sentences = tuple[Sequence[str], Sequence[str]]
"""Sources and their targets, equal in number."""


@option_groups()
def read_pairs(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    target_file: str | None = None,
    val_file: str | None = None,
    val_target_file: str | None = None,
    test_file: str | None = None,
    test_target_file: str | None = None,
    level: Level = "words",
    case: Case = "lower",
    min_count: int = 2,
    longest: int = 50,
    split: Split = Split(test=0.1, val=0.1),
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
        level: Tokens are words and marks, or characters.
        case: Whether capitals are made small or kept.
        min_count: How often a token must be seen in training to be known.
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
    rule = Tokenization(level=level, case=case, min_count=min_count, longest=longest)
    return replace(
        from_pairs(*read, name=str(path), rule=rule, split=split, official=official), name=path.name
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenization:
    """How sentences become tokens; see :func:`read_pairs`."""

    level: Level = "words"
    case: Case = "lower"
    min_count: int = 2
    longest: int = 50

    def __post_init__(self) -> None:
        if self.longest < 0:
            raise ValueError(f"longest must be at least 0: got {self.longest}")

    def tokens(self, sentences: Sequence[str]) -> list[list[str]]:
        """The tokens of each sentence."""
        return [tokens_of(sentence.strip(), self.level, self.case) for sentence in sentences]


WORDS = Tokenization()
SPLIT = Split(test=0.1, val=0.1)


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
    texts, record = _parts(rule, (sources, targets), name, split, official)
    texts["train"], left_out = _short(texts["train"], rule.longest, name)
    known = [
        vocabulary_of((token for row in side for token in row), min_count=rule.min_count, special=SPECIAL)
        for side in texts["train"]
    ]
    splits = {part: pairs_of(two, known[0], known[1]) for part, two in texts.items()}
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
            "source_vocab_size": len(known[0]),
            "vocab_size": len(known[1]),
            "longest": int(max(train.sources.lengths.max(), train.asked.max())),
            "num_examples": len(train),
        },
        encoding=encoding_of(known, rule, {"split": record, "about": _about(splits, known)}),
        fingerprint=fingerprint_of(splits),
        notes=tuple(notes),
    )


def encoding_of(
    vocabularies: Sequence[Sequence[str]], rule: Tokenization, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The encoding of pairs of these vocabularies, source and target; ``more`` holds the split."""
    own = {
        "level": rule.level,
        "case": rule.case,
        "source_vocabulary": list(vocabularies[0]),
        "vocabulary": list(vocabularies[1]),
    }
    return tokens_schema(format="pairs", kind="pairs", shape=(0,), own={**own, **more}).as_json()


def pairs_of(
    texts: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]] | None],
    source_vocabulary: Sequence[str],
    vocabulary: Sequence[str],
) -> Pairs:
    """Tokens of sources and targets as examples; without targets, sources alone."""
    end = SPECIAL[EOS]
    sources = _rows([[*row, end] for row in texts[0]], source_vocabulary)
    return Pairs(sources, None if texts[1] is None else _rows(texts[1], vocabulary))


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
    rule = Tokenization(level=encoding["level"], case=encoding["case"])
    lines = _lines(first)
    if second is None and not any("\t" in line for line in lines):
        texts: tuple[Any, Any] = rule.tokens(lines), None
    else:
        texts = _tokens(rule, sentences_in(first, second), str(first))
    return pairs_of(texts, encoding["source_vocabulary"], encoding["vocabulary"])


def decode(ids: Tensor | Sequence[int], encoding: Mapping[str, Any], side: str = "vocabulary") -> str:
    """The sentence of a target's tokens up to ``<eos>``; ``side`` "source_vocabulary" reads a source."""
    kept = []
    for k in (int(k) for k in ids):
        if k == EOS:
            break
        if k not in (PAD, BOS):
            kept.append(encoding[side][k])
    return text_of(kept, encoding["level"])


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
        return lines, answers
    cells = [line.split("\t") for line in lines]
    for row, found in enumerate(cells, 1):
        if len(found) != 2:
            remedy = "; set --data.target-file where the targets are in a file of their own"
            raise ValueError(
                f"{path}, line {row}: a pair must be two columns with a tab between: got {len(found)}"
                + remedy * (len(found) == 1)
            )
    return [source for source, _ in cells], [answer for _, answer in cells]


def _lines(path: Path) -> list[str]:
    lines = text_in(path).split("\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    if not lines:
        raise ValueError(f"{path}: the file is empty: it needs a sentence a line")
    return lines


Tokens = tuple[list[list[str]], list[list[str]]]


def _tokens(rule: Tokenization, two: Sentences, name: str) -> Tokens:
    if len(two[0]) != len(two[1]):
        raise ValueError(
            f"{name}: sources and targets must be equal in number: got {len(two[0])} and {len(two[1])}"
        )
    return rule.tokens(two[0]), rule.tokens(two[1])


def _parts(
    rule: Tokenization, two: Sentences, name: str, split: Split, official: Mapping[str, Sentences]
) -> tuple[dict[str, Tokens], dict[str, Any]]:
    """The tokens of each part, the official ones and those cut from the rest, and the record of the split."""
    whole = _tokens(rule, two, name)
    kept = {part: _tokens(rule, given, f"{name}, {part} part") for part, given in official.items()}
    found, record = cut(name, two[0], "tokens", split, own=dict.fromkeys(kept))
    return {part: _chosen(whole, index.tolist()) for part, index in found.items()} | kept, record


def _chosen(two: Tokens, index: Sequence[int]) -> Tokens:
    return [two[0][i] for i in index], [two[1][i] for i in index]


def _short(two: Tokens, longest: int, name: str) -> tuple[Tokens, int]:
    """The pairs of at most ``longest`` tokens on either side, and how many were left out."""
    count = len(two[0])
    kept = [i for i in range(count) if not longest or max(len(two[0][i]), len(two[1][i])) <= longest]
    if not kept:
        raise ValueError(f"{name}: longest must leave a training pair: got longest={longest}")
    return _chosen(two, kept), count - len(kept)


def _rows(tokens: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> Ragged:
    numbers = numbered(vocabulary)
    return Ragged.of([ids_of(row, numbers) for row in tokens])


def _about(splits: Mapping[str, Pairs], known: Sequence[Sequence[str]]) -> list[list[str]]:
    text = []
    for side, label in enumerate(("source", "target")):
        rows = {part: (pairs.sources, pairs.answers)[side] for part, pairs in splits.items()}
        lengths = torch.cat([row.lengths for row in rows.values() if row is not None])
        unknown = ", ".join(
            f"{part} {(row.steps == UNK).double().mean():.1%}"
            for part, row in rows.items()
            if row is not None
        )
        text.append([label, f"{len(known[side]):,} kinds; {lengths_line(lengths, 'tokens')}"])
        text.append(["  unknown", unknown])
    train = splits["train"]
    text.append(["padding", padding_line(train.lengths, train.sources.lengths, train.asked)])
    return text
