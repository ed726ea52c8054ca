"""Items of a torch Dataset as examples: fetched one by one, collated, checked.

An item is ``(x, y)`` or ``(x1, x2, ..., y)``, or one input without a target. What it draws from the global
generators of torch, NumPy and Python is a function of a seed, and the generators stay where they were.
"""

import hashlib
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.arrays import listed
from margin.math.seeds import mix

MOST_BYTES = 2**30
"""Examples that take no more than this are kept in memory."""

Memory = Literal["auto", "always", "never"]
"""Whether examples are kept in memory: where they fit, always, or never."""

PROBED = 64
"""Items that are fetched twice, to see whether they are drawn at random.

An augmentation that changes one item in ten is missed with probability 0.81^64 < 2e-6.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A dataset by index, and how its items become a batch.

    Args:
        dataset: What has ``dataset[i]``.
        collate: Makes a tuple of tensors of a list of items.
        name: What messages call the dataset.
    """

    dataset: Any
    collate: Callable[[list[Any]], Any]
    name: str

    def batch(self, index: Sequence[int], seed: int) -> Batch:
        """The items at ``index``; what they draw is a function of ``seed``.

        Raises:
            ValueError: An item is no pair of inputs and a target.
        """
        with drawing(seed):
            return collated(self.collate, [self.dataset[i] for i in index], f"{self.name}, item {index[0]}")

    def one_by_one(self, count: int) -> Iterator[Batch]:
        """Every item, as a batch of one."""
        for i in range(count):
            yield self.batch([i], mix(0, 11, i))

    def drawn(self, count: int) -> bool:
        """Whether one of the first items differs when it is fetched under another seed."""
        pairs = ((self.batch([i], mix(0, 11, i)), self.batch([i], mix(1, 11, i))) for i in range(count))
        return any(
            not torch.equal(one, other)
            for first, second in pairs
            for one, other in zip(first.inputs, second.inputs, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Examples whose items are fetched when they are taken.

    Args:
        items: The dataset.
        index: Which of its items are the examples.
        targets: Their targets, as they were when the dataset was first read; None where there are none.
        raw: The same as the dataset gives them; of shape (N, 0) where there are none.
        shapes: The shape of each input of one example.
        dtype: The type of the first input.
    """

    items: Items
    index: Int[Tensor, " n"]
    targets: Tensor | None
    raw: Tensor
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; what their items draw is drawn by a seed from ``generator``."""
        seed = int(torch.randint(2**32, (), generator=generator))
        chosen = self.index[index].tolist()
        batch = self.items.batch(chosen, seed)
        now = target_of(batch)
        if not torch.equal(now, self.raw[index]):
            raise ValueError(
                f"{self.items.name}: targets must be what they were when the dataset was first read: "
                f"they are not in the batch of items {listed([str(i) for i in chosen], 5)}"
            )
        first, *rest = (x.reshape(len(x), *shape) for x, shape in zip(batch.inputs, self.shapes, strict=True))
        return Batch((first.to(self.dtype), *rest), None if self.targets is None else self.targets[index])


def target_of(batch: Batch) -> Tensor:
    """The targets of a batch; of shape (N, 0) where there are none."""
    return torch.empty(len(batch.inputs[0]), 0) if batch.targets is None else batch.targets


def room(memory: Memory) -> int:
    """The bytes that examples in memory may take.

    Raises:
        ValueError: There is no such choice.
    """
    rooms = {"auto": MOST_BYTES, "always": sys.maxsize, "never": 0}
    if memory not in rooms:
        raise ValueError(f"memory must be one of {', '.join(rooms)}: got {memory!r}")
    return rooms[memory]


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """The global generators of torch, NumPy and Python at a seed; put back on leaving."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def collated(collate: Callable[[list[Any]], Any], items: list[Any], where: str) -> Batch:
    """A batch of items.

    Raises:
        ValueError: The items are no tuples of tensors, the last of which is the target.
    """
    try:
        columns = collate(items)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{where}: items must become tensors: {str(error).splitlines()[0]}") from None
    return batch_of(columns, where, len(items))


def batch_of(columns: Any, where: str, count: int | None) -> Batch:
    """The batch of what a loader yields.

    Args:
        columns: Inputs, then targets.
        where: What messages call it.
        count: How many examples it must have, where that is known.

    Raises:
        ValueError: They are no tensors with a first axis, or no inputs with targets.
    """
    columns = (columns,) if isinstance(columns, Tensor) else columns
    if not isinstance(columns, tuple | list) or not columns:
        size = f" of {len(columns)}" if isinstance(columns, tuple | list) else ""
        got = f"{type(columns).__name__}{size}"
        raise ValueError(f"{where}: an item must be x, (x, y) or (x1, x2, ..., y): got {got}")
    for k, column in enumerate(columns):
        what = "the target" if 0 < k == len(columns) - 1 else f"input {k + 1}"
        if not isinstance(column, Tensor):
            raise ValueError(f"{where}: {what} must be a number, an array or a tensor: got {_kind(column)}")
        if column.ndim == 0 or len(column) != (len(columns[0]) if count is None else count):
            raise ValueError(
                f"{where}: {what} must have a first axis, the examples, of one length: "
                f"got {tuple(column.shape)}"
            )
    return Batch(tuple(columns[:-1]), columns[-1]) if len(columns) > 1 else Batch((columns[0],))


def _kind(column: Any) -> str:
    inner = column[0] if isinstance(column, tuple | list) and len(column) else column
    return "text" if isinstance(inner, str) else type(inner).__name__


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one pass over all examples shows.

    Args:
        first: The first example, a batch of one.
        targets: The target of each; of shape (N, 0) where there are none.
        kept: Every input of every example, or None where they are too large or are drawn.
        span: Least and largest number of the first input.
        digest: Hash of every input and target.
        seconds: How long the pass took.
    """

    first: Batch
    targets: Tensor
    kept: tuple[Tensor, ...] | None
    span: tuple[float, float]
    digest: str
    seconds: float

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each input of one example."""
        return tuple(tuple(x.shape[1:]) for x in self.first.inputs)


def survey(
    samples: Iterable[Batch],
    name: str,
    *,
    most_bytes: int,
    look: Callable[[Tensor], None] | None = None,
) -> Survey:
    """Read every example once, check it, and keep all inputs while they fit.

    Args:
        samples: Batches of one.
        name: What messages call the examples.
        most_bytes: Room for the inputs; 0 keeps none.
        look: Is given the first input of each example.

    Raises:
        ValueError: There is none, an input changes its shape, a target is no single number, or a number is
            not finite; the message names the item.
    """
    begun, digest, left = time.monotonic(), hashlib.sha256(), most_bytes
    first: Batch | None = None
    kept: list[tuple[Tensor, ...]] = []
    targets: list[Tensor] = []
    low, high = float("inf"), -float("inf")
    for i, sample in enumerate(samples):
        first = sample if first is None else first
        target = _check(sample, first, f"{name}, item {i}")
        for tensor in (*sample.inputs, target):
            digest.update(f"{tensor.dtype}".encode() + tensor.contiguous().numpy().tobytes())
        x = sample.inputs[0]
        low, high = min(low, float(x.min())), max(high, float(x.max()))
        if look is not None:
            look(x)
        targets.append(target)
        left -= sum(tensor.nbytes for tensor in sample.inputs)
        if left >= 0:
            kept.append(sample.inputs)
        else:
            kept.clear()
    if first is None:
        raise ValueError(f"{name}: there must be at least one example: got none")
    return Survey(
        first=first,
        targets=torch.cat(targets),
        kept=tuple(torch.cat(column) for column in zip(*kept, strict=True)) if kept else None,
        span=(low, high),
        digest=digest.hexdigest(),
        seconds=time.monotonic() - begun,
    )


def _check(sample: Batch, first: Batch, where: str) -> Tensor:
    """The target of an example that has the first's shape and finite numbers; others are refused."""
    if len(sample.inputs) != len(first.inputs):
        got = f"got {len(sample.inputs)}, item 0 has {len(first.inputs)}"
        raise ValueError(f"{where}: items must have as many inputs each: {got}")
    for x, before in zip(sample.inputs, first.inputs, strict=True):
        if x.shape != before.shape:
            raise ValueError(
                f"{where}: inputs must have one shape: got {tuple(x.shape[1:])}, "
                f"item 0 has {tuple(before.shape[1:])}"
            )
    if (sample.targets is None) != (first.targets is None):
        raise ValueError(f"{where}: all items must have a target, or none: item 0 is another")
    target = target_of(sample)
    if sample.targets is not None and sample.targets.ndim != 1:
        shape = tuple(sample.targets.shape[1:])
        remedy = "; yield y.item()" if shape == (1,) else ""
        raise ValueError(f"{where}: the target must be one number: got shape {shape}{remedy}")
    for what, tensor in [*(("input", x) for x in sample.inputs), ("target", target)]:
        finite = tensor.isfinite()
        if not bool(finite.all()):
            raise ValueError(f"{where}: every {what} must be finite: got {tensor[~finite][0].item()}")
    return target
