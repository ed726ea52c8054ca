"""Examples of an array that stays in its file: checked once, read and converted when they are taken."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.arrays import inputs_of
from margin.data.assembly import Raw, cut, data_of, domain_of
from margin.data.examples import Data
from margin.data.preprocess import Moments
from margin.data.splits import Split, coded

BLOCK = 2**22
"""Bytes of a file that are read at a time: 4 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Examples whose inputs are read from their file when they are taken.

    Args:
        array: The mapped array, one row an example.
        index: Which of its rows are the examples.
        targets: Their targets, or None.
        dtype: The type in which inputs are given.
        groups: As of :class:`margin.data.examples.Arrays`.
    """

    array: NDArray[np.generic]
    index: Int[Tensor, " n"]
    targets: Tensor | None
    dtype: torch.dtype
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The examples at ``index``; nothing is drawn."""
        rows = self.array[self.index[index].numpy()]
        inputs = torch.from_numpy(rows.astype(rows.dtype.newbyteorder("="))).to(self.dtype)
        inputs = inputs[:, None] if inputs.ndim == 3 else inputs
        return Batch((inputs,), None if self.targets is None else self.targets[index])


def blocks(array: NDArray[np.generic]) -> Iterator[slice]:
    """Rows of an array that take :data:`BLOCK` bytes, block after block."""
    rows = max(1, BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield slice(start, min(start + rows, len(array)))


def checked(array: NDArray[np.generic], name: str) -> tuple[Tensor, tuple[float, float], str]:
    """One pass over the rows: the first block as inputs, least and largest number, SHA-256 of all bytes.

    Raises:
        ValueError: As :func:`margin.data.arrays.inputs_of`, for the first block that it refuses.
    """
    digest, low, high, first = hashlib.sha256(), float("inf"), -float("inf"), None
    for block in blocks(array):
        where = f"{name}, rows {block.start} .. {block.stop - 1}"
        x = inputs_of(array[block], where)
        first = x if first is None else first
        low, high = min(low, float(x.min())), max(high, float(x.max()))
        digest.update(x.numpy().tobytes())
    return inputs_of(array, name) if first is None else first, (low, high), digest.hexdigest()


def mapped_data(name: str, array: NDArray[np.generic], raw: Raw[Tensor], split: Split) -> Data:
    """The Data of an array in its file, by what its targets say.

    Args:
        name: What messages call the file.
        array: The mapped array.
        raw: The checked targets, with the first rows as inputs.
        split: Fractions and seed.
    """
    _, span, digest = checked(array, name)
    parts, record = cut(raw.name, raw.targets, raw.task, split, raw.classes, groups=raw.groups)
    splits = {
        part: Mapped(array, index, raw.typed(raw.targets[index]), raw.dtype, coded(raw.groups, index))
        for part, index in parts.items()
    }
    moments = Moments("channel" if raw.inputs.ndim == 4 else "feature")
    for block in splits["train"].index.split(max(1, BLOCK // max(1, array[:1].nbytes))):
        rows = array[block.numpy()]
        x = torch.from_numpy(rows.astype(rows.dtype.newbyteorder("="))).to(raw.dtype)
        moments.add(x[:, None] if x.ndim == 3 else x)
    domain = None if raw.domain is None else domain_of(name, raw.domain, raw.dtype, {"the inputs lie": span})
    data = data_of(raw, splits, record, moments.standardize(), domain)
    seen = hashlib.sha256(digest.encode() + raw.targets.numpy().tobytes())
    seen.update(json.dumps(data.encoding, sort_keys=True).encode())
    note = f"the inputs stay in {name} and are read when taken: {array.nbytes / 2**30:.3g} GiB"
    return replace(data, fingerprint=seen.hexdigest(), notes=(*data.notes, note))
