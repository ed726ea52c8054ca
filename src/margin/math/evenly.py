"""Indices evenly spread over a list: what is kept of many points that a picture or a probe cannot take."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def evenly(count: int, most: int) -> Int[Tensor, " kept"]:
    """Indices of at most so many of ``count`` things, in order, with the first and the last.

    Args:
        count: How many there are.
        most: How many are kept; all where there are no more.
    """
    return torch.linspace(0, max(count - 1, 0), min(count, most), dtype=torch.float64).round().long()


def in_order(values: Float[Tensor, " count"], most: int) -> Float[Tensor, " kept"]:
    """A sample of numbers in order, thinned evenly to at most so many."""
    return values.sort().values[evenly(len(values), most)]
