"""Numbers whose spread is small beside their size: milliseconds since 1970, dates written as one number.

float32 has 24 binary digits (IEEE 754): where a value is 4,096 times the standard deviation and more, fewer
than twelve of them are left for what tells the values apart.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 4096.0
"""Size over standard deviation from which on float32 is not enough."""


def is_wide(values: NDArray[Any]) -> bool:
    """Whether a column of finite numbers needs float64: its largest size is LARGE deviations or more.

    A column of one value has no spread that could be lost.
    """
    if not len(values):
        return False
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # the deviation is at least (high - low) / (2 sqrt n) and at most (high - low) / 2
    if low == high or size < LARGE * (high - low) / (2 * len(values) ** 0.5):
        return False
    return size >= LARGE * float(np.std(values, dtype=np.float64))


def wide_columns(x: NDArray[Any]) -> NDArray[np.bool_]:
    """:func:`is_wide` of every column of a matrix."""
    return np.array([is_wide(column) for column in x.T], dtype=bool)
