"""A convex polygon cut again and again along lines: a planar map of convex cells that share vertices.

A cut is given by one value at each vertex of a function that is continuous and affine on every cell. Cells
share vertices, so two neighbors agree where their common edge is cut, whatever the rounding: the map stays
planar (V - E + F = 1, Euler 1758) by construction. All cells that a function cuts are cut at once.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BUDGET = 200_000
"""Cells at most, unless asked otherwise."""


class TooManyCells(ArithmeticError):
    """A map would have more cells than it may."""


class Cut(NamedTuple):
    """The vertices that a cut adds: (1 - weight) of ``left`` and weight of ``right``."""

    left: Int[Tensor, " new"]
    right: Int[Tensor, " new"]
    weight: Float[Tensor, " new"]


class Edges(NamedTuple):
    """The edges of a map: their ends, and the cells on their sides, -1 beyond the border."""

    ends: Int[Tensor, "edges 2"]
    cells: Int[Tensor, "edges 2"]


class PlanarMap:
    """Convex cells in the plane, at first one.

    A cell is the loop of its vertices, counterclockwise where the first polygon is; ``loops`` has a row for
    each cell, filled up with -1. ``origin`` gives the cell of the last :meth:`mark` of which each is a part.

    Args:
        corners: The first polygon, convex, in order.
        budget: Cells at most.
    """

    def __init__(self, corners: Float[Tensor, "corners 2"], *, budget: int = BUDGET) -> None:
        if len(corners) < 3 or budget < 1:
            raise ValueError(
                f"a polygon has 3 corners or more, the budget is at least 1: "
                f"got {len(corners)} corners, budget {budget}"
            )
        self.points = corners.double()
        self.loops = torch.arange(len(corners), device=corners.device)[None]
        self.sizes = self.loops.new_tensor([len(corners)])
        self.origin = self.loops.new_zeros(1)
        self.budget = budget

    def mark(self) -> None:
        """Let ``origin`` number the cells as they are now."""
        self.origin = torch.arange(len(self.loops), device=self.loops.device)

    def cut(self, values: Float[Tensor, " vertices"]) -> Cut | None:
        """Cut every cell along the zero set of a function; the new vertices, None where nothing is cut.

        The degenerate cases are decided by the signs at the vertices alone, so the caller sets to 0 what it
        holds for 0: a cell is cut where it has a vertex above 0 and one below. A line through a vertex cuts
        there; of several vertices in a row on the line, between two sides, the first in the loop is taken.
        A cell that is only touched, or where the function vanishes, stays whole.

        Raises:
            TooManyCells: The budget would be exceeded.
            ArithmeticError: A cell changes sides more than twice: the function is not affine on it.
        """
        sign = torch.cat((values.sign(), values.new_zeros(1))).to(torch.int8)
        at = sign[self.loops]
        crossed = ((at > 0).any(1) & (at < 0).any(1)).nonzero()[:, 0]
        if not len(crossed):
            return None
        if len(self.loops) + len(crossed) > self.budget:
            raise TooManyCells(f"there are more than {self.budget:,} regions")
        loops, sizes, side = self.loops[crossed], self.sizes[crossed, None], at[crossed]
        slots = torch.arange(loops.shape[1], device=loops.device)
        inside = slots < sizes
        following = torch.where(slots + 1 < sizes, slots + 1, 0).expand(len(loops), -1)
        if bool(((side == 0) & inside).any()):
            side = _decided(side, following, (slots - 1) % sizes)
        breaks = inside & (side * side.gather(1, following) < 0)
        on = inside & (side == 0)
        if bool(((breaks | on).sum(1) != 2).any()):
            raise ArithmeticError("a function is not affine on a cell: rounding has the better of it")
        cut, made = self._new_vertices(values, loops, loops.gather(1, following), breaks)
        both = torch.stack((loops, made), 2).flatten(1)
        parts = [torch.stack((inside & keep, breaks), 2).flatten(1) for keep in (side >= 0, side <= 0)]
        self._replace(crossed, both, parts)
        ends = self.points[cut.left], self.points[cut.right]
        self.points = torch.cat((self.points, torch.lerp(*ends, cut.weight[:, None])))
        return cut

    def _new_vertices(
        self, values: Tensor, loops: Tensor, after: Tensor, breaks: Tensor
    ) -> tuple[Cut, Tensor]:
        """A vertex on each edge that is cut, the same for both of its cells; and where loops get it."""
        count = len(values)
        low, high = torch.minimum(loops, after)[breaks], torch.maximum(loops, after)[breaks]
        keys, which = torch.unique(low * count + high, return_inverse=True)
        left, right = keys // count, keys % count
        made = torch.full_like(loops, -1)
        made[breaks] = count + which
        return Cut(left, right, values[left] / (values[left] - values[right])), made

    def _replace(self, crossed: Tensor, loops: Tensor, parts: list[Tensor]) -> None:
        """The part above takes its cell's place, the part below is added at the end."""
        sizes = [part.sum(1) for part in parts]
        width = int(torch.stack([size.max() for size in sizes]).max())
        packed = []
        for part in parts:
            order = (~part).to(torch.int8).argsort(dim=1, stable=True)[:, :width]
            packed.append(torch.where(part.gather(1, order), loops.gather(1, order), -1))
        have = self.loops.shape[1]
        kept = (
            self.loops if have >= width else torch.nn.functional.pad(self.loops, (0, width - have), value=-1)
        )
        above, below = (torch.nn.functional.pad(p, (0, kept.shape[1] - width), value=-1) for p in packed)
        self.loops = torch.cat((kept.index_copy(0, crossed, above), below))
        self.sizes = torch.cat((self.sizes.index_copy(0, crossed, sizes[0]), sizes[1]))
        self.origin = torch.cat((self.origin, self.origin[crossed]))

    # what the map is

    def areas(self) -> Float[Tensor, " cells"]:
        """The area of each cell, with the sign of its orientation (the shoelace formula)."""
        a, b, _ = self._sides()
        return (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]).sum(1) / 2

    def centroids(self) -> Float[Tensor, "cells 2"]:
        """The mean of each cell's vertices: a point of its interior."""
        return self.means(self.points)

    def means(self, values: Float[Tensor, "vertices features"]) -> Float[Tensor, "cells features"]:
        """The mean over each cell's vertices of values given there."""
        padded = torch.cat((values, torch.zeros_like(values[:1])))
        total = padded[self.loops[:, 0]]
        for slot in range(1, self.loops.shape[1]):
            total += padded[self.loops[:, slot]]
        return total / self.sizes[:, None]

    def _sides(self) -> tuple[Tensor, Tensor, Tensor]:
        """Begin and end of each side, from the first vertex of the cell; 0 where a loop is filled up."""
        slots = torch.arange(self.loops.shape[1], device=self.loops.device)
        inside = slots < self.sizes[:, None]
        after = torch.where(slots + 1 < self.sizes[:, None], slots + 1, 0)
        origin = self.points[self.loops[:, :1]]
        a = torch.where(inside[..., None], self.points[self.loops] - origin, 0.0)
        b = torch.where(inside[..., None], self.points[self.loops.gather(1, after)] - origin, 0.0)
        return a, b, inside

    def edges(self) -> Edges:
        """Every edge once.

        Raises:
            ArithmeticError: An edge has more than two sides: the map is not planar.
        """
        slots = torch.arange(self.loops.shape[1], device=self.loops.device)
        inside = slots < self.sizes[:, None]
        after = self.loops.gather(1, torch.where(slots + 1 < self.sizes[:, None], slots + 1, 0))
        low, high = torch.minimum(self.loops, after)[inside], torch.maximum(self.loops, after)[inside]
        cell = torch.arange(len(self.loops), device=self.loops.device)[:, None].expand_as(self.loops)[inside]
        count = len(self.points)
        keys, order = (low * count + high).sort(stable=True)
        cell = cell[order]
        again = torch.cat((keys.new_zeros(1, dtype=torch.bool), keys[1:] == keys[:-1]))
        if bool((again[1:] & again[:-1]).any()):
            raise ArithmeticError("an edge has more than two sides")
        first = (~again).nonzero()[:, 0]
        has_other = torch.zeros_like(again)
        has_other[:-1] = again[1:]
        other = torch.where(has_other[first], cell[(first + 1).clamp(max=len(cell) - 1)], -1)
        ends = torch.stack((keys[first] // count, keys[first] % count), 1)
        return Edges(ends, torch.stack((cell[first], other), 1))

    def euler(self) -> int:
        """V - E + F, the bounded cells counted: 1 for a planar map of a disk."""
        return len(self.points) - len(self.edges().ends) + len(self.loops)

    def any_vertex(self, holds: Bool[Tensor, "features vertices"]) -> Bool[Tensor, "cells features"]:
        """Which features hold at some vertex of each cell."""
        holds = torch.cat((holds, holds.new_zeros(len(holds), 1)), 1)
        found = holds[:, self.loops[:, 0]]
        for slot in range(1, self.loops.shape[1]):
            found |= holds[:, self.loops[:, slot]]
        return found.T


def _decided(side: Tensor, following: Tensor, before: Tensor) -> Tensor:
    """The sides of a loop's vertices where only the two cut points are left at 0.

    A vertex on the line stays there where the next ones before and after it off the line are on two sides and
    it is the first of its run; else it goes with the next.
    """
    after, ahead = side.gather(1, following), side.gather(1, before)
    first = ahead != 0
    for _ in range(side.shape[1]):
        after = torch.where(after == 0, after.gather(1, following), after)
        ahead = torch.where(ahead == 0, ahead.gather(1, before), ahead)
    stays = first & (after != ahead)
    return torch.where((side == 0) & ~stays, after, side)
