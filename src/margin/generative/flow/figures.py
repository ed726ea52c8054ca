"""A density of the plane: contours of its logarithm, and the held-out points on them."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.svg import SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 3.6
"""Inches of the longer side."""

SHARES = (0.99, 0.9, 0.5, 0.1)
"""Shares of the mass that the contours enclose, the outer one first."""

MOST = 400
"""Points that are drawn."""


def density(axes: "Axes", finding: Finding) -> str:
    """Contours that enclose 10, 50, 90 and 99% of the mass on the grid, and some of the held-out points."""
    wanted = ("density x", "density y", "log density", "density points")
    if not all(name in finding.curves for name in wanted):
        return ""
    x, y, log_density, points = (finding.curves[name].detach().cpu().double() for name in wanted)
    levels = levels_of(log_density)
    if len(levels) < 2:
        return ""
    wide, high = float(x[-1] - x[0]), float(y[-1] - y[0])
    longer = max(wide, high)
    sized(axes, 0.62, 0.48, max(SIDE * wide / longer, 1.2), max(SIDE * high / longer, 1.2))
    axes.contour(
        *(values.numpy() for values in (x, y, log_density)),
        levels=levels,
        colors=[SERIES[0]],
        linewidths=[0.7, 1, 1.3, 1.6],
        linestyles="solid",
    )
    shown = points[:MOST]
    axes.scatter(shown[:, 0], shown[:, 1], s=5, color=SERIES[1], linewidths=0, label="held-out", zorder=3)
    axes.set(xlim=(float(x[0]), float(x[-1])), ylim=(float(y[0]), float(y[-1])))
    axes.set(xlabel="first feature", ylabel="second feature")
    axes.grid(False)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    return f"contours around {shares} of the mass, and {len(shown)} points"


def levels_of(log_density: torch.Tensor) -> list[float]:
    """The log-densities above which lie the shares of the mass on an even grid, rising."""
    falling = log_density.flatten().sort(descending=True).values
    share = (falling - falling.max()).exp().cumsum(0)
    share = share / share[-1]
    index = torch.searchsorted(share, torch.tensor(SHARES, dtype=share.dtype)).clamp(max=len(share) - 1)
    return sorted(set(falling[index].tolist()))
