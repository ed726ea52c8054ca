"""A halfspace in the plane: the points, the boundary, and its parallels at the least margin."""

from typing import TYPE_CHECKING, Any

from margin.core.findings import Finding
from margin.figures.frames import MOST_DOTS, values
from margin.figures.svg import INK, MUTED, SERIES, sized
from margin.math.evenly import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def halfspace(axes: "Axes", finding: Finding) -> str:
    """Points of the plane by class, the boundary, and its two parallels at the least margin."""
    if not all(name in finding.curves for name in ("points", "labels", "boundary")):
        return ""
    points, labels = values(finding, "points"), values(finding, "labels")
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    keep = evenly(len(points), MOST_DOTS)
    for label, color, marker in ((0, SERIES[1], "s"), (1, SERIES[0], "o")):
        own = points[keep][labels[keep] == label]
        axes.scatter(own[:, 0], own[:, 1], s=9, color=color, marker=marker, label=f"class {label}", alpha=0.7)
    line = values(finding, "boundary")
    axes.plot(line[:, 0], line[:, 1], color=INK, linewidth=1.2, label="boundary")
    if "margin" in finding.curves:
        for name, ends in zip(("least margin", ""), values(finding, "margin"), strict=True):
            style: Any = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}
            axes.plot(ends[:, 0], ends[:, 1], label=name, **style)
    low, high = points.amin(0), points.amax(0)
    half, middle = 0.54 * float((high - low).max()) or 1.0, (low + high) / 2
    if "support vectors" in finding.curves:
        on = values(finding, "support vectors")
        style = {"facecolors": "none", "edgecolors": INK, "linewidths": 0.8}
        axes.scatter(on[:, 0], on[:, 1], s=46, label="support vectors", **style)
    axes.set(
        xlim=(float(middle[0]) - half, float(middle[0]) + half),
        ylim=(float(middle[1]) - half, float(middle[1]) + half),
        xlabel="first input (model units)",
        ylabel="second input",
    )
    axes.legend(loc="best")
    return f"{len(keep):,} points of two classes, the boundary and its parallels at the least margin"
