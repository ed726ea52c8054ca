"""Two samples beside each other: rows of one width, checked, in float64, and distances between them.

What is measured of a generator is a function of two samples, its own and the data's.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

CHUNK = 2**23
"""Distances that are held at a time."""

SHORT = 16
"""Columns up to which each distance is computed from its own difference."""

CANCELED = 1e-9
"""Share of |x|^2 + |y|^2 below which too few digits are left of a squared distance."""


def rows(x: Tensor, name: str, *, least: int = 1) -> Float[Tensor, "n dim"]:
    """A sample as rows in float64; what has more axes, as images, is flattened.

    Args:
        x: (n, ...), n examples.
        name: How a message calls the sample.
        least: Rows that are needed.

    Raises:
        ValueError: There are too few rows, an axis is missing, or a number is not finite.
    """
    if x.ndim < 2:
        raise ValueError(f"{name} must have a row for each example, (n, dim): got {tuple(x.shape)}")
    if len(x) < least:
        raise ValueError(f"{name} must have at least {least} rows: got {len(x)}")
    x = x.detach().flatten(1).double()
    if bad := int((~x.isfinite()).any(1).sum()):
        raise ValueError(f"{name} must be finite: got {bad} of {len(x)} rows that are not")
    return x


def pair(
    x: Tensor,
    y: Tensor,
    *,
    least: int = 1,
    names: tuple[str, str] = ("the first sample", "the second sample"),
) -> tuple[Float[Tensor, "n dim"], Float[Tensor, "m dim"]]:
    """Two samples as rows of one width, in float64.

    Args:
        x: (n, ...).
        y: (m, ...).
        least: Rows that each needs.
        names: How a message calls them.

    Raises:
        ValueError: As :func:`rows`, or the widths differ.
    """
    first, second = rows(x, names[0], least=least), rows(y, names[1], least=least)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"two samples must have rows of one width: got {names[0]} {first.shape[1]}, "
            f"{names[1]} {second.shape[1]}"
        )
    return first, second


def distances(x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"]) -> Float[Tensor, "n m"]:
    """Euclidean distances in float64, relative error at most 1e-5; those of equal rows are 0.

    Long rows are multiplied, |x|^2 + |y|^2 - 2 x y, which is faster by far; what cancels is computed again.
    """
    if x.shape[1] <= SHORT:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    middle = y.mean(0)
    u, v = x - middle, y - middle
    size = u.square().sum(1)[:, None] + v.square().sum(1)
    squared = torch.addmm(size, u, v.T, alpha=-2)
    i, j = (squared < CANCELED * size).nonzero(as_tuple=True)
    for some in torch.arange(len(i), device=x.device).split(max(1, CHUNK // x.shape[1])):
        squared[i[some], j[some]] = (x[i[some]] - y[j[some]]).square().sum(1)
    return squared.clamp(min=0).sqrt()


def blocks(x: Float[Tensor, "n dim"], y: Float[Tensor, "m dim"]) -> Iterator[tuple[slice, Tensor]]:
    """The distances a block of rows of ``x`` at a time: which rows, and theirs to all of ``y``."""
    size = max(1, CHUNK // len(y))
    for start in range(0, len(x), size):
        part = slice(start, min(start + size, len(x)))
        yield part, distances(x[part], y)
