"""A text as blocks of tokens, each with the token that follows it: what language models learn from.

The text is cut in three, in its own order. A held-out part is read in blocks one behind another, so that each
of its tokens is asked for exactly once; a training block may start anywhere.
"""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.assembly import tokens_schema
from margin.data.examples import Data
from margin.data.files.reading import COMPOSED, text_of
from margin.data.formats.sequences.rows import evaluation_batch, fingerprint_of
from margin.data.formats.text.vocabulary import (
    UNKNOWN,
    Case,
    Level,
    ids_of,
    numbered,
    tokens_of,
    vocabulary_of,
)
from margin.data.formats.text.vocabulary import text_of as joined
from margin.data.options import option_groups
from margin.data.splits import Split

Unknown = Literal["error", "token"]
"""What a token that the training part lacks is: a mistake, or ``<unk>``."""

NOUNS = {"characters": "character", "words": "word"}


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Examples of T tokens and the T that follow them: inputs ``(tokens,)``, targets shifted by one.

    Args:
        ids: The tokens; the first is only read, never asked for.
        time: T, tokens a block.
        start: "fixed": block i begins at i T and a last, shorter one is filled up with weight 0; "drawn": it
            begins up to T - 1 tokens later, uniformly, around the end of the text.

    Raises:
        ValueError: There is no token to ask for, or, with drawn starts, fewer than ``time``.
    """

    ids: Int[Tensor, " tokens"]
    time: int
    start: Literal["fixed", "drawn"] = "fixed"

    def __post_init__(self) -> None:
        least = self.time if self.start == "drawn" else 1
        if self.asked < least:
            raise ValueError(f"blocks need {least + 1} tokens at least: got {len(self.ids)}")

    @property
    def asked(self) -> int:
        """The number of tokens that are asked for."""
        return len(self.ids) - 1

    def __len__(self) -> int:
        return -(-self.asked // self.time)

    @property
    def targets(self) -> Int[Tensor, "blocks time"]:
        """The targets of all blocks in order, the last filled up with zeros."""
        return torch.cat((self.ids[1:], self.ids.new_zeros(-self.asked % self.time))).reshape(-1, self.time)

    @property
    def evaluation_batch(self) -> int:
        """Blocks a batch of an evaluation."""
        return evaluation_batch(self.time)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The blocks at ``index``; where they start is drawn, if it is not fixed."""
        starts = index * self.time
        if self.start == "drawn":
            later = torch.randint(self.time, index.shape, generator=generator)
            starts = (starts + later) % (self.asked - self.time + 1)
        at = starts[:, None] + torch.arange(self.time)
        present = at < self.asked
        at = at.clamp_max(self.asked - 1)
        tokens, targets = self.ids[at], self.ids[at + 1]
        if self.start == "drawn" or self.asked % self.time == 0:
            return Batch((tokens,), targets)
        return Batch((tokens * present,), targets * present, present.float())

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.ids]


@option_groups("split_seed")
def read_text(
    path: str | os.PathLike[str],
    *,
    level: Level = "characters",
    case: Case = "kept",
    time: int = 128,
    min_count: int = 1,
    unknown: Unknown = "error",
    split: Split = Split(test=0.05, val=0.05),
) -> Data:
    r"""A text as blocks of tokens with the token that follows each; the end of the text is held out.

    The vocabulary is that of the training part, the text's beginning; then come the validation and the test
    part. A held-out part reads the last token before it, so each of its own tokens is asked for once.

    Args:
        path: A file of text in UTF-8 (``.gz`` too); line breaks are read as ``\n``.
        level: Tokens are characters, or words and marks.
        case: Whether capitals are kept or made small.
        time: Tokens a block, at least 1.
        min_count: How often a token must be seen in training to be known; above 1 only with unknown tokens.
        unknown: "error" refuses a token that training lacks; "token" reads it as ``<unk>``.
        split: Test and validation part, seed.
        test: Share of the test part, the end of the text, in [0, 1).
        val: Share of the validation part before it.

    Returns:
        Data whose encoding keeps the vocabulary.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The text is not UTF-8, too short for a token in every part, or a held-out token is
            unknown.
    """
    path = Path(path)
    options = {"level": level, "case": case, "time": time, "min_count": min_count, "unknown": unknown}
    return replace(from_text(text_in(path), split, str(path), options), name=path.name)


def from_text(text: str, split: Split, name: str, options: Mapping[str, Any]) -> Data:
    """The Data of a text in memory; the options are those of :func:`read_text`."""
    level, time, unknown = options["level"], options["time"], options["unknown"]
    if time < 1:
        raise ValueError(f"{name}: time must be at least 1: got {time}")
    if options["min_count"] > 1 and unknown == "error":
        raise ValueError(
            f"{name}: min_count above 1 needs --data.unknown token: got min_count={options['min_count']}"
        )
    notes = () if unicodedata.is_normalized("NFC", text) else (COMPOSED,)
    tokens = tokens_of(text, level, options["case"])
    cuts = _cuts(len(tokens), split, time, name)
    special = (UNKNOWN,) if unknown == "token" else ()
    vocabulary = vocabulary_of(tokens[cuts["train"]], min_count=options["min_count"], special=special)
    ids = known_ids(tokens, vocabulary, level, name)
    splits = {
        part: Blocks(ids[max(0, cut.start - 1) : cut.stop], time, "drawn" if part == "train" else "fixed")
        for part, cut in cuts.items()
    }
    return Data(
        name=name,
        splits=splits,
        spec={"vocab_size": len(vocabulary), "time": time, "num_examples": len(splits["train"])},
        encoding=tokens_schema(
            format="text",
            shape=(time,),
            own={
                "level": level,
                "case": options["case"],
                "vocabulary": list(vocabulary),
                "split": split.as_json(official=False),
                "about": _about(splits, vocabulary, level, time),
            },
        ).as_json(),
        fingerprint=fingerprint_of(splits),
        notes=notes,
    )


