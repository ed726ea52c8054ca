"""Sentences with a class at each word: parts of speech, names of people and places, in columns of a file.

A line is a word and its columns, a blank line ends a sentence, as in the shared tasks of CoNLL (Tjong Kim
Sang and De Meulder 2003) and in Universal Dependencies (``.conllu``, de Marneffe et al. 2021).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.assembly import Schema, cut
from margin.data.examples import Data
from margin.data.formats.sequences.rows import Ragged, evaluation_batch, fingerprint_of
from margin.data.formats.sequences.sources import lengths_line
from margin.data.formats.text.sources import text_in
from margin.data.formats.text.texts import SPECIAL, TEXTS, Long
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.formats.text.vocabulary import composed
from margin.data.options import option_groups
from margin.data.splits import Split

Words = Sequence[Sequence[str]]
Tagging = tuple[Words, Words | None]
"""Sentences as words, and the tag of each word."""

SPLIT = Split(test=0.1, val=0.1)


@dataclass(frozen=True, slots=True, eq=False)
class Tagged:
    """Examples of tokens with a class each: inputs ``(tokens, lengths)``, targets (N, T).

    The weight is 1 at the first piece of each word, 0 at further pieces, at special tokens and at padding.

    Args:
        tokens: The tokens of each sentence.
        words: In the same places, the word that a token is the first piece of; -1 at others.
        sentences: The words.
        tags: In the same places, the class of each token's word; None where it is not known.
    """

    tokens: Ragged
    words: Ragged
    sentences: Words
    tags: Ragged | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        """The number of tokens of each sentence."""
        return self.tokens.lengths

    @property
    def targets(self) -> Int[Tensor, "rows time"] | None:
        """All targets, zeros after their ends."""
        return None if self.tags is None else self.tags.padded(torch.arange(len(self)))[0]

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluation_batch(int(self.lengths.max()))

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sentences at ``index``; nothing is drawn."""
        inputs = self.tokens.padded(index)
        if self.tags is None:
            return Batch(inputs)
        first = self.words.padded(index)[0] >= 0
        weight = first & (torch.arange(first.shape[1]) < inputs[1][:, None])
        return Batch(inputs, self.tags.padded(index)[0], weight.float())

    def shown(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Predictions by word: the sentence, the class of each word, the least of their probabilities."""
        found: dict[str, list[Any]] = {"sentence": [], "tags": [], "probability": []}
        for k, sentence in enumerate(self.sentences):
            own = self.words.steps[self.words.offsets[k] : self.words.offsets[k + 1]]
            places = [int(i) for i in (own >= 0).nonzero()[:, 0]]
            found["sentence"].append(" ".join(sentence))
            found["tags"].append(" ".join(columns["class"][k][i] for i in places))
            found["probability"].append(min((columns["probability"][k][i] for i in places), default=1.0))
        return found

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [
            self.tokens.steps,
            self.tokens.offsets,
            *([] if self.tags is None else [self.tags.steps]),
        ]


@option_groups()
def read_tagged(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    word_column: int | None = None,
    tag_column: int | None = None,
    val_file: str | None = None,
    test_file: str | None = None,
    tokens: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = SPLIT,
) -> Data:
    """Sentences in columns, a word a line with its tag, a blank line between sentences (``.gz`` too).

    The vocabulary is that of the training part. Lines that begin with ``# ``, ``-DOCSTART-``, and those of
    ``.conllu`` for contractions and what is left out, are no words.

    Args:
        path: The file, in UTF-8; columns are divided by tabs, else by blanks.
        word_column: The column of the words, from 1; the first, in ``.conllu`` the second.
        tag_column: The column of the tags, from 1; the last, in ``.conllu`` the fourth (universal parts of
            speech).
        val_file: An official validation part, which is kept.
        test_file: An official test part, which is kept.
        tokens: What tokens are; of level ``words`` each word is one.
        long: What becomes of a sentence of more than ``longest`` tokens: an error, or its beginning is kept.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        val: Share of the validation part; likewise.

    Returns:
        Data of tokens with a class each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line lacks a column, a tag of a held-out part is not in training, or there is no word.
    """
    columns = {"word_column": word_column, "tag_column": tag_column}
    read = partial(_sentences, word_column=word_column, tag_column=tag_column)
    x, y = read(Path(path))
    official = {
        part: read(Path(file)) for part, file in (("val", val_file), ("test", test_file)) if file is not None
    }
    data = _data(str(path), (x, y), official, columns, tokens, long, split)
    return replace(data, name=Path(path).name)


@option_groups()
def from_tagged(
    x: Words,
    y: Words,
    *,
    name: str = "sentences",
    tokens: Tokenization = TEXTS,
    long: Long = "error",
    split: Split = SPLIT,
) -> Data:
    """Sentences in memory, as lists of words, with a list of tags each.

    Args:
        x: The words of each sentence.
        y: As many tags.
        name: What messages and records call the data.
        tokens: What tokens are; of level ``words`` each word is one.
        long: What becomes of a sentence of more than ``longest`` tokens: an error, or its beginning is kept.
        split: Test and validation part, seed.

    Returns:
        Data of tokens with a class each.

    Raises:
        ValueError: Words and tags differ in number, or there is none.
    """
    return _data(name, (x, y), {}, {}, tokens, long, split)


def _data(
    name: str,
    given: Tagging,
    official: Mapping[str, Tagging],
    columns: Mapping[str, int | None],
    rule: Tokenization,
    long: Long,
    split: Split,
) -> Data:
    x, y = given
    _check(given, name)
    index, record = cut(name, x, "tags", split, own=dict.fromkeys(official))
    parts: dict[str, Tagging] = {
        part: ([x[i] for i in at], [(y or [])[i] for i in at])
        for part, at in ((part, i.tolist()) for part, i in index.items())
    }
    parts |= official
    tokenizer = _tokenizer(rule, parts["train"][0])
    classes = tuple(sorted(set(chain.from_iterable(parts["train"][1] or []))))
    reading = {**tokenizer.as_json(), "longest": rule.longest, "long": long, **columns}
    splits = {
        part: _tagged(two, classes, tokenizer, reading, f"{name}, {part} part") for part, two in parts.items()
    }
    lengths = torch.cat([held.lengths for held in splits.values()])
    about = [
        ["sentences", f"{tokenizer.called} of {tokenizer.size:,} kinds; {lengths_line(lengths, 'tokens')}"],
        ["classes", f"{len(classes)}: {', '.join(classes[:20])}{', ...' * (len(classes) > 20)}"],
    ]
    schema = Schema(
        format="tagged",
        kind="tagged",
        task="tags",
        shape=(0,),
        dtype=torch.float32,
        classes=classes,
        split=record,
        own={**reading, "about": about},
    )
    spec = {
        "vocab_size": tokenizer.size,
        "longest": int(splits["train"].lengths.max()),
        "num_classes": len(classes),
        "num_examples": len(splits["train"]),
    }
    prints = fingerprint_of(splits)
    return Data(name=name, splits=splits, spec=spec, encoding=schema.as_json(), fingerprint=prints)


def _check(given: Tagging, name: str) -> None:
    """Refuse sentences that have not a tag a word."""
    for k, (words, tags) in enumerate(zip(given[0], given[1] or [], strict=True)):
        if len(words) != len(tags):
            raise ValueError(f"{name}: sentence {k} has {len(words)} words and {len(tags)} tags")


def encode_tagged(source: Any, encoding: Mapping[str, Any]) -> Tagged:
    """New sentences by a run's record: a file of columns or of words alone, lists of words, a pair.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line lacks a column, or a tag is unknown.
    """
    if isinstance(source, str | os.PathLike):
        name, columns = str(source), (encoding.get("word_column"), encoding.get("tag_column"))
        given: Tagging = _sentences(Path(source), word_column=columns[0], tag_column=columns[1], tagged=False)
    else:
        name, given = "sentences", source if isinstance(source, tuple) else (source, None)
    tokenizer, classes = Tokenizer.from_json(encoding), tuple(encoding["classes"])
    return _tagged(given, classes, tokenizer, encoding, name)


def _tokenizer(rule: Tokenization, sentences: Words) -> Tokenizer:
    """The tokenizer of sentences; of level words each word is a token as it stands."""
    if rule.in_pieces or rule.level != "words":
        special = SPECIAL.get("bpe" if rule.tokenizer else rule.level)
        return rule.made([" ".join(words) for words in sentences], special)
    words = (composed(word, rule.case) for word in chain.from_iterable(sentences))
    return Tokenizer.of(words, "words", rule.case, rule.min_count, SPECIAL["words"])


def _tagged(
    given: Tagging, classes: Sequence[str], tokenizer: Tokenizer, reading: Mapping[str, Any], name: str
) -> Tagged:
    """Sentences as tokens; a word's class stands at its first piece."""
    number = {tag: k for k, tag in enumerate(classes)}
    frame = len(tokenizer.framed([])) // 2
    rows, words, tags = [], [], []
    for k, sentence in enumerate(given[0]):
        ids, of = tokenizer.pieces(sentence, f"{name}, sentence {k}")
        if not ids:
            raise ValueError(f"{name}: sentence {k} has no word; leave it out")
        if (most := reading["longest"]) and len(ids) + 2 * frame > most:
            if reading["long"] == "error":
                raise ValueError(
                    f"{name}, sentence {k}: a sentence must have at most longest={most} tokens: got "
                    f"{len(ids) + 2 * frame}; set --data.longest higher, or --data.long cut"
                )
            ids, of = ids[: most - 2 * frame], of[: most - 2 * frame]
        first = [word if i == 0 or of[i - 1] != word else -1 for i, word in enumerate(of)]
        edge = [-1] * frame
        rows.append(torch.tensor(tokenizer.framed(ids)))
        words.append(torch.tensor([*edge, *first, *edge]))
        if given[1] is not None:
            own = given[1][k]
            if unknown := [tag for tag in own if tag not in number]:
                raise ValueError(f"{name}, sentence {k}: tag {unknown[0]!r} is not in the training part")
            tags.append(torch.tensor([number[own[w]] if w >= 0 else 0 for w in words[-1].tolist()]))
    found = Ragged.of(tags) if given[1] is not None else None
    return Tagged(Ragged.of(rows), Ragged.of(words), given[0], found)


def _sentences(
    path: Path, *, word_column: int | None = None, tag_column: int | None = None, tagged: bool = True
) -> Tagging:
    """The words and tags of a file; without ``tagged`` one of a single column has no tags."""
    universal = path.name.lower().removesuffix(".gz").endswith((".conllu", ".conll-u"))
    words: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    alone = not tagged
    for line, content in enumerate(text_in(path).split("\n"), 1):
        cells = content.rstrip("\n").split("\t") if "\t" in content else content.split()
        if not content.strip():
            words, tags = [*words, []] if words[-1] else words, [*tags, []] if words[-1] else tags
            continue
        if content.startswith(("# ", "-DOCSTART-")) or (universal and not cells[0].isdigit()):
            continue
        at = (word_column or (2 if universal else 1)) - 1
        of = (tag_column or (4 if universal else len(cells))) - 1
        alone = alone and len(cells) == 1
        if not max(at, of) < len(cells) or (at == of and not alone):
            tag = "last column" if tag_column is None and not universal else f"column {of + 1}"
            raise ValueError(
                f"{path}, line {line}: a line must have a word in column {at + 1} and its tag in the {tag}: "
                f"got {len(cells)} columns, {content[:40]!r}"
            )
        words[-1].append(cells[at])
        tags[-1].append(cells[of])
    kept = [k for k, sentence in enumerate(words) if sentence]
    if not kept:
        raise ValueError(f"{path}: there must be at least one word: got none")
    return [words[k] for k in kept], None if alone else [tags[k] for k in kept]
