"""Pairs of token sequences, a source and its target, as sequence to sequence models learn from them.

A source ends with ``<eos>``. A target y is shown as ``<bos>`` y and asked for as y ``<eos>``.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.formats.sequences.rows import Ragged, evaluation_batch

PAD, BOS, EOS, UNK = range(4)
"""The first tokens of every vocabulary: padding, begin, end, unknown (``tokenizers.SPECIAL``)."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Examples of a source and a target: inputs ``(source, source lengths, <bos> y)``, targets y ``<eos>``.

    The weight is 1 at the target's tokens and at its end, 0 at padding.

    Args:
        sources: The sources, as the model is given them.
        answers: The targets y, without begin and end; None where they are not known.

    Raises:
        ValueError: They differ in number.
    """

    sources: Ragged
    answers: Ragged | None = None

    def __post_init__(self) -> None:
        if self.answers is not None and len(self.answers) != len(self.sources):
            raise ValueError(
                f"sources and targets must be equal in number: got {len(self.sources)}, {len(self.answers)}"
            )

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def asked(self) -> Int[Tensor, " pairs"]:
        """The number of tokens asked for, the end too; 0 without targets."""
        return self.sources.lengths * 0 if self.answers is None else self.answers.lengths + 1

    @property
    def lengths(self) -> Int[Tensor, " pairs"]:
        """The number of tokens of source and target together: what a batch of similar length goes by."""
        return self.sources.lengths + self.asked

    @property
    def targets(self) -> Int[Tensor, "pairs time"] | None:
        """All targets y ``<eos>``, padded."""
        return None if self.answers is None else shifted(self.answers, torch.arange(len(self)))[1]

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluation_batch(int(self.lengths.max()))

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The pairs at ``index``; nothing is drawn. Without targets, ``<bos>`` alone is shown."""
        source, lengths = self.sources.padded(index)
        if self.answers is None:
            return Batch((source, lengths, torch.full((len(index), 1), BOS)))
        shown, asked, weight = shifted(self.answers, index)
        return Batch((source, lengths, shown), asked, weight)

    def part(self, index: Int[Tensor, " batch"]) -> "Pairs":
        """The pairs at ``index`` alone."""
        return Pairs(self.sources.rows(index), None if self.answers is None else self.answers.rows(index))

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        rows = [self.sources] if self.answers is None else [self.sources, self.answers]
        return [tensor for row in rows for tensor in (row.steps, row.offsets)]


def shifted(
    answers: Ragged, index: Int[Tensor, " batch"]
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"], Float[Tensor, "batch time"]]:
    """Of targets y: ``<bos>`` y, y ``<eos>``, and the weight 1 up to the end and 0 after it."""
    y, lengths = answers.padded(index)
    shown = torch.cat((torch.full((len(y), 1), BOS), y), 1)
    asked = torch.cat((y, torch.full((len(y), 1), PAD)), 1)
    asked[torch.arange(len(y)), lengths] = EOS
    return shown, asked, (torch.arange(y.shape[1] + 1) <= lengths[:, None]).float()
