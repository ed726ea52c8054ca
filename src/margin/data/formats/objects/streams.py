"""Torch's IterableDataset as data: examples that come in an order of their own.

One pass learns what a model must know; then batches are drawn in sequence, pass after pass. A training on
a stream holds nothing out and cannot be resumed: nobody can go back to a place in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from torch import Tensor

from margin.core.types import Batch, Examples
from margin.data.arrays import inputs_of, known_targets, seen_as
from margin.data.assembly import Raw, data_of
from margin.data.examples import ALL, Batches, Data, Share, Shuffled
from margin.data.formats.objects.datasets import parted, understand
from margin.data.formats.objects.survey import collated, drawing, survey
from margin.data.preprocess import Moments
from margin.data.sampling.length_batches import BySimilarLength
from margin.data.splits import Split, TargetKind
from margin.math.seeds import mix


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Examples that can be had in sequence alone.

    Args:
        dataset: Gives the items of a pass, each time it is iterated over.
        collate: Makes a tuple of tensors of a list of items.
        raw: What the first pass showed: all targets, the first input.
    """

    dataset: Any
    collate: Any
    raw: Raw[Tensor]

    def __len__(self) -> int:
        return len(self.raw.targets)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.raw.name

    def items(self, seed: int) -> Iterator[Any]:
        """The items of one pass; what they draw is a function of the seed and their place."""
        with drawing(mix(seed, 12)):
            source = iter(self.dataset)
        for i in range(len(self)):
            with drawing(mix(seed, 13, i)):
                try:
                    item = next(source)
                except StopIteration:
                    raise ValueError(
                        f"{self.name}: every pass must give {len(self)} examples: got {i} in a later one"
                    ) from None
            yield item

    def batch(self, items: list[Any]) -> Batch:
        """Some items as a batch, labels and types as the first pass found them."""
        raw, (inputs, given, _) = self.raw, collated(self.collate, items, self.name)
        first = inputs[0].reshape(len(items), *raw.inputs.shape[1:]).to(raw.dtype)
        if raw.task == "none":
            return Batch((first, *inputs[1:]))
        targets = known_targets(given, len(items), raw.name, raw.task, raw.classes)  # type: ignore[arg-type]
        return Batch((first, *inputs[1:]), raw.typed(targets))


class InSequence:
    """Batches of a stream, which must be asked for step after step from 0 on.

    Args:
        stream: What is cut into batches.
        batch_size: Examples a batch; the last of a pass may be smaller, and a remainder of one joins it.
        seed: Seed of what the items draw.
    """

    def __init__(self, stream: Stream, batch_size: int, *, seed: int) -> None:
        self.stream = stream
        self.batch_size = min(batch_size, len(stream))
        self.seed = seed
        whole, rest = divmod(len(stream), self.batch_size)
        self.per_epoch = whole + (rest > 1 or (rest == 1 and self.batch_size == 1))
        self._next = 0
        self._pass: Iterator[Any] = iter(())

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0.

        Raises:
            ValueError: It is not the next, or the stream has become shorter.
        """
        if step != self._next:
            raise ValueError(
                f"{self.stream.name}: a stream gives step after step, by one process and no workers: "
                f"got step {step} where {self._next} is the next"
            )
        epoch, position = divmod(step, self.per_epoch)
        if position == 0:
            self._pass = self.stream.items(mix(self.seed, 14, epoch))
        last = position == self.per_epoch - 1
        items = list(islice(self._pass, None if last else self.batch_size))
        self._next += 1
        return self.stream.batch(items)


def ordered(examples: Examples | Stream, batch_size: int, *, seed: int, share: Share = ALL) -> Batches:
    """The batches of a training: shuffled, those of similar length together, or a stream's in its own order.

    Raises:
        ValueError: There is no example, or a stream would be divided between processes.
    """
    lengths = getattr(examples, "lengths", None)
    if lengths is not None and not isinstance(examples, Stream):
        return BySimilarLength(examples, lengths, batch_size, seed=seed, share=share)
    if not isinstance(examples, Stream):
        return Shuffled(examples, batch_size, seed=seed, share=share)
    if share.size > 1:
        raise ValueError(f"{examples.name}: a stream trains in one process: got {share.size}")
    return InSequence(examples, batch_size, seed=seed)


def read_stream(
    stream: Any,
    *,
    name: str = "stream",
    task: TargetKind | None = None,
    domain: tuple[float, float] | None = None,
    examples: int | None = None,
) -> Data:
    """Examples from a ``torch.utils.data.IterableDataset`` or a DataLoader over one, in their own order.

    One pass is read to learn shapes, classes and the standardization. Nothing is held out, and the training
    cannot be resumed.

    Args:
        stream: What gives ``(x, y)`` or ``(x1, x2, ..., y)``, or x alone, when it is iterated over.
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted; none leaves
            them out.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        examples: Examples a pass; needed for a stream without end.

    Returns:
        Data in the user's units, whose only part is ``train``.

    Raises:
        ValueError: An example cannot be used; the message says which it is in the stream.
    """
    if examples is not None and examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    dataset, collate, notes = parted(stream, name)
    moments: list[Moments] = []

    def look(x: Tensor) -> None:
        seen = seen_as(inputs_of(x, name)).inputs
        if not moments:
            moments.append(Moments("channel" if seen.ndim == 4 else "feature"))
        moments[0].add(seen)

    looked = survey(_samples(dataset, collate, name, examples), name, most_bytes=0, look=look)
    raw, box = understand(looked, name, task, domain)
    part = Stream(dataset, collate, raw)
    record = Split(test=0.0, val=0.0).as_json(official=False)
    data = data_of(raw, {"train": part}, record, moments[0].standardize(), box)
    note = (
        f"a stream of {len(part)} examples a pass, in its own order: none is held out, it cannot be resumed"
    )
    return replace(data, fingerprint=looked.digest, notes=(*data.notes, *notes, note), resumable=False)


def _samples(dataset: Any, collate: Any, name: str, examples: int | None) -> Iterator[Batch]:
    """Every example of one pass, as a batch of one."""
    source = iter(dataset)
    for i in islice(count(), examples):
        with drawing(mix(0, 13, i)):
            try:
                item = next(source)
            except StopIteration:
                return
        yield collated(collate, [item], f"{name}, item {i}")
