"""Rows of several lengths, one behind another: which places a choice of them takes."""

import torch
from jaxtyping import Int
from torch import Tensor


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
