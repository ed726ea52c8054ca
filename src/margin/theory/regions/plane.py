"""The activation and linear regions of a piecewise-linear network on a parallelogram in a plane of inputs.

Exact, by subdivision: layer by layer each neuron's line cuts the polygons that it crosses. Activation regions
have pairwise different patterns; linear regions are what remains when neighbors with the same affine map are
merged (Hanin and Rolnick 2019).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.theory.regions.chains import TOUCH
from margin.theory.regions.followed import confirm, follow
from margin.theory.regions.polygons import BUDGET, Cut, PlanarMap, TooManyCells

MEMORY = 2**25
"""Bytes that the values of one layer at all vertices may take; a few copies of them are held."""

SAME = 1e-9
"""Two Jacobians are the same where they differ by less than this share of the largest entry of any."""

SQUARE = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))


class PlaneMesh:
    """A planar map, refined where a value passes a knot, with the pattern of each cell.

    Args:
        plane: The map, refined in place.
        patterns: Whether to keep, for each cell, on which side of every knot it lies.
    """

    def __init__(self, plane: PlanarMap, *, patterns: bool = True) -> None:
        self.plane = plane
        self.generation = 0
        self.cells: list[int] = []
        self.patterns = torch.zeros(len(plane.loops), 0, dtype=torch.bool)
        self._keep = patterns
        self._history: list[list[Cut]] = []

    @property
    def rows(self) -> int:
        """The number of vertices."""
        return len(self.plane.points)

    def extend(self, values: Tensor, generation: int) -> Tensor:
        """Values at the vertices of an earlier generation, at those of the present one."""
        cuts = [cut for made in self._history[generation:] for cut in made]
        grown = values.new_empty(len(values) + sum(len(cut.left) for cut in cuts), *values.shape[1:])
        count = len(values)
        grown[:count] = values
        for cut in cuts:
            weight = cut.weight.reshape(-1, *[1] * (values.ndim - 1))
            grown[count : count + len(weight)] = torch.lerp(grown[cut.left], grown[cut.right], weight)
            count += len(weight)
        return grown

    def refine(self, values: Float[Tensor, "rows features"], knots: tuple[float, ...]) -> Tensor:
        """Cut the cells where a value passes a knot; the values at all vertices, old and new.

        A value within 1e-11 of the layer's largest counts as on the knot and is set to it.

        Raises:
            ArithmeticError: A value is not finite, or there are too many cells.
        """
        scale = float(values.abs().max()) if values.numel() else 0.0
        if not scale < float("inf"):
            raise ArithmeticError("a value on the way to a kink is not finite")
        grown = Grown(values, TOUCH * scale)
        cuts: list[Cut] = []
        self.plane.mark()
        for knot in knots:
            grown.settle(knot)
        for knot in knots:
            for column in grown.straddling(knot):
                cut = self.plane.cut(grown.column(column, knot))
                if cut is not None:
                    grown.add(cut, column, knot)
                    cuts.append(cut)
        refined = grown.values
        self._history.append(cuts)
        self.generation += 1
        self.cells.append(len(self.plane.loops))
        if self._keep:
            new = [self.plane.any_vertex(refined > knot) for knot in knots]
            self.patterns = torch.cat((self.patterns[self.plane.origin], *new), 1)
        return refined.T.contiguous()


class Grown:
    """Values at vertices to which more come, a row for each feature, in memory that is taken ahead.

    Args:
        values: At the first vertices.
        touch: What counts as on a knot.
    """

    def __init__(self, values: Float[Tensor, "rows features"], touch: float) -> None:
        self._all = values.T.contiguous()
        self._count = len(values)
        self._touch = touch

    @property
    def values(self) -> Float[Tensor, "features vertices"]:
        """The values at all vertices."""
        return self._all[:, : self._count]

    def settle(self, knot: float) -> None:
        """Set to the knot what counts as on it."""
        self.values.masked_fill_((self.values - knot).abs() <= self._touch, knot)

    def straddling(self, knot: float) -> list[int]:
        """The features with vertices on both sides of the knot; a cut makes no more of them."""
        low, high = self.values.aminmax(dim=1)
        return ((low < knot) & (high > knot)).nonzero()[:, 0].tolist()

    def column(self, column: int, knot: float) -> Tensor:
        """The values of a feature less the knot, 0 where they count as on it."""
        values = self.values[column]
        values.masked_fill_((values - knot).abs() <= self._touch, knot)
        return values - knot

    def add(self, cut: Cut, column: int, knot: float) -> None:
        """The values at the vertices of a cut, there those of the column are the knot.

        Raises:
            TooManyCells: They would take too much memory.
        """
        features, new = len(self._all), len(cut.left)
        if (end := self._count + new) > self._all.shape[1]:
            room = max(2 * self._all.shape[1], end)
            if 8 * features * end > MEMORY:
                raise TooManyCells(
                    f"there are more regions than fit in memory: {features:,} values at {end:,} vertices"
                )
            self._all = torch.cat((self._all, self._all.new_empty(features, room - self._all.shape[1])), 1)
        held = self._all
        held[:, self._count : end] = torch.lerp(held[:, cut.left], held[:, cut.right], cut.weight)
        held[column, self._count : end] = knot
        self._count = end


class PlaneRegions(NamedTuple):
    """The regions on x(u, v) = origin + u first + v second, (u, v) in the square [-1, 1]^2.

    Args:
        plane: The activation regions, as polygons in (u, v).
        patterns: For each region, which pre-activation is above its kink, in the order of the forward.
        outputs: At the vertices of the map.
        jacobians: For each region, the derivatives of the outputs by u and by v.
        linear: For each region, the number of the linear region of which it is a part.
        layers: Name and number of kinks of each layer with some.
        cells: The number of regions after each of these layers.
    """

    plane: PlanarMap
    patterns: Bool[Tensor, "cells kinks"]
    outputs: Float[Tensor, "vertices outputs"]
    jacobians: Float[Tensor, "cells outputs 2"]
    linear: Int[Tensor, " cells"]
    layers: list[tuple[str, int]]
    cells: list[int]

    @property
    def activation_regions(self) -> int:
        """How many cells have an interior in the square."""
        return len(self.plane.loops)

    @property
    def linear_regions(self) -> int:
        """How many are left when neighbors with the same affine map are merged."""
        return int(self.linear.max()) + 1

    def flaw(self) -> str:
        """What speaks against the count: areas, Euler's formula, equal patterns; "" where nothing does."""
        areas = self.plane.areas()
        if not bool((areas > 0).all()) or abs(float(areas.sum()) - 4) > 1e-9:
            return f"the areas of the polygons sum to {float(areas.sum())!r}, not to 4"
        if (euler := self.plane.euler()) != 1:
            return f"V - E + F = {euler}, not 1"
        # A layer of no kinks leaves empty patterns, of which there is one.
        patterns = torch.nn.functional.pad(self.patterns, (0, 1))
        if len(torch.unique(patterns, dim=0)) != self.activation_regions:
            return "two regions have the same pattern"
        return ""


