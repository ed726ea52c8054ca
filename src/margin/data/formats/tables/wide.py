"""Numbers whose spread is small beside their size: milliseconds since 1970, dates written as one number.

float32 has 24 binary digits (IEEE 754): where a value is 4,096 times the standard deviation and more, fewer
than twelve of them are left for what tells the values apart.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGE = 4096.0
"""Size over standard deviation from which on float32 is not enough."""

LARGE_TARGET = 256.0
"""The same of a target, of which a model may leave a residual much smaller than its deviation."""


def is_wide(values: NDArray[Any], large: float = LARGE) -> bool:
    """Whether a column of finite numbers needs float64: its largest size is LARGE deviations or more.

    A column of one value has no spread that could be lost.
    """
    if not len(values):
        return False
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # the deviation is at least (high - low) / (2 sqrt n) and at most (high - low) / 2
    if low == high or size < large * (high - low) / (2 * len(values) ** 0.5):
        return False
    return size >= large * float(np.std(values, dtype=np.float64))


def is_wide_target(values: NDArray[Any]) -> bool:
    """Whether targets need float64: large beside their spread, or whole numbers that float32 rounds."""
    whole = bool((values == np.round(values)).all())
    rounded = whole and bool((values.astype(np.float32).astype(np.float64) != values).any())
    return rounded or is_wide(values, LARGE_TARGET)


def wide_columns(x: NDArray[Any]) -> NDArray[np.bool_]:
    """:func:`is_wide` of every feature of inputs (N, ...)."""
    return np.array([is_wide(column) for column in x.reshape(len(x), -1).T], dtype=bool)


def wide_of(inputs: Tensor, targets: Tensor, task: str) -> tuple[bool, list[str]]:
    """Whether vectors or values need float64, and what is said of the features and targets that do."""
    vectors = inputs.dtype == torch.float64 and inputs.ndim == 2
    places = np.flatnonzero(wide_columns(inputs.numpy())).tolist() if vectors else []
    said = [
        f"feature {k} varies little beside its size, less than float32 resolves: it is kept in float64"
        for k in places
    ]
    if task == "values" and is_wide_target(targets.double().numpy()):
        said.append("the targets are large beside their spread: they are kept in float64")
    return bool(said), said
