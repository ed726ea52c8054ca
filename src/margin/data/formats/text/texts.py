"""Texts with a class or a value each: reviews and their stars, questions and what they ask for."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from margin.data.arrays import Array, known_targets, renamed_in, targets_of
from margin.data.assembly import Raw, Schema, cut, with_groups
from margin.data.examples import Data
from margin.data.formats.sequences.rows import Ragged, Sequences, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line, raw_of_file
from margin.data.formats.sequences.values import written_tokens
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.formats.text.vocabulary import UNKNOWN
from margin.data.options import option_groups
from margin.data.sampling.length_batches import padding_line
from margin.data.splits import Split, TaskName

Long = Literal["error", "cut"]
"""What becomes of a text of more than ``longest`` tokens: it is refused, or its beginning is kept."""

SPECIAL = {"characters": ("<pad>", UNKNOWN), "words": ("<pad>", UNKNOWN), "bpe": ("<pad>",)}
"""The first tokens of a trained vocabulary, by its level; WordPieces have BERT's."""

TEXTS = Tokenization(min_count=2)
UNLABELED = "unsup"

ARCHIVES = (".npz", ".npy")
"""Files of arrays, whose whole numbers are tokens."""


@option_groups()
def from_texts(  # more than 7 parameters: they are the options of the source
    x: Iterable[Any],
    y: Array,
    *,
    name: str = "texts",
    task: TaskName | None = None,
    tokens: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = Split(),
    test_texts: tuple[Iterable[str], Array] | None = None,
) -> Data:
    """Texts in memory with a class or a value each, as tokens.

    The vocabulary is that of the training part and begins with padding and the unknown token. Where it has
    ``[CLS]`` and ``[SEP]``, a text is ``[CLS] ... [SEP]``.

    Args:
        x: The texts, one at least.
        y: Targets (N,).
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        tokens: What tokens are.
        long: What becomes of a text of more than ``longest`` tokens: an error, or its beginning is kept.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        test_texts: Texts and targets of an official test part, which is kept.

    Returns:
        Data of tokens, whose encoding keeps the tokenizer.

    Raises:
        ValueError: Numbers differ, a text has no token or too many, or labels are out of range.
    """
    texts = strings_of(x, name)
    targets, kind, classes = targets_of(y, len(texts), name, task)
    official = None
    if test_texts is not None:
        where = f"{name}, test part"
        held_out = strings_of(test_texts[0], where)
        official = held_out, known_targets(test_texts[1], len(held_out), where, kind, classes)
    raw = Raw(
        name=name,
        inputs=texts,
        targets=targets,
        task=kind,
        classes=tuple(classes),
        official=official,
        notes=renamed_in(y),
    )
    return assemble_texts(raw, tokens, long, split)


@option_groups()
def read_texts(
    path: str | os.PathLike[str],
    *,
    task: TaskName | None = None,
    tokens: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = Split(),
) -> Data:
    """Texts in a folder of class folders, ``pos/1.txt``; or ``train/pos/1.txt`` and ``test/pos/1.txt``.

    A table with a column of texts needs no such folder: it is read as it is. Texts in ``train/unsup`` have no
    class and are left out, which is said. Of an ``.npz`` or ``.npy`` file the whole numbers in x, one
    sequence a row, are tokens (see :func:`~margin.data.formats.sequences.sources.read_sequences`).

    Args:
        path: The folder, its texts ``.txt`` files in UTF-8; or a file of arrays.
        task: Classes, the names of the folders.
        tokens: What tokens are.
        long: What becomes of a text of more than ``longest`` tokens: an error, or its beginning is kept.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.

    Returns:
        Data of tokens, whose encoding keeps the tokenizer.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: It holds no texts in class folders, or as :func:`from_texts`.
    """
    folder = Path(path)
    if folder.suffix in ARCHIVES:
        return _of_arrays(folder, task, tokens, long, split)
    if not folder.is_dir():
        raise ValueError(
            f"{folder}: texts:PATH is a folder of class folders; of a table give the file, and --data.text "
            "COLUMN where it has more than one column of texts"
        )
    parts = {part: folder / part for part in ("train", "test") if (folder / part).is_dir()}
    read = {part: in_classes(place) for part, place in (parts or {"train": folder}).items()}
    x, y = read["train"]
    data = from_texts(
        x,
        np.array(y),
        name=str(folder),
        task=task,
        tokens=tokens,
        long=long,
        split=split,
        test_texts=(read["test"][0], np.array(read["test"][1])) if "test" in read else None,
    )
    left = sum(1 for place in (parts or {"train": folder}).values() for _ in place.glob(f"{UNLABELED}/*.txt"))
    said = (f"{left:,} texts in {UNLABELED} have no class and are left out",) * bool(left)
    return replace(data, name=folder.name, notes=(*data.notes, *said))


