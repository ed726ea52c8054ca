"""Segments cut at the points where a piecewise-linear map has its kinks: the mesh of one dimension.

On each interval a value is affine, so its zero is at a / (a - b) between the ends with values a and b: the
breakpoints are computed, not sampled.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOUCH = 1e-11
"""A value within this share of the layer's largest on the same segment counts as on the knot: an interval
or a polygon is not cut where it is only touched."""


MEMORY = 2**30
"""Bytes that the values of one layer at all vertices may take."""


class OutOfRoom(ArithmeticError):
    """The values at the vertices would take too much memory."""


class Insertion(NamedTuple):
    """Rows of a generation from those of the one before: (1 - weight) rows[left] + weight rows[right]."""

    left: Int[Tensor, " rows"]
    right: Int[Tensor, " rows"]
    weight: Float[Tensor, " rows"]

    def of(self, rows: Tensor) -> Tensor:
        """Values at the rows of this generation."""
        weight = self.weight.reshape(-1, *[1] * (rows.ndim - 1))
        return torch.lerp(rows[self.left], rows[self.right], weight)


class Crossings(NamedTuple):
    """Where a column passes a knot on the interval that begins at ``row``, in order along the segments."""

    row: Int[Tensor, " crossings"]
    weight: Float[Tensor, " crossings"]
    column: Int[Tensor, " crossings"]
    knot: Float[Tensor, " crossings"]
    vertex: Int[Tensor, " crossings"]


class Chains:
    """Segments, each a chain of intervals between vertices in order.

    Args:
        segments: Their number; each begins as one interval from 0 to 1.
    """

    def __init__(self, segments: int, device: torch.device | str = "cpu") -> None:
        self.generation = 0
        self.segment = torch.arange(segments, device=device).repeat_interleave(2)
        self.position = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device).repeat(segments)
        self._history: list[Insertion] = []

    @property
    def rows(self) -> int:
        """The number of vertices."""
        return len(self.segment)

    def extend(self, values: Tensor, generation: int) -> Tensor:
        """Values at the vertices of an earlier generation, at those of the present one."""
        for insertion in self._history[generation:]:
            values = insertion.of(values)
        return values

    def refine(self, values: Float[Tensor, "rows features"], knots: tuple[float, ...]) -> Tensor:
        """Cut the intervals where a value passes a knot; the values at all vertices, old and new.

        Two breakpoints that rounding cannot tell apart are one vertex.

        Raises:
            OutOfRoom: The values would take too much memory.
            ArithmeticError: A value is not finite.
        """
        touch = TOUCH * self._scale(values)[:, None]
        found, values = self._crossings(values, knots, touch)
        first = found.vertex.diff(prepend=found.vertex.new_tensor([-1])) > 0
        row, weight = found.row[first], found.weight[first]
        new = row + 1 + torch.arange(len(row), device=row.device)
        count = len(values) + len(row)
        if 8 * count * values.shape[1] > MEMORY:
            raise OutOfRoom(f"{values.shape[1]:,} values at {count:,} breakpoints do not fit in memory")
        is_new = torch.zeros(count, dtype=torch.bool, device=row.device).index_fill_(0, new, True)
        left = torch.arange(count, device=row.device) - is_new.cumsum(0)
        share = values.new_zeros(count).index_copy_(0, new, weight)
        insertion = Insertion(left, left + is_new, share)
        refined = values.new_empty(count, values.shape[1])
        refined[~is_new] = values
        refined[new] = torch.lerp(values[row], values[row + 1], weight[:, None])
        refined[new[found.vertex], found.column] = found.knot
        self.position = insertion.of(self.position)
        self.segment = self.segment[left]
        self._history.append(insertion)
        self.generation += 1
        return refined

    def _scale(self, values: Tensor) -> Tensor:
        """The largest magnitude on the segment of each row."""
        low, high = values.aminmax(dim=1)
        each = torch.maximum(high, -low)
        if not bool(each.isfinite().all()):
            raise ArithmeticError("a value on the way to a kink is not finite")
        most = each.new_zeros(int(self.segment[-1]) + 1).scatter_reduce_(0, self.segment, each, "amax")
        return most[self.segment]

    def _crossings(self, values: Tensor, knots: tuple[float, ...], touch: Tensor) -> tuple[Crossings, Tensor]:
        """Where the values pass a knot; and the values, those that count as on a knot set to it."""
        inner = self.segment[1:] == self.segment[:-1]
        parts = []
        for knot in knots:
            above, below = values > knot + touch, values < knot - touch
            off = above | below
            if not bool(off.all()):
                values = values.masked_fill(~off, knot)
            passes = (above[:-1] & below[1:]) | (below[:-1] & above[1:])
            row, column = (passes & inner[:, None]).nonzero(as_tuple=True)
            a, b = values[row, column] - knot, values[row + 1, column] - knot
            parts.append((row, a / (a - b), column, torch.full_like(a, knot), touch[row, 0] / (a - b).abs()))
        row, weight, column, level, width = (torch.cat(part) for part in zip(*parts, strict=True))
        order = weight.argsort(stable=True)
        order = order[row[order].argsort(stable=True)]
        row, weight, column, level, width = (part[order] for part in (row, weight, column, level, width))
        same = (row[1:] == row[:-1]) & (weight.diff() <= width[1:])
        vertex = torch.cat((row.new_zeros(min(len(row), 1)), (~same).cumsum(0)))
        return Crossings(row, weight, column, level, vertex), values
