"""Tokenizers: texts as numbered tokens, which are characters, words, or pieces of words.

WordPiece (Schuster & Nakajima 2012) and byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al.
2019) are those of the package ``tokenizers``, trained on the user's text or read from the files of a model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from margin.data.formats.text.subwords import BERT, core_of, described, opened, trained_core
from margin.data.formats.text.vocabulary import (
    UNKNOWN,
    WORD,
    Case,
    Level,
    composed,
    numbered,
    tokens_of,
    vocabulary_of,
)
from margin.data.formats.text.vocabulary import text_of as joined

SPECIAL = ("<pad>", "<bos>", "<eos>", UNKNOWN)
"""The tokens of padding, of a beginning, of an end, and of what is unknown."""

SILENT = {*SPECIAL[:3], "[PAD]", "[CLS]", "[SEP]", "<|endoftext|>"}
"""Special tokens that stand for no text."""

NOUNS = {"characters": "character", "words": "word"}

CHARACTER = re.compile(".", re.DOTALL)

MOST_WORDS = 8000
"""Tokens of a trained subword vocabulary, unless one says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Tokenization:
    """How a training part's texts become tokens: the options that the formats of texts share.

    Args:
        level: What a token is: a character, a word or mark, a WordPiece, or a piece of bytes (``bpe``).
        case: Whether capitals are kept or made small.
        min_count: How often a token must be seen in training to be known, a pair of pieces to be merged.
        vocab_size: Of WordPieces and byte pairs, tokens at most.
        tokenizer: File or folder of a tokenizer to take instead, with its own level: ``tokenizer.json``,
            ``vocab.txt``, or ``vocab.json`` with ``merges.txt``.
        longest: Tokens of a text at most; 0 for any.
    """

    level: Level = "words"
    case: Case = "lower"
    min_count: int = 1
    vocab_size: int = MOST_WORDS
    tokenizer: str | None = None
    longest: int = 0

    def __post_init__(self) -> None:
        if self.longest < 0:
            raise ValueError(f"longest must be at least 0: got {self.longest}")

    @property
    def in_pieces(self) -> bool:
        """Whether tokens are pieces of words."""
        return self.tokenizer is not None or self.level in ("wordpiece", "bpe")

    def made(self, texts: Sequence[str], special: Sequence[str] | None = None) -> "Tokenizer":
        """The tokenizer of a training part, or the one that is given.

        Raises:
            FileNotFoundError: There is no such tokenizer.
            ValueError: As :meth:`Tokenizer.trained` and :meth:`Tokenizer.from_path`.
        """
        if self.tokenizer is not None:
            return Tokenizer.from_path(self.tokenizer)
        return Tokenizer.trained(
            texts,
            level=self.level,
            case=self.case,
            vocab_size=self.vocab_size,
            min_count=self.min_count,
            special=special,
        )


