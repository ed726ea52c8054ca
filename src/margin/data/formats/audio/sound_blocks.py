"""Sound for generation: the mu-law codes of each sample in blocks, each with the code that comes next."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import Data
from margin.data.formats.sequences.rows import evaluation_batch
from margin.data.splits import Split


@dataclass(frozen=True, slots=True, eq=False)
class CodeBlocks:
    """Blocks of ``time`` codes within clips, as views of one row of codes; targets are the codes one later.

    Args:
        codes: The codes of all clips, one clip after the other.
        starts: Where each block begins.
        time: Codes a block.
    """

    codes: Int[Tensor, " total"]
    starts: Int[Tensor, " blocks"]
    time: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def targets(self) -> Int[Tensor, "blocks time"]:
        """The next code at every place of every block."""
        return self.codes[self.starts[:, None] + torch.arange(1, self.time + 1)]

    @property
    def evaluation_batch(self) -> int:
        """Blocks a batch of an evaluation."""
        return evaluation_batch(self.time)

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The blocks at ``index``; nothing is drawn."""
        at = self.starts.index_select(0, index)[:, None] + torch.arange(self.time)
        return Batch((self.codes[at],), self.codes[at + 1])

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [self.codes, self.starts]


def block_data(
    name: str,
    clips: Sequence[Int[Tensor, " _time"]],
    time: int,
    split: Split,
    record: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> Data:
    """Data of blocks of codes; the parts are cut in the order of the clips, and no block reads two clips.

    Args:
        name: What messages call it.
        clips: The codes of each clip.
        time: Codes a block, at least 1.
        split: The shares of the parts, among the blocks.
        record: What the encoding keeps of the sound: format, rate, levels.
        notes: What was assumed.

    Raises:
        ValueError: ``time`` is below 1, or there are not enough blocks for the parts.
    """
    if time < 1:
        raise ValueError(f"time must be at least 1 code a block: got {time}")
    codes = torch.cat(list(clips))
    starts, begin, left = [], 0, 0
    for clip in clips:
        count = max(0, (len(clip) - 1) // time)  # the last code of a block needs one that comes next
        starts += [begin + k * time for k in range(count)]
        left += len(clip) - count * time
        begin += len(clip)
    blocks = torch.tensor(starts, dtype=torch.int64)
    parts = _in_order(name, len(blocks), split, time)
    splits = {part: CodeBlocks(codes, blocks[index], time) for part, index in parts.items()}
    seconds = len(codes) / int(record["rate"])
    digest = hashlib.sha256(codes.numpy().tobytes())
    for part in splits.values():
        digest.update(part.starts.numpy().tobytes() + str(time).encode())
    return Data(
        name=name,
        splits=splits,
        spec={
            "vocab_size": int(record["levels"]),
            "time": time,
            "num_examples": len(splits["train"]),
        },
        encoding={
            "kind": "tokens",
            "task": "tokens",
            "shape": [time],
            "dtype": "int64",
            "classes": [],
            "split": split.as_json(official=False),
            "about": [
                ["sound", f"{len(clips):,} clips of {record['rate']:,} Hz, {seconds:.4g} s in all"],
                ["blocks", f"{len(blocks):,} of {time:,} mu-law codes, {record['levels']} levels"],
            ],
            **record,
        },
        fingerprint=digest.hexdigest(),
        notes=(*notes, f"{left:,} of {len(codes):,} samples are in no block: the ends of the clips"),
    )


def _in_order(name: str, count: int, split: Split, time: int) -> dict[str, Tensor]:
    shares = split.shares()
    ends: dict[str, int] = {}
    done = 0.0
    for part in ("train", "val", "test"):
        if part in shares:
            done += float(shares[part])
            ends[part] = round(count * done)
    cut: dict[str, Tensor] = {}
    begin = 0
    for part, end in ends.items():
        cut[part] = torch.arange(begin, end)
        begin = end
    if empty := [part for part, index in cut.items() if len(index) == 0]:
        raise ValueError(
            f"{name}: every part ({', '.join(cut)}) needs a block of {time} codes: "
            f"the {empty[0]} part has none of {count}; set --data.time lower, or give more sound"
        )
    return cut
