"""The activation and linear regions of a piecewise-linear network on a parallelogram in a plane of inputs.

Exact, by subdivision: layer by layer each neuron's line cuts the polygons that it crosses. Activation regions
have pairwise different patterns; linear regions are what remains when neighbors with the same affine map are
merged (Hanin and Rolnick 2019).

Where the network decides between classes its regions are cut once more along the decision boundary, so that
every polygon has one class: in a region all scores are affine, so the boundary is a line there.

The plane is that through three examples of a subject: Goodfellow, Vinyals and Saxe (2015) look at networks on
lines and planes through points that matter.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine.evaluation import counts, sample_examples
from margin.theory.regions.followed import confirm, follow
from margin.theory.regions.polygons import BUDGET, Cut, PlanarMap, TooManyCells
from margin.theory.regions.segments import TOUCH

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


GRID = 4096
"""Steps of the coordinates along a side: finer than any screen, and short to write."""

MOST = 3000
"""Polygons of a picture; of more, those of a smaller square in the middle are shown."""


def decided(
    plane: PlanarMap, scores: Float[Tensor, "vertices classes"]
) -> tuple[PlanarMap, Int[Tensor, " cells"], Int[Tensor, " cells"]]:
    """The map cut along the boundary of the largest score.

    Args:
        plane: Its cells are those on which the scores are affine; left as it is.
        scores: At its vertices.

    Returns:
        The finer map; of each of its cells the class, the first of the largest, and the cell of ``plane``.
    """
    finer = copy.copy(plane)  # a cut replaces its tensors and writes into none
    finer.budget = 2 * plane.budget
    mesh = PlaneMesh(finer, patterns=False)
    cell = torch.arange(len(plane.loops))
    best = scores[:, :1]
    for rival in range(1, scores.shape[1]):
        generation = mesh.generation
        mesh.refine(scores[:, rival : rival + 1] - best, (0.0,))
        cell = cell[finer.origin]
        scores, best = (mesh.extend(values, generation) for values in (scores, best))
        best = torch.maximum(best, scores[:, rival : rival + 1])
    return finer, finer.means(scores).argmax(1), cell


def picture(
    regions: PlaneRegions, scores: Float[Tensor, "vertices classes"] | None, *, most: int = MOST
) -> dict[str, Tensor]:
    """The curves that a drawing of the regions reads.

    Args:
        regions: On the square.
        scores: Of the classes at its vertices; None where there are none.
        most: Polygons at most; of more, the square shown is made smaller around its middle.

    Returns:
        ``region vertices`` (x, y in steps of 1/4096 of a side), ``region corners`` (the loops one after the
        other), ``region sizes`` (corners of each), ``region classes`` (-1 where there are none), ``region
        numbers`` (of the linear region) and ``region window`` (half the side that is shown).
    """
    plane = regions.plane
    classes = torch.full((len(plane.loops),), -1)
    cell = torch.arange(len(plane.loops))
    if scores is not None:
        plane, classes, cell = decided(plane, scores)
    window = 1.0
    reach = plane.centroids().abs().amax(1)
    if len(reach) > most:
        window = float(reach.kthvalue(most).values)
    shown = (reach <= window).nonzero()[:, 0]
    loops = plane.loops[shown]
    corners = loops[loops >= 0]
    used, corners = torch.unique(corners, return_inverse=True)
    return {
        "region vertices": ((plane.points[used] + 1) / 2 * GRID).round().long(),
        "region corners": corners,
        "region sizes": plane.sizes[shown],
        "region classes": classes[shown],
        "region numbers": regions.linear[cell[shown]],
        "region window": torch.tensor(window, dtype=torch.float64),
    }


ROOM = 1.2
"""Side of the square around three points, in that of the least one that holds them."""

SCAN = 512
"""Examples among which three are looked for that differ in their class."""


class NoPlane(ArithmeticError):
    """The held-out examples span no plane."""


class Square(NamedTuple):
    """A square in the plane through three examples: x(u, v) = origin + u first + v second, |u|, |v| <= 1.

    Args:
        origin: Its middle, an input.
        first: Half a side.
        second: Half of the other, orthogonal to it and as long.
        points: (u, v) of the three examples.
        labels: Their classes, -1 where they have none.
        examples: Which of the held-out examples they are.
    """

    origin: Tensor
    first: Tensor
    second: Tensor
    points: Float[Tensor, "3 2"]
    labels: Int[Tensor, " 3"]
    examples: tuple[int, int, int]


def square_through(subject: Subject) -> Square:
    """The square in the plane through three held-out examples, of three classes where there are.

    Its sides are a fifth longer than those of the least square that holds them, with one side along the
    line through the first two.

    Raises:
        NoPlane: No three of the examples looked at span a plane.
        ArithmeticError: One of them is not finite.
    """
    inputs, labels, of_file = looked_at(subject)
    flat = inputs.flatten(1)
    if not bool(flat.isfinite().all()):
        raise ArithmeticError("a held-out input is not finite")
    first = 0
    order = _others_first(labels, [first])
    second = next((i for i in order if bool((flat[i] != flat[first]).any())), None)
    if second is None:
        raise NoPlane("the held-out examples are all the same point: they span no plane")
    along = flat[second] - flat[first]
    along = along / along.norm()
    off = flat - flat[first]
    off = off - (off @ along)[:, None] * along
    off = off - (off @ along)[:, None] * along
    away = off.norm(dim=1) > 1e-6 * (flat - flat[first]).norm(dim=1).max()
    third = next((i for i in _others_first(labels, [first, second]) if bool(away[i])), None)
    if third is None:
        raise NoPlane("the held-out examples lie on a line: they span no plane")
    across = off[third] / off[third].norm()
    axes, three = torch.stack((along, across)), torch.tensor([first, second, third])
    places = (flat[three] - flat[first]) @ axes.T
    low, high = places.aminmax(dim=0)
    middle, half = (low + high) / 2, ROOM * float((high - low).max()) / 2
    shape = inputs.shape[1:]
    origin = flat[first] + middle @ axes
    return Square(
        origin.reshape(shape),
        (half * along).reshape(shape),
        (half * across).reshape(shape),
        (places - middle) / half,
        labels[three],
        (of_file[first], of_file[second], of_file[third]),
    )


def _others_first(labels: Tensor, taken: list[int]) -> list[int]:
    """The examples not taken, those of other classes first."""
    known = {int(labels[i]) for i in taken}
    others = [i for i in range(len(labels)) if i not in taken]
    return sorted(others, key=lambda i: int(labels[i]) in known)


def looked_at(subject: Subject) -> tuple[Tensor, Tensor, list[int]]:
    """Held-out inputs in float64, their classes (-1: none), and which of the held-out examples they are.

    At most :data:`SCAN` of those of weight above 0, drawn at random, in the order of the file.
    """
    numbered, first = [], 0
    for batch in subject.test:
        numbers = torch.arange(first, first + len(batch.inputs[0]))
        numbered.append(Batch((numbers,), None, batch.weight))
        first += len(numbers)
    drawn = [batch.inputs[0] for batch in sample_examples(numbered, SCAN, admits=counts).batches]
    if not drawn:
        raise NoPlane("there is no held-out example")
    places, first = torch.cat(drawn), 0
    inputs, labels = [], []
    for batch in subject.test:
        x, until = batch.inputs[0], first + len(batch.inputs[0])
        here = places[(places >= first) & (places < until)] - first
        y = torch.full((len(x),), -1)
        if subject.task.classes is not None and batch.targets is not None and batch.targets.ndim == 1:
            y = batch.targets.detach().cpu().long()
        inputs.append(x.detach()[here.to(x.device)].cpu().double())
        labels.append(y[here])
        first = until
    return torch.cat(inputs), torch.cat(labels), places.tolist()
