"""A cloud of points as the model sees it: those that decide, those that do not, and a class of each."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import FILLS
from margin.figures.svg import MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 3.4
"""Inches of the square."""

SMALL, LARGE = 5.0, 17.0
"""Areas of a point, in square points of type: critical ones are large."""

TURN, RISE = math.radians(35), math.radians(20)
"""From where a cloud of space is looked at: about its third axis, and above its first two."""


def cloud(axes: "Axes", finding: Finding) -> str:
    """The points of a cloud in parallel projection, critical ones large, colored by class where known."""
    if not all(name in finding.curves for name in ("cloud points", "cloud critical")):
        return ""
    points = finding.curves["cloud points"].detach().cpu().double()
    critical = finding.curves["cloud critical"].detach().cpu()
    place = seen(points)
    classes = finding.curves.get("cloud classes")
    sized(axes, 0.1, 0.35, SIDE, SIDE)
    for color, label, some, size in _groups(critical, classes):
        x, y = place[some].unbind(1)
        axes.scatter(x, y, s=size, color=color, label=label, linewidths=0)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=4, borderaxespad=0.0, handletextpad=0.1)
    by = "" if classes is None else ", colored by the class that the model gives them"
    return f"{len(points):,} points, of which {int(critical.sum()):,} attain a maximum, large{by}"


def _groups(critical: Tensor, classes: Tensor | None) -> list[tuple[Any, str, Tensor, float]]:
    """Color, name, members and size of each group of points, the large ones last."""
    if classes is None:
        return [(MUTED, "others", ~critical, SMALL), (SERIES[1], "critical points", critical, LARGE)]
    kinds = classes.detach().cpu()
    present = kinds.unique().tolist()
    fills = [tuple(part / 255 for part in FILLS[i % len(FILLS)]) for i in range(len(present))]
    few = len(present) <= len(FILLS)
    return [
        (fill, f"class {kind}" if size == LARGE and few else "", some & (kinds == kind), size)
        for some, size in ((~critical, SMALL), (critical, LARGE))
        for kind, fill in zip(present, fills, strict=True)
    ]


def seen(points: Tensor) -> Tensor:
    """Where the points are on the page (M, 2): those of the plane as they are, those of space projected."""
    if points.shape[1] == 1:
        return torch.cat((points, torch.zeros_like(points)), 1)
    if points.shape[1] == 2:
        return points
    x, y, z = points[:, :3].unbind(1)
    across = math.cos(TURN) * x + math.sin(TURN) * y
    away = -math.sin(TURN) * x + math.cos(TURN) * y
    return torch.stack((across, math.cos(RISE) * z + math.sin(RISE) * away), 1)
