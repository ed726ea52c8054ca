r"""Co-occurrence counts of words and pointwise mutual information (Church and Hanks, 1990).

.. math:: C_{ab} = \#\{(i, j) : w_i = a,\, w_j = b,\, 1 \le |i - j| \le R\}, \qquad
    \mathrm{pmi}(a, b) = \log \frac{p(a, b)}{p(a)\, p(b)}

C is symmetric, and of a text of T words in one piece it sums to 2 sum_{r=1}^R (T - r). The expected PMI under
p is the mutual information, which is never negative.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch

Decay = Literal["even", "harmonic"]
"""What a pair of words at distance r counts: 1, or 1 / r."""


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A text as the numbers of its words.

    Args:
        ids: The words in order.
        sentence: The sentence of each, which no pair of words leaves; None: the text is in one piece.
    """

    ids: Int[Tensor, " words"]
    sentence: Int[Tensor, " words"] | None = None

    @classmethod
    def of(cls, split: Any) -> "Words":
        """The words of a part of the data: a text in one piece, or sentences, or words already.

        Raises:
            ValueError: It holds neither.
        """
        if isinstance(split, cls):
            return split
        if isinstance(ids := getattr(split, "ids", None), Tensor):
            return cls(ids)
        rows = getattr(split, "sentences", split)
        if isinstance(steps := getattr(rows, "steps", None), Tensor) and not steps.is_floating_point():
            lengths = rows.offsets.diff()
            return cls(steps, torch.repeat_interleave(torch.arange(len(lengths)), lengths))
        raise ValueError(f"word vectors need a text, read as text:FILE --data.level words: got {type(split)}")

    def pairs(self, distance: int) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """The words at a distance and those before them."""
        earlier, later = self.ids[:-distance], self.ids[distance:]
        if self.sentence is None:
            return earlier, later
        same = self.sentence[:-distance] == self.sentence[distance:]
        return earlier[same], later[same]


def check_window(window: int) -> int:
    """The window, unless it holds no neighbor."""
    if window < 1:
        raise ValueError(f"window must be at least 1 word: got {window}")
    return window


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A matrix of counts C by its entries that are not 0, in the order of rows and columns.

    Args:
        rows: The row a of each.
        columns: The column b of each.
        values: C_ab > 0.
        size: Rows and columns of the matrix.
    """

    rows: Int[Tensor, " entries"]
    columns: Int[Tensor, " entries"]
    values: Float[Tensor, " entries"]
    size: int

    @property
    def margins(self) -> tuple[Float[Tensor, " size"], Float[Tensor, " size"]]:
        """The sum of each row, and of each column."""
        return (
            self.rows.bincount(self.values, minlength=self.size),
            self.columns.bincount(self.values, minlength=self.size),
        )

    def dense(self, values: Float[Tensor, " entries"] | None = None) -> Float[Tensor, "size size"]:
        """The matrix, or one of other values at the same places, 0 elsewhere."""
        values = self.values if values is None else values
        return values.new_zeros(self.size, self.size).index_put((self.rows, self.columns), values)

    def pmi(self) -> Float[Tensor, " entries"]:
        """The PMI of each entry, log C_ab |C| / (C_a C_b), in nats."""
        first, second = self.margins
        return pmi(self.values, first[self.rows], second[self.columns], self.values.sum())


def cooccurrences(words: Words, window: int, size: int, decay: Decay = "even") -> Counts:
    """The symmetric matrix of how often words stand within ``window`` words of each other.

    Args:
        words: The text.
        window: R, at least 1.
        size: V, words of the vocabulary.
        decay: Whether a pair counts 1, or 1 / r at distance r, as GloVe counts.

    Raises:
        ValueError: The window is below 1.
    """
    keys, values = [], []
    for distance in range(1, min(check_window(window), len(words.ids) - 1) + 1):
        a, b = words.pairs(distance)
        found, count = (a * size + b).unique(return_counts=True)
        keys += [found, found % size * size + found // size]
        values += [count.double() / (distance if decay == "harmonic" else 1)] * 2
    if not keys:
        keys, values = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.float64)]
    found, place = torch.cat(keys).unique(return_inverse=True)
    return Counts(found // size, found % size, place.bincount(torch.cat(values), minlength=len(found)), size)


def pmi(joint: Tensor, first: Tensor, second: Tensor, total: Tensor | float = 1.0) -> Tensor:
    """The PMI log p(a, b) / (p(a) p(b)) of probabilities, or of counts with their total; -inf where it is 0.

    Reference: Church and Hanks 1990, Section 2.
    """
    return joint.log() + torch.as_tensor(total).log() - first.log() - second.log()


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Examples of the entries of a matrix of counts: inputs ``(words (N, 2),)``, targets C_ab.

    Args:
        counts: The matrix.
    """

    counts: Counts

    def __len__(self) -> int:
        return len(self.counts.values)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The entries at ``index``; nothing is drawn."""
        pairs = torch.stack((self.counts.rows[index], self.counts.columns[index]), 1)
        return Batch((pairs,), self.counts.values[index])


@dataclass(frozen=True, slots=True, eq=False)
class ContextCounts:
    """The same as a distribution to be learned: inputs ``(a (N, 1),)``, targets b, weight C_ab.

    Args:
        counts: The matrix.
    """

    counts: Counts

    def __len__(self) -> int:
        return len(self.counts.values)

    @property
    def targets(self) -> Int[Tensor, "entries one"]:
        """The context word of each entry."""
        return self.counts.columns[:, None]

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The entries at ``index``; nothing is drawn."""
        a, b, count = (x[index, None] for x in (self.counts.rows, self.counts.columns, self.counts.values))
        return Batch((a,), b, count)


def counted(split: Any, window: int, decay: Decay = "even") -> Counts:
    """The counts of a part of the data, among the words that it has."""
    words = Words.of(split)
    return cooccurrences(words, window, int(words.ids.max()) + 1, decay)


def entries(split: Any, *, window: int) -> Entries:
    """The entries of the matrix of counts of a part, a pair counting 1."""
    return Entries(counted(split, window))


def harmonic_entries(split: Any, *, window: int) -> Entries:
    """The entries of the matrix of counts of a part, a pair at distance r counting 1 / r."""
    return Entries(counted(split, window, "harmonic"))


def context_counts(split: Any, *, window: int) -> ContextCounts:
    """The context words of each word of a part, as often as they are seen."""
    return ContextCounts(counted(split, window))


def counts_in(batch: Batch, size: int) -> Counts:
    """The matrix of counts whose entries, each once, are the examples of a batch of :class:`Entries`.

    Args:
        batch: Of all entries.
        size: V, words of the vocabulary.

    Raises:
        ValueError: The batch has no counts.
    """
    if batch.targets is None:
        raise ValueError("counts of words must be given as targets: got none")
    first, second = batch.inputs[0].cpu().unbind(1)
    return Counts(first, second, batch.targets.cpu().double(), size)
