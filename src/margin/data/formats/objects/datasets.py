"""Torch's Dataset and DataLoader as data: examples ``(x, y)`` or ``(x1, x2, ..., y)`` by index.

Of a DataLoader the dataset and ``collate_fn`` are taken; how batches are drawn is the training's.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from margin.core.types import Domain
from margin.data.arrays import inputs_of, seen_as
from margin.data.assembly import Raw, Schema, assemble, cut, data_of, domain_of, raw_arrays, raw_of_first
from margin.data.examples import Arrays, Data, InOrder
from margin.data.formats.objects.survey import PROBED, Fetched, Items, Memory, Survey, room, survey
from margin.data.options import option_groups
from margin.data.preprocess import Moments
from margin.data.splits import Split, TargetKind

_BATCH = 256


@option_groups()
def read_dataset(
    dataset: Any,
    *,
    name: str = "dataset",
    task: TargetKind | None = None,
    domain: tuple[float, float] | None = None,
    memory: Memory = "auto",
    split: Split = Split(),
) -> Data:
    """Examples from a map-style ``torch.utils.data.Dataset``, or the dataset of a DataLoader.

    Every item is read once to check it and to learn the targets: whole numbers are classes 0 .. K-1, numbers
    with a point values; an item of one tensor has none. Where items are drawn at random (augmentation), what
    a batch draws is a function of the training's seed and step.

    Args:
        dataset: The Dataset, or a DataLoader, whose dataset and ``collate_fn`` are taken.
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted; none leaves
            them out.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        memory: Whether inputs are kept in memory (where they take at most 1 GiB and are not drawn, always,
            never), or fetched when they are taken.
        split: Test and validation part, seed.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: The dataset has no length, or an item cannot be used; the message names its index.
    """
    items, notes = items_of(dataset, name)
    looked, kept_notes = _surveyed(items, memory)
    notes += kept_notes
    if looked.kept is not None and len(looked.kept) == 1:
        y = _targets_of(looked)
        raw = raw_arrays(name, looked.kept[0], y, task=task, domain=domain, test_arrays=None)
        data = assemble(raw, split)
    else:
        data = _fetched(items, looked, *understand(looked, name, task, domain), split)
    # The same bytes have one fingerprint, whether or not they are kept in memory.
    record = json.dumps(data.encoding, sort_keys=True)
    fingerprint = hashlib.sha256((looked.digest + record).encode()).hexdigest()
    return replace(data, fingerprint=fingerprint, notes=(*data.notes, *notes))


def items_of(source: Any, name: str) -> tuple[Items, list[str]]:
    """The items of a Dataset or DataLoader, and what of a loader is not used.

    Raises:
        ValueError: It has no length, or a sampler leaves examples out.
    """
    dataset, collate, notes = parted(source, name)
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        raise ValueError(
            f"{name}: a map-style dataset must have a length: {type(dataset).__name__} has no __len__"
        ) from None
    sampler: Any = source.sampler if isinstance(source, DataLoader) else dataset
    if len(sampler) != count:
        raise ValueError(
            f"{name}: a sampler must not choose examples: {type(sampler).__name__} has "
            f"{len(sampler)} of {count}; give a DataLoader of a torch.utils.data.Subset"
        )
    return Items(dataset, collate, name), notes


def parted(source: Any, name: str) -> tuple[Any, Any, list[str]]:
    """The dataset and how it is collated, and what of a loader is not used.

    Raises:
        ValueError: A loader forms no batches.
    """
    if not isinstance(source, DataLoader):
        return source, default_collate, []
    if source.batch_size is None and source.batch_sampler is None:
        raise ValueError(f"{name}: a DataLoader must form batches: got batch_size=None")
    note = (
        "of the DataLoader its dataset and collate_fn are taken; batch size, order and workers are the "
        "training's own"
    )
    return source.dataset, source.collate_fn, [note]


def encode_dataset(source: Any, encoding: Mapping[str, Any]) -> Arrays | Fetched:
    """The examples of a dataset by the record of a finished run.

    Raises:
        ValueError: An item cannot be used, or does not fit the record.
    """
    items, _ = items_of(source, "dataset")
    looked, _ = _surveyed(items, "auto")
    schema = Schema.from_json(encoding)
    targets = schema.targets_if(_targets_of(looked), len(looked.targets), items.name)
    wanted = tuple(schema.shape)
    got = seen_as(inputs_of(looked.first.inputs[0], items.name)).inputs.shape[1:]
    if tuple(got) != wanted:
        shape = ", ".join(str(size) for size in ("N", *wanted))
        raise ValueError(
            f"{items.name}: inputs must have shape ({shape}): got ({', '.join(map(str, ('N', *got)))})"
        )
    every = torch.arange(len(looked.targets))
    return _examples(items, looked, every, targets, wanted, schema.dtype)


def _surveyed(items: Items, memory: Memory) -> tuple[Survey, list[str]]:
    count = len(items.dataset)
    drawn = items.drawn(min(count, PROBED))
    most = 0 if drawn and memory == "auto" else room(memory)
    looked = survey(items.one_by_one(count), items.name, most_bytes=most)
    notes = []
    if drawn:
        how = "as they were drawn once" if looked.kept is not None else "anew each time they are taken"
        notes.append(f"items are drawn at random, held-out ones too: they are used {how}")
    elif looked.kept is None:
        notes.append("items are fetched from the dataset when they are taken")
    if looked.seconds > 10:
        notes.append(f"reading the {count} items once took {looked.seconds:.0f} s")
    return looked, notes


def understand(
    looked: Survey, name: str, task: TargetKind | None, domain: tuple[float, float] | None
) -> tuple[Raw[Tensor], Domain | None]:
    """What a survey says of a dataset or a stream, by the rules of arrays, and the domain of its inputs.

    Raises:
        ValueError: The targets do not fit the task, or an input lies outside the domain.
    """
    y = _targets_of(looked)
    raw = raw_of_first(name, looked.first.inputs[0], y, len(looked.targets), task, domain)
    if raw.domain is None:
        return raw, None
    return raw, domain_of(name, raw.domain, raw.dtype, {"they lie": looked.span})


def _targets_of(looked: Survey) -> Tensor | None:
    """The targets that a survey found."""
    return looked.targets if looked.targets.ndim == 1 else None


def _fetched(items: Items, looked: Survey, raw: Raw[Tensor], domain: Domain | None, split: Split) -> Data:
    """Data whose inputs are several, or are fetched when they are taken."""
    parts, record = cut(items.name, raw.targets, raw.task, split, raw.classes)
    shape = tuple(raw.inputs.shape[1:])
    splits = {
        part: _examples(items, looked, index, raw.typed(raw.targets), shape, raw.dtype)
        for part, index in parts.items()
    }
    moments = Moments("channel" if raw.inputs.ndim == 4 else "feature")
    for batch in InOrder(splits["train"], _BATCH, dtype=raw.dtype):
        moments.add(batch.inputs[0])
    return data_of(raw, splits, record, moments.standardize(), domain)


def _examples(
    items: Items,
    looked: Survey,
    index: Tensor,
    targets: Tensor | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Arrays | Fetched:
    """The examples at ``index``, of the targets of all: in memory where the survey kept the inputs."""
    targets = None if targets is None else targets[index]
    shapes = (shape, *looked.shapes[1:])
    if looked.kept is None:
        return Fetched(items, index, targets, looked.targets[index], shapes, dtype)
    first, *rest = (
        x[index].reshape(len(index), *shape) for x, shape in zip(looked.kept, shapes, strict=True)
    )
    return Arrays((first.to(dtype), *rest), targets)