def _of_arrays(path: Path, task: TaskName | None, rule: Tokenization, long: Long, split: Split) -> Data:
    """The Data of sequences of whole numbers in a file of arrays, which are tokens."""
    raw, groups = raw_of_file(path, task=task)
    official = raw.official and (written_tokens(raw.official[0], f"{path}, test part"), raw.official[1])
    texts = written_tokens(raw.inputs, str(path))
    notes = (*raw.notes, "the whole numbers are read as tokens")
    named, parts = with_groups(
        Raw(
            name=raw.name,
            inputs=texts,
            targets=raw.targets,
            task=raw.task,
            classes=raw.classes,
            official=official,
            notes=notes,
        ),
        groups,
        split,
    )
    return replace(
        assemble_texts(named, numbers_alone(rule, str(path)), long, split, parts=parts), name=path.name
    )


def numbers_alone(rule: Tokenization, name: str) -> Tokenization:
    """The rule of tokens that are whole numbers already, refused unless it takes each for a token.

    Raises:
        ValueError: It would cut numbers into pieces.
    """
    if rule.level != "words" or rule.tokenizer is not None:
        got = f"tokenizer {rule.tokenizer}" if rule.tokenizer else f"level {rule.level}"
        raise ValueError(f"{name}: whole numbers are tokens as they are, which nothing cuts: got {got}")
    return rule


def in_classes(folder: Path) -> tuple[list[str], list[str]]:
    """The texts of the class folders of a folder, and the name of the folder of each.

    Those in ``unsup`` have no class, as in the reviews of IMDb (Maas et al. 2011), and are left out.

    Raises:
        ValueError: There is none.
    """
    files = sorted(file for file in folder.glob("*/*.txt") if file.parent.name != UNLABELED)
    if not files:
        raise ValueError(f"{folder}: a folder of texts needs class folders with .txt files: it has none")
    return [text_in(file) for file in files], [file.parent.name for file in files]


def strings_of(x: Iterable[Any], name: str) -> list[str]:
    """The texts of a list, an array or a column.

    Raises:
        ValueError: There is none, or one is no text.
    """
    texts = list(x)
    if not texts:
        raise ValueError(f"{name}: there must be at least one text: got none")
    if wrong := [k for k, text in enumerate(texts) if not isinstance(text, str)]:
        raise ValueError(
            f"{name}: every text must be a string: got {type(texts[wrong[0]]).__name__} at index {wrong[0]} "
            f"({len(wrong)} in all)"
        )
    return texts