@dataclass(frozen=True)
class Tokenizer:
    """Texts to numbers and back.

    Args:
        level: What a token is.
        case: Whether capitals are made small.
        vocabulary: The tokens in the order of their numbers.
        tokenizer: Of pieces of words, the JSON text of the package ``tokenizers``; else "".

    Raises:
        ValueError: The level is of pieces of words without their JSON text, or is not and has one.
    """

    level: Level
    case: Case
    vocabulary: tuple[str, ...]
    tokenizer: str = ""

    def __post_init__(self) -> None:
        if (self.level in ("wordpiece", "bpe")) != bool(self.tokenizer):
            raise ValueError(f"level {self.level} does not fit tokenizer={self.tokenizer[:20]!r}")

    @classmethod
    def trained(
        cls,
        texts: Sequence[str],
        *,
        level: Level = "words",
        case: Case = "lower",
        vocab_size: int = MOST_WORDS,
        min_count: int = 1,
        special: Sequence[str] | None = None,
    ) -> "Tokenizer":
        """The tokenizer of a training part.

        Args:
            texts: The training part.
            level: What a token is: a character, a word or mark, a WordPiece, or a piece of bytes (``bpe``).
            case: Whether capitals are made small.
            vocab_size: Of pieces of words, how many at most, special ones included; else without effect.
            min_count: How often a character or word must be seen to be known, or a pair to be merged.
            special: Tokens that come first; None for BERT's of WordPieces and none of the other levels.

        Raises:
            ValueError: No token is left, the vocabulary is too small for its alphabet, or the package
                ``tokenizers`` is not installed.
        """
        if special is None:
            special = BERT if level == "wordpiece" else ()
        if level in ("characters", "words"):
            tokens = chain.from_iterable(tokens_of(text, level, case) for text in texts)
            return cls.of(tokens, level, case, min_count, special)
        core = trained_core(
            texts, level=level, case=case, vocab_size=vocab_size, min_count=min_count, special=special
        )
        return cls.of_core(core)

    @classmethod
    def of(
        cls, tokens: Iterable[str], level: Level, case: Case, min_count: int = 1, special: Sequence[str] = ()
    ) -> "Tokenizer":
        """The tokenizer of the characters or words of a training part.

        Raises:
            ValueError: No token is left.
        """
        return cls(level, case, vocabulary_of(tokens, min_count=min_count, special=special))

    @classmethod
    def of_core(cls, core: Any) -> "Tokenizer":
        """The tokenizer of an object of the package ``tokenizers``.

        Raises:
            ValueError: It is neither of WordPieces nor of byte pairs.
        """
        return cls(*described(core))

    @classmethod
    def from_path(cls, path: str | Path) -> "Tokenizer":
        """The tokenizer of a file or folder.

        That is a ``tokenizer.json``, a ``vocab.txt`` of WordPieces, a ``vocab.json`` with its ``merges.txt``
        beside it, or a folder with one of these. A ``vocab.txt`` without a capital makes capitals small. Of a
        run it is that of its data.

        Raises:
            FileNotFoundError: There is nothing, or its second file is missing.
            ValueError: It is no tokenizer.
        """
        if (record := Path(path) / "run.yaml").is_file():
            encoding = yaml.safe_load(record.read_text("utf-8"))["data"]["encoding"]
            if "vocabulary" not in encoding and "tokenizer" not in encoding:
                raise ValueError(f"{path}: the run must be of texts: its data are {encoding['format']}")
            return cls.from_json(encoding)
        with opened(Path(path)) as core:
            return cls.of_core(core)

    @cached_property
    def core(self) -> Any:
        """The object of the package ``tokenizers``; of pieces of words only."""
        return core_of(self.tokenizer)

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each token."""
        return numbered(self.vocabulary)

    @property
    def called(self) -> str:
        """What its tokens are, in words."""
        return {"wordpiece": "WordPieces", "bpe": "byte pairs"}.get(self.level, self.level)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary)

    @cached_property
    def special(self) -> Mapping[str, int]:
        """The numbers of the special tokens: those that no text is cut into."""
        if not self.tokenizer:
            return {token: self.numbers[token] for token in SPECIAL if token in self.numbers}
        added = self.core.get_added_tokens_decoder()
        named = {token.content: number for number, token in sorted(added.items()) if token.special}
        return named | {token: self.numbers[token] for token in BERT if token in self.numbers}

    @cached_property
    def unknown(self) -> int:
        """The number of what is unknown; -1 where nothing is."""
        return next((self.special[token] for token in (UNKNOWN, "[UNK]") if token in self.special), -1)

    def encode(self, texts: Sequence[str], name: str = "the text") -> list[list[int]]:
        """The numbers of each text's tokens, no special ones added.

        Raises:
            ValueError: A token is unknown and the vocabulary has none for such; the message says where.
        """
        if self.tokenizer:
            return [found.ids for found in self.core.encode_batch_fast(list(texts), add_special_tokens=False)]
        rows = []
        for k, text in enumerate(texts):
            called = name if len(texts) == 1 else f"{name}, text {k}"
            rows.append(self.numbered(tokens_of(text, self.level, self.case), called))
        return rows

    def numbered(self, tokens: Sequence[str], name: str) -> list[int]:
        """The numbers of characters or words.

        Raises:
            ValueError: As :meth:`encode`.
        """
        ids = [self.numbers.get(token, self.unknown) for token in tokens]
        if self.unknown < 0 and -1 in ids:
            first = ids.index(-1)
            kinds = len({token for token, k in zip(tokens, ids, strict=True) if k < 0})
            line = 1 + sum(token == "\n" for token in tokens[:first])
            raise ValueError(
                f"{name}, line {line}: every {NOUNS[self.level]} must be in the training part: got "
                f"{tokens[first]!r} ({ids.count(-1)} in all, {kinds} kinds); to read them as {UNKNOWN}, "
                "train with --data.unknown token"
            )
        return ids

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The numbers of a text's tokens, and from which character to which each stands in the text.

        Of characters and words the text must be in Unicode's form C.
        """
        if self.tokenizer:
            found = self.core.encode(text, add_special_tokens=False)
            return found.ids, [_trimmed(text, first, last) for first, last in found.offsets]
        pattern = WORD if self.level == "words" else CHARACTER
        found = list(pattern.finditer(text))
        ids = self.numbered([composed(match[0], self.case) for match in found], "the text")
        return ids, [match.span() for match in found]

    def pieces(self, words: Sequence[str], name: str = "the sentence") -> tuple[list[int], list[int]]:
        """The numbers of the tokens of words that are cut already, and the word of each token.

        At level ``words`` a word is a token. A word of which no token is left is read as the unknown one; of
        characters, the blank between two words is of the first.
        """
        if self.level == "words":
            ready = [composed(word, self.case) for word in words]
            return self.numbered(ready, name), list(range(len(words)))
        text = composed(" ".join(words), "kept")
        ends = torch.tensor([len(composed(word, "kept")) + 1 for word in words]).cumsum(0)
        ids, places = self.spans(text)
        of = [int(torch.searchsorted(ends, max(last - 1, 0), right=True)) for _, last in places]
        for word in sorted(set(range(len(words))) - set(of)):
            at = sum(k < word for k in of)
            ids.insert(at, max(self.unknown, 0))
            of.insert(at, word)
        return ids, of

    def framed(self, ids: Sequence[int]) -> list[int]:
        """``[CLS] ids [SEP]`` where the vocabulary has them, as BERT reads a text; else the numbers alone."""
        if "[CLS]" not in self.special or "[SEP]" not in self.special:
            return list(ids)
        return [self.special["[CLS]"], *ids, self.special["[SEP]"]]

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """The text of tokens, without padding, beginning and end: the inverse of :meth:`encode`.

        Up to capitals and, of words and WordPieces, blanks.
        """
        silent = {number for token, number in self.special.items() if token in SILENT}
        kept = [k for k in (int(k) for k in ids) if k not in silent]
        if self.tokenizer:
            text: str = self.core.decode(kept, skip_special_tokens=False)
            return text
        return joined((self.vocabulary[k] for k in kept), self.level)

    def as_json(self) -> dict[str, Any]:
        """What a run's record keeps of it."""
        own = {"tokenizer": self.tokenizer} if self.tokenizer else {}
        return {"level": self.level, "case": self.case, "vocabulary": list(self.vocabulary), **own}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Tokenizer":
        """The tokenizer of a run's record."""
        text = record.get("tokenizer", "")
        return _kept(record["level"], record["case"], tuple(record["vocabulary"]), text)


def _trimmed(text: str, first: int, last: int) -> tuple[int, int]:
    """A place without the blanks that a piece of bytes begins with."""
    blanks = len(text[first:last]) - len(text[first:last].lstrip())
    return min(first + blanks, max(first, last - 1)), last


@lru_cache(maxsize=8)
def _kept(level: Level, case: Case, vocabulary: tuple[str, ...], text: str) -> Tokenizer:
    """The same object for the same record: what it has worked out serves every text."""
    return Tokenizer(level, case, vocabulary, text)