def encode_text(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Blocks:
    """A new text by a run's record, in blocks one behind another; its first token is read, not asked for.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A token is unknown and the vocabulary has no ``<unk>``, or there are fewer than two
            tokens.
    """
    path = Path(source)
    tokens = tokens_of(text_in(path), encoding["level"], encoding["case"])
    if len(tokens) < 2:
        raise ValueError(f"{path}: a text must have at least two tokens: got {len(tokens)}")
    ids = known_ids(tokens, encoding["vocabulary"], encoding["level"], str(path))
    return Blocks(ids, encoding["shape"][0])


def encode_prompt(text: str, encoding: Mapping[str, Any]) -> Int[Tensor, " tokens"]:
    """The tokens of a prompt by a run's record.

    Raises:
        ValueError: A token is unknown and the vocabulary has no ``<unk>``.
    """
    tokens = tokens_of(text, encoding["level"], encoding["case"])
    return known_ids(tokens, encoding["vocabulary"], encoding["level"], "the prompt")


def decode(ids: Int[Tensor, " tokens"] | Sequence[int], encoding: Mapping[str, Any]) -> str:
    """The text of tokens by a run's record: the inverse of reading it, up to blanks and capitals."""
    vocabulary = encoding["vocabulary"]
    return joined([vocabulary[int(k)] for k in ids], encoding["level"])


def known_ids(tokens: Sequence[str], vocabulary: Sequence[str], level: Level, name: str) -> Tensor:
    """The numbers of tokens.

    Raises:
        ValueError: A token is unknown and the vocabulary has no ``<unk>``; the message says where it stands.
    """
    ids = ids_of(tokens, numbered(vocabulary))
    if len(wrong := (ids < 0).nonzero()[:, 0]):
        first = int(wrong[0])
        kinds = len({tokens[k] for k in wrong.tolist()})
        line = 1 + sum(token == "\n" for token in tokens[:first])
        raise ValueError(
            f"{name}, line {line}: every {NOUNS[level]} must be in the training part: got "
            f"{tokens[first]!r} ({len(wrong)} in all, {kinds} kinds); to read them as {UNKNOWN}, train with "
            "--data.unknown token"
        )
    return ids


def text_in(path: Path) -> str:
    r"""The text of a file, ``.gz`` unpacked, line breaks as ``\n``.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no whole gzip file, or not UTF-8.
    """
    return text_of(path).replace("\r\n", "\n")


def _cuts(count: int, split: Split, time: int, name: str) -> dict[str, slice]:
    """The parts of a text of ``count`` tokens in its own order; a part of share 0 is left out."""
    test, val = round(count * split.test), round(count * split.val)
    ends = {"train": count - val - test, "val": count - test, "test": count}
    if ends["train"] <= time:
        raise ValueError(
            f"{name}: the training part must have more than time={time} tokens: got {ends['train']:,} of "
            f"{count:,}; give a longer text{', or set --data.time lower' if time > 1 else ''}"
        )
    starts = {"train": 0, "val": ends["train"], "test": ends["val"]}
    kept = split.shares()
    if empty := [part for part in kept if ends[part] == starts[part]]:
        raise ValueError(
            f"{name}: every part ({', '.join(kept)}) needs a token: got {count:,} in all, too few for "
            f"{', '.join(f'{part}={float(kept[part]):g}' for part in empty)}; give a longer text, or set "
            f"{' '.join(f'--data.{part} 0' for part in empty)}"
        )
    return {part: slice(starts[part], ends[part]) for part in kept}


def _about(
    splits: Mapping[str, Blocks], vocabulary: Sequence[str], level: Level, time: int
) -> list[list[str]]:
    counts = splits["train"].ids.bincount(minlength=len(vocabulary)).double()
    share = counts / counts.sum()
    sizes = ", ".join(f"{part} {blocks.asked:,}" for part, blocks in splits.items())
    text = [
        ["text", f"{level} of {len(vocabulary):,} kinds: {sizes}"],
        ["blocks", f"{time} tokens; in training they start anywhere"],
        [
            "baseline",
            f"{torch.special.entr(share).sum():.4f} nats a token: the entropy of the training frequencies",
        ],
    ]
    if UNKNOWN in vocabulary:
        number = vocabulary.index(UNKNOWN)
        unknown = [f"{part} {(b.ids[1:] == number).float().mean():.2%}" for part, b in splits.items()]
        text.append(["unknown", ", ".join(unknown)])
    return text