def assemble_texts(
    raw: Raw[list[str]],
    rule: Tokenization,
    long: Long,
    split: Split,
    *,
    parts: Mapping[str, Tensor] | None = None,
    place: Callable[[int], str] | None = None,
) -> Data:
    """The Data of texts: cut into parts, then into tokens by a tokenizer of the training part.

    Args:
        raw: The texts and their targets.
        rule: How they become tokens.
        long: What becomes of those of too many.
        split: Fractions and seed; with an official test part the validation part alone is cut.
        parts: The indices of the parts, where the source knows them.
        place: What messages call the text of an index.

    Raises:
        ValueError: The labels cannot be cut, a text has no token or too many, or no token is left.
    """
    if parts is None:
        own = {} if raw.official is None else {"test": None}
        parts, _ = cut(raw.name, raw.targets, raw.task, split, raw.classes, own=own)
    train = [raw.inputs[i] for i in parts["train"].tolist()]
    level = "bpe" if rule.tokenizer else rule.level
    tokenizer = rule.made(train, SPECIAL.get(level))
    reader = Reader(tokenizer, rule.longest, long)
    rows = reader.rows(raw.inputs, place or partial(numbered_text, raw.name))
    targets, splits = raw.typed(raw.targets), {}
    for part, index in parts.items():
        groups = None if raw.groups is None else raw.groups[index].unique(return_inverse=True)[1]
        held = Ragged.of([rows[i] for i in index.tolist()])
        splits[part] = Sequences(held, None if targets is None else targets[index], groups=groups)
    if raw.official is not None:
        test = reader.rows(raw.official[0], partial(numbered_text, f"{raw.name}, test part"))
        splits["test"] = Sequences(Ragged.of(test), raw.typed(raw.official[1]))
    schema = Schema(
        format="texts",
        kind="texts",
        task=raw.task,
        shape=(0,),
        dtype=raw.dtype,
        classes=raw.classes,
        split=split.as_json(official=raw.official is not None),
        own={**reader.as_json(), "about": _about(splits, tokenizer), **raw.encoding},
    )
    spec = {
        "vocab_size": tokenizer.size,
        "vocabulary": tokenizer.vocabulary,
        "longest": int(splits["train"].ragged.lengths.max()),
        "num_examples": len(splits["train"]),
    }
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec | ({"num_classes": len(raw.classes)} if raw.classes else {}),
        encoding=schema.as_json(),
        fingerprint=fingerprint_of(splits),
        notes=raw.notes,
    )


class Reader:
    """Texts to rows of tokens, by a tokenizer and the most tokens that a text may have.

    Args:
        tokenizer: Of the training part.
        longest: Tokens of a text at most, special ones included; 0 for any.
        long: What becomes of a longer one.
    """

    def __init__(self, tokenizer: Tokenizer, longest: int, long: Long) -> None:
        self.tokenizer, self.longest, self.long = tokenizer, longest, long

    @classmethod
    def of(cls, encoding: Mapping[str, Any]) -> "Reader":
        """The reader of a run's record."""
        return cls(Tokenizer.from_json(encoding), encoding["longest"], encoding["long"])

    def as_json(self) -> dict[str, Any]:
        """What a run's record keeps of it."""
        return {**self.tokenizer.as_json(), "longest": self.longest, "long": self.long}

    def rows(self, texts: Sequence[str], place: Callable[[int], str]) -> list[Tensor]:
        """The tokens of each text.

        Raises:
            ValueError: A text has no token, or more than there may be.
        """
        found = self.tokenizer.encode(texts)
        if empty := [k for k, ids in enumerate(found) if not ids]:
            raise ValueError(
                f"{place(empty[0])}: a text must have a token: got {texts[empty[0]]!r} ({len(empty)} in "
                "all); remove such texts"
            )
        rows, most = [self.tokenizer.framed(ids) for ids in found], self.longest
        if most and self.long == "cut":
            frame = len(rows[0]) - len(found[0])
            rows = [self.tokenizer.framed(ids[: most - frame]) for ids in found]
        if most and (over := [k for k, row in enumerate(rows) if len(row) > most]):
            raise ValueError(
                f"{place(over[0])}: a text must have at most longest={most} tokens: got "
                f"{len(rows[over[0]]):,} ({len(over)} texts in all); set --data.longest higher, "
                "or --data.long cut, which keeps the beginning"
            )
        return [torch.tensor(row, dtype=torch.int64) for row in rows]


def numbered_text(name: str, k: int) -> str:
    """What a message calls the text of an index."""
    return f"{name}, text {k} (from 0)"


def _about(splits: Mapping[str, Sequences], tokenizer: Tokenizer) -> list[list[str]]:
    lengths = torch.cat([part.ragged.lengths for part in splits.values()])
    text = [["texts", f"{tokenizer.called} of {tokenizer.size:,} kinds; {lengths_line(lengths, 'tokens')}"]]
    if (number := tokenizer.unknown) >= 0:
        shares = [
            f"{part} {(held.ragged.steps == number).double().mean():.1%}" for part, held in splits.items()
        ]
        text.append(["unknown", ", ".join(shares)])
    return [*text, ["padding", padding_line(splits["train"].ragged.lengths)]]
