"""A text as blocks of tokens, each with the token that follows it: what language models learn from.

The text is cut in three, in its own order. A held-out part is read in blocks one behind another, so that each
of its tokens is asked for exactly once; a training block may start anywhere.
"""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
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
from margin.data.formats.text.tokenizers import Tokenization, Tokenizer
from margin.data.formats.text.vocabulary import UNKNOWN, tokens_of
from margin.data.options import option_groups
from margin.data.splits import Split

Unknown = Literal["error", "token"]
"""What a token that the training part lacks is: a mistake, or ``<unk>``."""

CHARACTERS = Tokenization(level="characters", case="kept")


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Examples of T tokens and the T that follow them: inputs ``(tokens,)``, targets shifted by one.

    Args:
        ids: The tokens; the first is only read, never asked for.
        time: T, tokens a block.
        start: "fixed": block i begins at i T and a last, shorter one is filled up with weight 0; "drawn": it
            begins up to T - 1 tokens later, uniformly, around the end of the text.
        stride: Of fixed starts, tokens from one block's begin to the next; 0 is T. A block that overlaps the
            one before asks for the tokens behind that one alone, so each is asked for once.

    Raises:
        ValueError: There is no token to ask for, or, with drawn starts, fewer than ``time``; or the stride is
            above ``time``.
    """

    ids: Int[Tensor, " tokens"]
    time: int
    start: Literal["fixed", "drawn"] = "fixed"
    stride: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.stride <= self.time:
            raise ValueError(f"stride must be in 0 .. time={self.time}: got {self.stride}")
        least = self.time if self.start == "drawn" else 1
        if self.asked < least:
            raise ValueError(f"blocks need {least + 1} tokens at least: got {len(self.ids)}")

    @property
    def asked(self) -> int:
        """The number of tokens that are asked for."""
        return len(self.ids) - 1

    @property
    def apart(self) -> int:
        """Tokens from one block's begin to the next."""
        return self.stride if self.stride and self.start == "fixed" else self.time

    def __len__(self) -> int:
        return 1 + max(0, -(-(self.asked - self.time) // self.apart))

    @property
    def targets(self) -> Int[Tensor, "blocks time"]:
        """The targets of all blocks in order, the last filled up with zeros."""
        at = torch.arange(len(self))[:, None] * self.apart + torch.arange(self.time)
        return self.ids[(at + 1).clamp_max(self.asked)] * (at < self.asked)

    @property
    def evaluation_batch(self) -> int:
        """Blocks a batch of an evaluation."""
        return evaluation_batch(self.time)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The blocks at ``index``; where they start is drawn, if it is not fixed."""
        starts = index * self.apart
        if self.start == "drawn":
            later = torch.randint(self.time, index.shape, generator=generator)
            starts = (starts + later) % (self.asked - self.time + 1)
        at = starts[:, None] + torch.arange(self.time)
        present = at < self.asked
        at = at.clamp_max(self.asked - 1)
        tokens, targets = self.ids[at], self.ids[at + 1]
        if self.start == "drawn" or (self.apart == self.time and self.asked % self.time == 0):
            return Batch((tokens,), targets)
        new = torch.arange(self.time) >= torch.where(index > 0, self.time - self.apart, 0)[:, None]
        return Batch((tokens * present,), targets * present, (present & new).float())

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.ids]


@option_groups("split_seed", "longest")
def read_text(
    path: str | os.PathLike[str],
    *,
    tokens: Tokenization = CHARACTERS,
    time: int = 128,
    stride: int = 0,
    unknown: Unknown = "error",
    split: Split = Split(test=0.05, val=0.05),
) -> Data:
    r"""A text as blocks of tokens with the token that follows each; the end of the text is held out.

    The vocabulary is that of the training part, the text's beginning; then come the validation and the test
    part. A held-out part reads the last token before it, so each of its own tokens is asked for once.

    Args:
        path: A file of text in UTF-8 (``.gz`` too); line breaks are read as ``\n``.
        tokens: What tokens are.
        min_count: How often a token must be seen in training to be known; of characters and words
            above 1 only with unknown tokens.
        time: Tokens a block, at least 1.
        stride: Tokens from the begin of one held-out block to the next, at most ``time``; 0 is ``time``. Of
            blocks that overlap (a sliding window) each token is asked for once, behind ``time - stride``
            others at least, but for those of the first block; so perplexity is that of a longer context.
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
    data = from_text(text_in(path), split, str(path), tokens, time, unknown, stride)
    return replace(data, name=path.name)


def from_text(
    text: str,
    split: Split,
    name: str,
    rule: Tokenization,
    time: int = 128,
    unknown: Unknown = "error",
    stride: int = 0,
) -> Data:
    """The Data of a text in memory; the options are those of :func:`read_text`."""
    if time < 1:
        raise ValueError(f"{name}: time must be at least 1: got {time}")
    if not 0 <= stride <= time:
        raise ValueError(f"{name}: stride must be in 0 .. time={time}: got {stride}")
    notes = () if rule.in_pieces or unicodedata.is_normalized("NFC", text) else (COMPOSED,)
    tokenizer, ids, cuts = (_pieces if rule.in_pieces else _tokens)(text, split, name, rule, time, unknown)
    splits = {
        part: Blocks(
            ids[max(0, cut.start - 1) : cut.stop], time, "drawn" if part == "train" else "fixed", stride
        )
        for part, cut in cuts.items()
    }
    return Data(
        name=name,
        splits=splits,
        spec={
            "vocab_size": tokenizer.size,
            "vocabulary": tokenizer.vocabulary,
            "time": time,
            "num_examples": len(splits["train"]),
        },
        encoding=tokens_schema(
            format="text",
            shape=(time,),
            own={
                **tokenizer.as_json(),
                **({"stride": stride} if stride else {}),
                "split": split.as_json(official=False),
                "about": _about(splits, tokenizer, time),
            },
        ).as_json(),
        fingerprint=fingerprint_of(splits),
        notes=notes,
    )


def _tokens(
    text: str, split: Split, name: str, rule: Tokenization, time: int, unknown: Unknown
) -> tuple[Tokenizer, Tensor, dict[str, slice]]:
    """The tokenizer of the beginning of a text, the numbers of all its characters or words, the parts."""
    if rule.min_count > 1 and unknown == "error":
        raise ValueError(
            f"{name}: min_count above 1 needs --data.unknown token: got min_count={rule.min_count}"
        )
    tokens = tokens_of(text, rule.level, rule.case)
    cuts = _cuts(len(tokens), split, time, name)
    special = (UNKNOWN,) if unknown == "token" else ()
    tokenizer = Tokenizer.of(tokens[cuts["train"]], rule.level, rule.case, rule.min_count, special)
    return tokenizer, _whole(tokenizer.numbered(tokens, name)), cuts


def _pieces(
    text: str, split: Split, name: str, rule: Tokenization, time: int, unknown: Unknown
) -> tuple[Tokenizer, Tensor, dict[str, slice]]:
    """As :func:`_tokens`, of pieces of words: parts are cut by characters, before there is a tokenizer."""
    parts = {part: text[cut] for part, cut in _cuts(len(text), split, 0, name).items()}
    tokenizer = rule.made([parts["train"]])
    rows = tokenizer.encode(list(parts.values()))
    ends = [0, *accumulate(map(len, rows))]
    cuts = dict(zip(parts, map(slice, ends, ends[1:]), strict=True))
    _check(cuts, ends[-1], time, name)
    return tokenizer, _whole(list(chain.from_iterable(rows))), cuts


def _whole(ids: Sequence[int]) -> Int[Tensor, " tokens"]:
    return torch.tensor(ids, dtype=torch.int64)


def encode_text(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Blocks:
    """A new text by a run's record, in blocks one behind another; its first token is read, not asked for.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A token is unknown and the vocabulary has no ``<unk>``, or there are fewer than two
            tokens.
    """
    path = Path(source)
    text = text_in(path)
    ids = _whole(Tokenizer.from_json(encoding).encode([text], str(path))[0])
    if len(ids) < 2:
        raise ValueError(f"{path}: a text must have at least two tokens: got {len(ids)}")
    return Blocks(ids, encoding["shape"][0], stride=encoding.get("stride", 0))


def encode_prompt(text: str, encoding: Mapping[str, Any]) -> Int[Tensor, " tokens"]:
    """The tokens of a prompt by a run's record.

    Raises:
        ValueError: A token is unknown and the vocabulary has no ``<unk>``.
    """
    return _whole(Tokenizer.from_json(encoding).encode([text], "the prompt")[0])


def decode(ids: Int[Tensor, " tokens"] | Sequence[int], encoding: Mapping[str, Any]) -> str:
    """The text of tokens by a run's record: the inverse of reading it, up to blanks and capitals."""
    return Tokenizer.from_json(encoding).decode(ids)


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
    starts = {"train": 0, "val": ends["train"], "test": ends["val"]}
    kept = split.shares()
    cuts = {part: slice(starts[part], ends[part]) for part in kept}
    _check(cuts, count, time, name)
    if empty := [part for part in kept if ends[part] == starts[part]]:
        raise ValueError(
            f"{name}: every part ({', '.join(kept)}) needs a token: got {count:,} in all, too few for "
            f"{', '.join(f'{part}={float(kept[part]):g}' for part in empty)}; give a longer text, or set "
            f"{' '.join(f'--data.{part} 0' for part in empty)}"
        )
    return cuts


def _check(cuts: Mapping[str, slice], count: int, time: int, name: str) -> None:
    """Refuse a training part that does not fill a block."""
    if cuts["train"].stop <= time:
        raise ValueError(
            f"{name}: the training part must have more than time={time} tokens: got {cuts['train'].stop:,} "
            f"of {count:,}; give a longer text"
            + ", or set --data.time lower"
            * (min(time, cuts["train"].stop) > 1)
        )


def _about(splits: Mapping[str, Blocks], tokenizer: Tokenizer, time: int) -> list[list[str]]:
    counts = splits["train"].ids.bincount(minlength=tokenizer.size).double()
    share = counts / counts.sum()
    sizes = ", ".join(f"{part} {blocks.asked:,}" for part, blocks in splits.items())
    stride = splits["train"].stride
    apart = f", held out every {stride}, each token asked for once" * bool(stride)
    text = [
        ["text", f"{tokenizer.called} of {tokenizer.size:,} kinds: {sizes}"],
        ["blocks", f"{time} tokens; in training they start anywhere{apart}"],
        [
            "baseline",
            f"{torch.special.entr(share).sum():.4f} nats a token: the entropy of the training frequencies",
        ],
    ]
    if (number := tokenizer.unknown) >= 0:
        unknown = [f"{part} {(b.ids[1:] == number).float().mean():.2%}" for part, b in splits.items()]
        text.append(["unknown", ", ".join(unknown)])
    return text
