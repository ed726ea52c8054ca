"""The breakpoints of a piecewise-linear network on segments of inputs: all of them, computed layer by layer.

Activation regions are the intervals between them; linear regions are left when neighbors with the same
affine map are merged (Hanin and Rolnick 2019).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.theory.regions.chains import Chains, OutOfRoom
from margin.theory.regions.followed import confirm, follow

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
    inner = inner[torch.linspace(0, len(inner) - 1, min(len(inner), 8)).round().long()]
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
