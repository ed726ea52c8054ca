"""The breakpoints of a piecewise-linear network on segments of inputs: all of them, computed layer by layer.

Activation regions are the intervals between them; linear regions are left when neighbors with the same
affine map are merged (Hanin and Rolnick 2019).

On each interval a value is affine, so its zero is at a / (a - b) between the ends with values a and b: the
breakpoints are computed, not sampled.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.math.evenly import evenly
from margin.theory.regions.followed import confirm, follow

TOUCH = 1e-11
"""A value within this share of the layer's largest on the same segment counts as on the knot: an interval
or a polygon is not cut where it is only touched."""


MEMORY = 2**27
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
        _check_room(len(values) + 1, values.shape[1])
        touch = TOUCH * self._scale(values)[:, None]
        found, values = self._crossings(values, knots, touch)
        first = found.vertex.diff(prepend=found.vertex.new_tensor([-1])) > 0
        row, weight = found.row[first], found.weight[first]
        new = row + 1 + torch.arange(len(row), device=row.device)
        count = len(values) + len(row)
        _check_room(count, values.shape[1])
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


def _check_room(vertices: int, columns: int) -> None:
    if 8 * vertices * columns > MEMORY:
        raise OutOfRoom(f"{columns:,} values at {vertices:,} breakpoints do not fit in memory")


CHUNK = 32
"""Segments followed at once: their values stay near the processor."""

ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Relative error of a value of the network, about: what a difference of slopes must exceed to be one."""


class Breakpoints(NamedTuple):
    """Where a network has its kinks on segments from x(0) = start to x(1) = end.

    Args:
        segment: The segment of each vertex, in order; a segment's first and last are its ends.
        position: t of each vertex, in [0, 1].
        outputs: Of the network at each vertex.
        bends: Whether the map changes at the vertex: not at the ends, nor at a kink that no output feels.
        activation_regions: Of each segment, the number of intervals.
        linear_regions: Of each segment, the number of intervals with different neighbors.
        layers: Name and number of kinks of each layer with some.
    """

    segment: Int[Tensor, " vertices"]
    position: Float[Tensor, " vertices"]
    outputs: Float[Tensor, "vertices outputs"]
    bends: Bool[Tensor, " vertices"]
    activation_regions: Int[Tensor, " segments"]
    linear_regions: Int[Tensor, " segments"]
    layers: list[tuple[str, int]]


@torch.no_grad()
def breakpoints(
    model: nn.Module,
    starts: Float[Tensor, " segments *features"],
    ends: Float[Tensor, " segments *features"],
    *,
    chunk: int = CHUNK,
) -> Breakpoints:
    """All breakpoints of the network on the segments from ``starts`` to ``ends``, and both counts of regions.

    Two slopes are taken for different where they differ by more than rounding can make them, which grows as
    an interval shrinks.

    Args:
        model: In evaluation mode and in float64; a continuous piecewise-linear map of one input.
        starts: x(0) of each segment.
        ends: x(1) of each segment.
        chunk: Segments followed at once; it changes nothing but speed and memory.

    Raises:
        ValueError: There is no segment, or a chunk is below 1.
        NotPiecewiseLinear: A layer is not piecewise linear; the message names it.
        CannotFollow: The forward is not made of known functions, or not row by row.
        ArithmeticError: A value is not finite, or the values on a single segment do not fit in memory.

    Reference: Hanin and Rolnick 2019, Section 2 (activation and linear regions).
    """
    if not len(starts) or chunk < 1:
        raise ValueError(f"segments and chunk must be at least 1: got {len(starts)} and {chunk}")
    parts = [
        part
        for first, (a, b) in enumerate(zip(starts.split(chunk), ends.split(chunk), strict=True))
        for part in _followed(model, a, b, first * chunk)
    ]
    tensors = (torch.cat(column) for column in zip(*(part[:-1] for part in parts), strict=True))
    segment, position, outputs, bends, activation, linear = tensors
    return Breakpoints(segment, position, outputs, bends, activation, linear, parts[0].layers)


def _followed(model: nn.Module, starts: Tensor, ends: Tensor, first: int) -> list[Breakpoints]:
    """The breakpoints on these segments, numbered from ``first``; in two halves where memory is short."""
    count = len(starts)
    mesh = Chains(count)
    points = torch.stack((starts, ends), 1).flatten(0, 1).double()
    try:
        outputs, layers = follow(model, points, mesh)
    except OutOfRoom:
        if count == 1:
            raise
        half = count // 2
        return [
            *_followed(model, starts[:half], ends[:half], first),
            *_followed(model, starts[half:], ends[half:], first + half),
        ]
    segment, position = mesh.segment, mesh.position
    _confirm(model, starts, ends, mesh, outputs)
    bends = _bends(segment, position, outputs)
    kinks = torch.bincount(segment, minlength=count) - 2
    bent = torch.bincount(segment[bends], minlength=count)
    return [Breakpoints(segment + first, position, outputs, bends, kinks + 1, bent + 1, layers)]


def _confirm(model: nn.Module, starts: Tensor, ends: Tensor, mesh: Chains, outputs: Tensor) -> None:
    """In the middle of an interval the output is the mean of those at its ends; a few are tried."""
    inner = (mesh.segment.diff() == 0).nonzero()[:, 0]
    inner = inner[evenly(len(inner), 8)]
    t = (mesh.position[inner] + mesh.position[inner + 1]) / 2
    own = mesh.segment[inner]
    points = torch.lerp(starts[own].double(), ends[own].double(), t.reshape(-1, *[1] * (starts.ndim - 1)))
    confirm(model, points, (outputs[inner] + outputs[inner + 1]) / 2)


def _bends(segment: Tensor, position: Tensor, outputs: Tensor) -> Tensor:
    """At which vertices the slopes of the two intervals differ by more than their rounding."""
    width = position.diff()
    width = torch.where(segment.diff() == 0, width, torch.inf)
    slopes = outputs.diff(dim=0) / width[:, None]
    scale = outputs.abs().amax(1)
    most = torch.zeros(int(segment[-1]) + 1, dtype=scale.dtype).scatter_reduce_(0, segment, scale, "amax")
    unsure = ROUNDING * most[segment[1:-1]] * (1 / width[:-1] + 1 / width[1:])
    bends = torch.zeros_like(segment, dtype=torch.bool)
    bends[1:-1] = (slopes.diff(dim=0).abs() > unsure[:, None]).any(1)
    inner = (segment[2:] == segment[1:-1]) & (segment[:-2] == segment[1:-1])
    bends[1:-1] &= inner
    return bends
