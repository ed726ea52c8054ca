"""The linear regions of a network on a square of inputs: polygons, colored by the class decided there."""

from typing import TYPE_CHECKING, Any

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import FILLS
from margin.figures.svg import INK, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 3.6
"""Inches of the square."""

DOTS_PER_INCH = 220
"""Of the picture of the polygons: thousands of them weigh less as an image than as paths."""

OPACITIES = (0.42, 0.55, 0.68, 0.81)
"""Of neighboring linear regions, in turn."""

LINE = (0.45, 0.45, 0.45, 0.75)


def regions(axes: "Axes", finding: Finding) -> str:
    """Polygons with a fill for each class, lines between regions, and the examples that span the plane."""
    wanted = ("vertices", "corners", "sizes", "classes", "numbers", "window")
    if not all(f"region {name}" in finding.curves for name in wanted):
        return ""
    from matplotlib.collections import PolyCollection

    vertices, corners, sizes, classes, numbers, window = (
        finding.curves[f"region {name}"].detach().cpu() for name in wanted
    )
    # The coordinates are steps of a side, from a corner; -1 and 1 are its ends.
    places = vertices.double() / 2048 - 1
    polygons = [part.numpy() for part in places[corners].split(sizes.tolist())]
    present = classes.unique().tolist()
    fills = [
        (*_color(present.index(kind)), OPACITIES[number % len(OPACITIES)])
        for kind, number in zip(classes.tolist(), numbers.tolist(), strict=True)
    ]
    sized(axes, 0.62, 0.48, SIDE, SIDE)
    drawn = PolyCollection(
        polygons, facecolors=fills, edgecolors=[LINE], linewidths=0.3 if len(polygons) > 300 else 0.6
    )
    drawn.set_rasterized(True)
    axes.add_collection(drawn)
    axes.get_figure().set_dpi(DOTS_PER_INCH)  # type: ignore[union-attr]  # axes have a figure
    half = float(window)
    _legend(axes, present, len(polygons))
    _examples(axes, finding, present, half)
    axes.set(xlim=(-half, half), ylim=(-half, half), xlabel="along the first two examples")
    axes.set_ylabel("toward the third")
    axes.grid(False)
    count = len(finding.curves["region numbers"].unique())
    part = "" if half == 1 else f" in the middle {exact(round(half, 3))} of the square"
    return f"{len(polygons):,} polygons of {count:,} linear regions{part}, by the class decided there"


def _color(index: int) -> tuple[float, float, float]:
    red, green, blue = FILLS[index % len(FILLS)]
    return red / 255, green / 255, blue / 255


def _legend(axes: "Axes", present: list[int], polygons: int) -> None:
    from matplotlib.patches import Patch

    if len(present) < 2 or len(present) > len(FILLS):
        return
    names = [Patch(facecolor=_color(i), alpha=0.68, label=f"class {kind}") for i, kind in enumerate(present)]
    axes.legend(handles=names, loc="upper left", bbox_to_anchor=(0.0, -0.13), ncols=4, borderaxespad=0.0)
    rows = -(-len(present) // 4)
    sized(axes, 0.62, 0.48 + 0.2 * rows, SIDE, SIDE)


def _examples(axes: "Axes", finding: Finding, present: list[int], half: float) -> None:
    points, labels = finding.curves.get("examples"), finding.curves.get("labels")
    if points is None or labels is None:
        return
    style: Any = {"marker": "o", "s": 34, "edgecolors": INK, "linewidths": 1.2, "zorder": 4}
    for place, label in zip(points.double().tolist(), labels.tolist(), strict=True):
        if max(map(abs, place)) > half:
            continue
        known = label in present
        fill: Any = [_color(present.index(label))] if known else "none"
        axes.scatter(*place, facecolors=fill, **style)
