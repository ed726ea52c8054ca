"""Examples in memory and batches as a function of the step.

A batch depends on (examples, batch size, seed, step) alone, so a checkpoint holds no position and no
generator, and a resumed training sees the same batches.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, overload, runtime_checkable

import torch
from jaxtyping import Int
from torch import Generator, Tensor, nn

from margin.core.types import Batch, Domain, Examples, Spec
from margin.math.seeds import mix

PARTS_OF_DATA = ("train", "val", "test")

EVALUATION_BATCH = 512
"""Examples a batch of an evaluation, where the training's own batches are smaller."""

EVALUATION_NUMBERS = 2**23
"""Numbers that such a batch holds at most: 55 images of 3 x 224 x 224."""


def evaluated_at_once(numbers: int) -> int:
    """Examples of so many numbers each that an evaluation takes at once: fewer of large images."""
    return max(1, min(EVALUATION_BATCH, EVALUATION_NUMBERS // max(1, numbers)))


def evaluation_batch(examples: Any, least: int = 0) -> int:
    """Examples a batch of an evaluation: as many as they say themselves, as the nodes of one graph do.

    Args:
        examples: They may say so in an attribute ``evaluation_batch``.
        least: The training's own batch, where it is known.
    """
    return max(least, 1, getattr(examples, "evaluation_batch", EVALUATION_BATCH))


def is_independent(examples: Any) -> bool:
    """Whether no example of a batch is read with another: not where ``independent`` says so, as of nodes."""
    return bool(getattr(examples, "independent", True))


def held_out_part(splits: Mapping[str, Any]) -> str:
    """The name of the part that a model is judged on: the test part, else the validation part, else ""."""
    return next((name for name in ("test", "val") if name in splits), "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Data:
    """What a source gives: the splits, what they dictate to a model, how raw values became numbers.

    Args:
        name: The source's name or the file's.
        splits: ``train``, ``val``, ``test`` -> Examples in the user's units, or what an entry cuts into
            Examples; ``val`` and ``test`` may be missing.
        spec: What the training part dictates to a model.
        encoding: JSON: columns, categories, class names, how missing values were filled.
        preprocess: Fitted on the training part; from the user's units to the model's; differentiable.
        outcome: From the model's output to the user's units, fitted on the training part; None: none.
        domain: Where one input may lie, in the user's units; None: inputs are not points that can be moved.
        fingerprint: Hash of all splits.
        notes: What was assumed in reading the data, one sentence each.
        origin: How to open it again, as JSON: ``source`` and ``options``; empty for data in memory.
        resumable: Whether a training can go on where it stopped: not where examples come in their own order.
    """

    name: str
    splits: Mapping[str, Any]
    spec: Spec
    encoding: Mapping[str, Any] = field(default_factory=dict)
    preprocess: nn.Module = field(default_factory=nn.Identity)
    outcome: nn.Module | None = None
    domain: Domain | None = None
    fingerprint: str = ""
    notes: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    resumable: bool = True

    def __repr__(self) -> str:
        sizes = [
            f"{name} {len(part):,}" if hasattr(part, "__len__") else name
            for name, part in self.splits.items()
        ]
        facts = [f"{name} {value}" for name, value in self.spec.items() if isinstance(value, int | tuple)]
        return f"<Data {self.name}: {', '.join(sizes)}; {', '.join(facts)}>"


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """Examples held in memory, gathered by one index_select per tensor.

    Args:
        inputs: One tensor per argument of the model; the first axis is the example.
        targets: Their targets, or None.
        weight: How much each counts, or None for 1.
        dtype: The type in which the inputs are given, where they are held in a smaller one; None: as held.
        groups: The group of each, counted from 0, where they come in groups: only groups are independent.
    """

    inputs: tuple[Tensor, ...]
    targets: Tensor | None = None
    weight: Tensor | None = None
    dtype: torch.dtype | None = None
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        lengths = {len(tensor) for tensor in self.tensors()}
        if len(lengths) != 1:
            raise ValueError(f"inputs and targets must have one length: got {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.inputs[0])

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; nothing is drawn."""
        targets = None if self.targets is None else self.targets.index_select(0, index)
        weight = None if self.weight is None else self.weight.index_select(0, index)
        inputs = tuple(x.index_select(0, index) for x in self.inputs)
        return Batch(
            inputs if self.dtype is None else tuple(x.to(self.dtype) for x in inputs), targets, weight
        )

    @property
    def evaluation_batch(self) -> int:
        """Examples a batch of an evaluation."""
        return evaluated_at_once(sum(x.shape[1:].numel() for x in self.inputs))

    def tensors(self) -> list[Tensor]:
        """The tensors that :func:`fingerprint` reads."""
        return [*self.inputs, *(tensor for tensor in (self.targets, self.weight) if tensor is not None)]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some of given examples, in a given order.

    Args:
        examples: All of them.
        rows: Which.
    """

    examples: Examples
    rows: Int[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at these places among the rows."""
        return self.examples.take(self.rows[index], generator)


@runtime_checkable
class TargetedExamples(Examples, Protocol):
    """Examples whose targets are at hand, or None where they have none."""

    @property
    def targets(self) -> Tensor | None:
        """The target of each example."""
        ...


def fingerprint(splits: Mapping[str, Arrays]) -> str:
    """SHA-256 over names, shapes, types and bytes of the splits: equal data, equal fingerprint."""
    digest = hashlib.sha256()
    for name, arrays in splits.items():
        for tensor in arrays.tensors():
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


@runtime_checkable
class Batches(Protocol):
    """The batches of a training, by the step."""

    per_epoch: int
    batch_size: int

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        ...


class Share(NamedTuple):
    """The part of every batch that one of several processes takes: number ``rank`` of ``size``."""

    rank: int = 0
    size: int = 1

    def take(self, examples: Examples, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """This share of the examples at ``index``; an example of weight 0 where there are too few."""
        mine = index.tensor_split(self.size)[self.rank]
        if len(mine):
            return examples.take(mine, generator)
        filler = examples.take(index[:1], generator)
        weight = torch.ones(1) if filler.weight is None else filler.weight
        return filler._replace(weight=torch.zeros_like(weight))


ALL = Share()
"""The share of a process that is alone."""


class Shuffled:
    """Batches of shuffled examples, as a function of the step: a new order each pass.

    A last batch of a single example would leave batch normalization without a variance, so a
    remainder of one joins the batch before it. With one batch a pass, the order is the data's own.

    Args:
        examples: What is cut into batches.
        batch_size: Examples a batch.
        seed: Seed of the orders and of what ``take`` draws.
        share: What this process takes of each batch.
    """

    def __init__(self, examples: Examples, batch_size: int, *, seed: int, share: Share = ALL) -> None:
        if len(examples) == 0:
            raise ValueError("the training part is empty")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1: got {batch_size}")
        self.examples = examples
        self.batch_size = min(batch_size, len(examples))
        self.seed = seed
        self.share = share
        whole, rest = divmod(len(examples), self.batch_size)
        self.per_epoch = whole + (rest > 1 or (rest == 1 and self.batch_size == 1))
        self._order: tuple[int, Tensor] | None = None

    def __call__(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        epoch, position = divmod(step, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._draw(epoch))
        start = position * self.batch_size
        stop = start + self.batch_size if position < self.per_epoch - 1 else len(self.examples)
        generator = Generator().manual_seed(mix(self.seed, 2, self.share.rank, step))
        return self.share.take(self.examples, self._order[1][start:stop], generator)

    def _draw(self, epoch: int) -> Tensor:
        if self.per_epoch == 1:
            return torch.arange(len(self.examples))
        generator = Generator().manual_seed(mix(self.seed, 1, epoch))
        return torch.randperm(len(self.examples), generator=generator)


class InOrder(Sequence[Batch]):
    """Every example once, in order, taken batch by batch when asked for.

    Args:
        examples: What is cut into batches.
        batch_size: Examples a batch.
        dtype: Real tensors are given in this type.
        device: Where the batches are put.
        share: What this process takes of each batch.
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        share: Share = ALL,
    ) -> None:
        self.examples = examples
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.share = share

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch_size)

    @overload
    def __getitem__(self, position: int) -> Batch: ...
    @overload
    def __getitem__(self, position: slice) -> list[Batch]: ...
    def __getitem__(self, position: int | slice) -> Batch | list[Batch]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(f"batch {position} of {len(self)}")
        start = position % len(self) * self.batch_size
        index = torch.arange(start, min(start + self.batch_size, len(self.examples)))
        batch = self.share.take(self.examples, index, Generator().manual_seed(mix(0, 3, start)))
        return batch.to(dtype=self.dtype, device=self.device)


# rows of several lengths, one behind another


def offsets_of(counts: Int[Tensor, " rows"]) -> Int[Tensor, " rows_and_end"]:
    """Where each row begins, and where the last ends: 0, n_1, n_1 + n_2, ..."""
    return torch.cat((counts.new_zeros(1), counts.cumsum(0)))


def ranges(starts: Int[Tensor, " rows"], counts: Int[Tensor, " rows"]) -> Int[Tensor, " places"]:
    """The places start .. start + count - 1 of every row, row after row; a count of 0 gives none.

    Args:
        starts: The first place of each row.
        counts: How many places it has, at least 0.
    """
    total = int(counts.sum())
    before = counts.cumsum(0) - counts
    return torch.repeat_interleave(starts - before, counts, output_size=total) + torch.arange(total)
