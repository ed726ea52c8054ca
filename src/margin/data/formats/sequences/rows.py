"""Sequences of several lengths held as one tensor of steps, padded only when a batch is taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int, Shaped
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import EVALUATION_BATCH, Arrays, fingerprint, offsets_of, ranges
from margin.data.splits import coded

EVALUATION_STEPS = 2**17
"""Steps a batch of an evaluation, at most: of long sequences it holds fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of several lengths: row i is ``steps[offsets[i] : offsets[i + 1]]``.

    Args:
        steps: The steps of all rows, one row after the other.
        offsets: Where each row starts, and where the last ends; from 0, never falling.

    Raises:
        ValueError: The offsets do not cut the steps into rows.
    """

    steps: Shaped[Tensor, " total *step"]
    offsets: Int[Tensor, " rows_and_end"]

    def __post_init__(self) -> None:
        at = self.offsets
        whole = len(at) > 0 and int(at[0]) == 0 and int(at[-1]) == len(self.steps)
        if not whole or bool((at.diff() < 0).any()):
            raise ValueError(f"offsets must rise from 0 to the number of steps, {len(self.steps)}")

    @classmethod
    def of(cls, rows: Sequence[Tensor]) -> "Ragged":
        """Rows (T_i, ...), one at least."""
        return cls(torch.cat(list(rows)), offsets_of(torch.tensor([len(row) for row in rows])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        """The number of steps of each row."""
        return self.offsets.diff()

    def padded(
        self, index: Int[Tensor, " batch"]
    ) -> tuple[Shaped[Tensor, "batch time *step"], Int[Tensor, " batch"]]:
        """The rows at ``index``, zeros after their ends up to the longest of them, and their lengths."""
        starts, lengths = self.offsets[index], self.lengths[index]
        time = int(lengths.max()) if len(index) else 0
        at = torch.arange(time)
        present = at < lengths[:, None]
        # A padded place reads step 0, which is then blotted out
        where = torch.where(present, starts[:, None] + at, 0).flatten()
        taken = self.steps.index_select(0, where).reshape(len(index), time, *self.steps.shape[1:])
        taken[~present] = 0
        return taken, lengths

    def rows(self, index: Int[Tensor, " batch"]) -> "Ragged":
        """The rows at ``index`` alone."""
        lengths = self.lengths[index]
        return Ragged(self.steps[ranges(self.offsets[index], lengths)], offsets_of(lengths))


@runtime_checkable
class Held(Protocol):
    """Examples held as some tensors."""

    def tensors(self) -> list[Tensor]:
        """All that they hold."""
        ...


def fingerprint_of(splits: Mapping[str, Held]) -> str:
    """The fingerprint of parts whose tensors differ in length."""
    return fingerprint(
        {f"{part} {k}": Arrays((x,)) for part, held in splits.items() for k, x in enumerate(held.tensors())}
    )


def evaluation_batch(longest: int) -> int:
    """Examples a batch of an evaluation of sequences of at most ``longest`` steps."""
    return max(1, min(EVALUATION_BATCH, EVALUATION_STEPS // max(1, longest)))


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Examples of sequences (T_i, n) with a target each: inputs ``(x, lengths)``, or ``(x,)`` of one length.

    Args:
        ragged: The sequences.
        targets: Their targets, or None.
        time: The length that every sequence has, or None where lengths may differ.
        notes: What was assumed in reading new ones.
        groups: As of :class:`margin.data.examples.Arrays`.

    Raises:
        ValueError: Sequences and targets differ in number, or a length is not ``time``.
    """

    ragged: Ragged
    targets: Tensor | None = None
    time: int | None = None
    notes: tuple[str, ...] = ()
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        if self.targets is not None and len(self.targets) != len(self.ragged):
            raise ValueError(
                "sequences and targets must be equal in number: "
                f"got {len(self.ragged)} sequences, {len(self.targets)} targets"
            )
        lengths = self.ragged.lengths
        if self.time is not None and bool((lengths != self.time).any()):
            ends = f"{int(lengths.min())} .. {int(lengths.max())}"
            raise ValueError(f"every sequence must have {self.time} steps: got {ends}")

    def __len__(self) -> int:
        return len(self.ragged)

    @property
    def lengths(self) -> Int[Tensor, " rows"] | None:
        """The number of steps of each sequence; None where all must be of one length."""
        return self.ragged.lengths if self.time is None else None

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluation_batch(int(self.ragged.lengths.max()) if len(self) else 0)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sequences at ``index``; nothing is drawn."""
        x, lengths = self.ragged.padded(index)
        targets = None if self.targets is None else self.targets.index_select(0, index)
        return Batch((x, lengths) if self.time is None else (x,), targets)

    def part(self, index: Int[Tensor, " batch"]) -> "Sequences":
        """The examples at ``index`` alone."""
        targets = None if self.targets is None else self.targets.index_select(0, index)
        return replace(
            self, ragged=self.ragged.rows(index), targets=targets, groups=coded(self.groups, index)
        )

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.ragged.steps, self.ragged.offsets, *(() if self.targets is None else (self.targets,))]


@dataclass(frozen=True, slots=True, eq=False)
class TokenSequences:
    """Examples of token sequences with a target at every step: inputs ``(tokens, lengths)``.

    The weight of a target is what ``counted`` says, and 0 at padding.

    Args:
        tokens: The tokens, int64.
        answers: The target of each token, int64, in the same places.
        counted: How much each target counts, in the same places; None for 1.

    Raises:
        ValueError: Targets or weights are not one a token.
    """

    tokens: Ragged
    answers: Ragged
    counted: Ragged | None = None

    def __post_init__(self) -> None:
        others = [self.answers] if self.counted is None else [self.answers, self.counted]
        if any(not torch.equal(other.offsets, self.tokens.offsets) for other in others):
            raise ValueError("targets and weights must have the lengths of the tokens")

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Int[Tensor, " rows"]:
        """The number of tokens of each sequence."""
        return self.tokens.lengths

    @property
    def targets(self) -> Int[Tensor, "rows time"]:
        """All targets, zeros after their ends."""
        return self.answers.padded(torch.arange(len(self)))[0]

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluation_batch(int(self.lengths.max()) if len(self) else 0)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The sequences at ``index``; nothing is drawn."""
        shown, lengths = self.tokens.padded(index)
        if self.counted is None:
            weight = (torch.arange(shown.shape[1]) < lengths[:, None]).float()
        else:
            weight = self.counted.padded(index)[0]
        return Batch((shown, lengths), self.answers.padded(index)[0], weight)

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        counted = [] if self.counted is None else [self.counted.steps]
        return [self.tokens.steps, self.tokens.offsets, self.answers.steps, *counted]