def plane_regions(
    model: nn.Module,
    origin: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    budget: int = BUDGET,
) -> PlaneRegions:
    """All regions with an interior in the parallelogram origin + u first + v second, |u|, |v| <= 1.

    Args:
        model: In evaluation mode and in float64; a continuous piecewise-linear map of one input.
        origin: The middle, one input without a batch axis.
        first: The direction of u.
        second: The direction of v, not parallel to it.
        budget: Regions at most.

    Returns:
        The polygons, exact up to rounding: a value within 1e-11 of the layer's largest counts as on a line.

    Raises:
        NotPiecewiseLinear: A layer is not piecewise linear; the message names it.
        CannotFollow: The forward is not made of known functions, or not row by row.
        TooManyCells: There are more regions than the budget.
        ArithmeticError: A value is not finite, or the values do not fit in memory.

    Reference: Hanin and Rolnick 2019, Section 2 (activation and linear regions).
    """
    plane = PlanarMap(torch.tensor(SQUARE, dtype=torch.float64), budget=budget)
    mesh = PlaneMesh(plane)

    def place(points: Tensor) -> Tensor:
        u, v = points.reshape(-1, 2, *[1] * origin.ndim).unbind(1)
        return origin + u * first + v * second

    outputs, layers = follow(model, place(plane.points), mesh)
    middles = plane.centroids()
    # Affine on every cell: in the middle of its vertices the output is the mean of theirs.
    confirm(model, place(middles), plane.means(outputs))
    jacobians = jacobians_at(model, place, middles)
    linear = merged(plane, jacobians)
    return PlaneRegions(plane, mesh.patterns, outputs, jacobians, linear, layers, mesh.cells)


@torch.enable_grad()
def jacobians_at(
    model: nn.Module,
    place: Callable[[Tensor], Tensor],
    points: Float[Tensor, "points 2"],
    *,
    chunk: int = 2048,
) -> Float[Tensor, "points outputs 2"]:
    """The derivatives of the outputs by the plane's coordinates.

    The product with a direction is the derivative by v of the backward product J^T v, which is linear in v:
    two of them, however many outputs there are.

    Args:
        model: In evaluation mode.
        place: The affine map from the plane to inputs.
        points: Where; off every kink.
        chunk: Points at once.
    """
    rows = []
    for part in points.split(chunk):
        at = part.detach().requires_grad_()
        outputs = model(place(at)).reshape(len(part), -1)
        v = torch.zeros_like(outputs, requires_grad=True)
        (backward,) = torch.autograd.grad(outputs, at, v, create_graph=True, materialize_grads=True)
        sides = [
            torch.autograd.grad(column.sum(), v, retain_graph=True, materialize_grads=True)[0]
            for column in backward.unbind(1)
        ]
        rows.append(torch.stack(sides, 2).detach())
    return torch.cat(rows)


def merged(plane: PlanarMap, jacobians: Float[Tensor, "cells outputs 2"]) -> Int[Tensor, " cells"]:
    """The number of the connected part to which each cell belongs, of cells with the same affine map.

    Two neighbors that share an edge agree on it, so that they have the same map where their Jacobians are the
    same.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    cells = plane.edges().cells
    cells = cells[cells[:, 1] >= 0]
    scale = float(jacobians.abs().max())
    one, other = cells.T
    gap = (jacobians[one] - jacobians[other]).abs().flatten(1).amax(1)
    same = cells[gap <= SAME * scale].numpy()
    count = len(jacobians)
    graph = coo_matrix(([True] * len(same), (same[:, 0], same[:, 1])), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    return torch.from_numpy(labels).long()
