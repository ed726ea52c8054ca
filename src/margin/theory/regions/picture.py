"""What a picture of a network's regions on a square is drawn from: polygons, classes, in whole numbers.

Where the network decides between classes its regions are cut once more along the decision boundary, so that
every polygon has one class: in a region all scores are affine, so the boundary is a line there.
"""

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.theory.regions.plane import PlaneMesh, PlaneRegions
from margin.theory.regions.polygons import PlanarMap

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
