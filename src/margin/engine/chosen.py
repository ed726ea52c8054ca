"""Some of the examples, drawn at random from a fixed seed: simple random sampling without replacement.

The first examples of a file stand for the rest only where the file is in no order; a file sorted by class
gives one class. Every set of so many examples is equally likely here (Cochran, 1977, Section 2.1).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.math.seeds import mix

Admits = Callable[[Batch], Tensor]
"""``batch -> whether each of its examples may be chosen``."""


class Chosen(NamedTuple):
    """The examples that are looked at, and how many there were to choose from.

    Args:
        batches: Their batches, in the order of the file; those of weight 0 may be among them where all are
            taken.
        taken: How many examples of weight above 0 are in them.
        among: How many there were.
    """

    batches: Sequence[Batch]
    taken: int
    among: int

    @property
    def whole(self) -> bool:
        """Whether nothing was left out."""
        return self.taken == self.among

    def words(self, kind: str = "held-out") -> str:
        """How a statement calls the sample: all of them, or how many of how many."""
        if self.whole:
            return f"all {self.taken:,} {kind} examples"
        return f"{self.taken:,} of {self.among:,} {kind} examples, drawn at random"


def chosen(
    batches: Sequence[Batch],
    limit: int | None,
    *,
    seed: int = 0,
    admits: Admits | None = None,
    whole_batches: bool = False,
) -> Chosen:
    """At most ``limit`` of the examples of weight above 0, each set of so many equally likely.

    The choice is a function of the seed and of the number of examples alone. Examples whose batches were left
    almost empty are put together, in batches no larger than the largest given, where their shapes agree.

    Args:
        batches: The examples; gone through twice where not all are taken.
        limit: Examples at most; None takes all.
        seed: Another seed draws others.
        admits: Which examples may be chosen; None: all of weight above 0.
        whole_batches: Take whole batches in a random order until they hold ``limit`` examples, at least one:
            for examples that read each other. So are batches taken that cannot be cut, as joined graphs.

    Raises:
        ValueError: ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the number of examples must be at least 1: got {limit}")
    # One pass for what counts: batches may be read from a file, and are not kept.
    counted = [_counted(batch, admits) for batch in batches]
    among = sum(len(index) for index in counted)
    if (limit is None or among <= limit) and admits is None:
        return Chosen(batches, among, among)
    limit = among if limit is None else min(limit, among)
    generator = Generator().manual_seed(mix(seed, 11))
    if whole_batches or not all(batch.divisible for batch in batches):
        taken = _batches_for(limit, [len(index) for index in counted], generator)
        return Chosen([batches[i] for i in taken], sum(len(counted[i]) for i in taken), among)
    drawn = torch.randperm(among, generator=generator)[:limit].sort().values
    pieces, first, largest = [], 0, 1
    for index, batch in zip(counted, batches, strict=True):
        here = drawn[(drawn >= first) & (drawn < first + len(index))] - first
        first, largest = first + len(index), max(largest, len(batch.inputs[0]))
        if len(here):
            pieces.append(rows_of(batch, index[here]))
    return Chosen(_joined(pieces, largest), len(drawn), among)


def drawn_rows(batches: Sequence[Batch], limit: int) -> Chosen:
    """As :func:`chosen`, and none of weight 0 among them; one batch, where their shapes agree.

    Where no example counts at all, the batches are as they were given.

    Args:
        batches: The examples; gone through twice.
        limit: Examples at most.
    """
    found = chosen(batches, limit, admits=counts)
    if not found.taken:
        return chosen(batches, limit)
    whole = not all(batch.divisible for batch in found.batches)
    return found if whole else found._replace(batches=_joined(found.batches, limit))


def rows_of(batch: Batch, index: Int[Tensor, " rows"]) -> Batch:
    """The examples of a batch at ``index``."""

    def pick(tensor: Tensor) -> Tensor:
        return tensor[index.to(tensor.device)]

    targets = None if batch.targets is None else pick(batch.targets)
    return Batch(
        tuple(map(pick, batch.inputs)), targets, None if batch.weight is None else pick(batch.weight)
    )


def counts(batch: Batch) -> Bool[Tensor, " examples"]:
    """Whether each example has a term of weight above 0; on the CPU."""
    if batch.weight is None:
        return torch.ones(len(batch.inputs[0]), dtype=torch.bool)
    return (batch.weight > 0).reshape(len(batch.weight), -1).any(1).cpu()


def _counted(batch: Batch, admits: Admits | None) -> Tensor:
    good = counts(batch)
    return (good if admits is None else good & admits(batch).cpu()).nonzero().flatten()


def _batches_for(limit: int, sizes: Sequence[int], generator: Generator) -> list[int]:
    """Batches in a random order until they hold so many examples; their numbers, in the order of the file."""
    taken, held = [], 0
    for i in torch.randperm(len(sizes), generator=generator).tolist():
        if held >= limit:
            break
        if sizes[i]:
            taken.append(i)
            held += sizes[i]
    return sorted(taken)


def _joined(pieces: Sequence[Batch], size: int) -> list[Batch]:
    """Neighbors put together while they fit in ``size`` rows and agree in everything but their number."""
    groups: list[list[Batch]] = []
    held = 0
    for piece in pieces:
        rows = len(piece.inputs[0])
        if groups and held + rows <= size and _form(groups[-1][0]) == _form(piece):
            groups[-1].append(piece)
            held += rows
        else:
            groups.append([piece])
            held = rows
    return [_cat(group) for group in groups]


def _cat(group: Sequence[Batch]) -> Batch:
    if len(group) == 1:
        return group[0]
    inputs = tuple(torch.cat(column) for column in zip(*(batch.inputs for batch in group), strict=True))
    targets = [batch.targets for batch in group if batch.targets is not None]
    weights = [batch.weight for batch in group if batch.weight is not None]
    return Batch(inputs, torch.cat(targets) if targets else None, torch.cat(weights) if weights else None)


def _form(batch: Batch) -> list[object]:
    parts = (*batch.inputs, batch.targets, batch.weight)
    return [None if x is None else (x.shape[1:], x.dtype, x.device) for x in parts]
