"""The density of a Hessian's spectrum, on a logarithmic axis, between its extreme eigenvalues.

Most of a network's eigenvalues lie about 0 and few are large: on a linear axis only the first are seen.
"""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DECADES = 6
"""Powers of ten below the highest density that are drawn."""


def spectrum_density(axes: "Axes", finding: Finding) -> str:
    """Density against eigenvalue with its error over the probes, and the extreme eigenvalues marked."""
    names = ("eigenvalue", "density", "extreme eigenvalues")
    curves = [finding.curves[name].detach().cpu().double() for name in names if name in finding.curves]
    if len(curves) < len(names) or not all(len(c) and bool(c.isfinite().all()) for c in curves):
        return ""
    x, y, ends = curves
    floor = float(y.max()) * 10.0**-DECADES
    if floor == 0:
        return ""
    error = finding.curves.get("density error", torch.zeros_like(y)).detach().cpu().double()
    if bool((error > 0).any()):
        below, above = (y - error).clamp(min=floor), (y + error).clamp(min=floor)
        axes.fill_between(x, below, above, color=SERIES[0], alpha=0.2, linewidth=0)
    axes.plot(x, y.clamp(min=floor), color=SERIES[0], label="density")
    low, high = float(ends.min()), float(ends.max())
    axes.scatter([low, high], [floor, floor], color=SERIES[2], s=22, marker="^", zorder=3, clip_on=False)
    axes.plot([], [], color=SERIES[2], marker="^", linestyle="", markersize=5, label="extreme eigenvalues")
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set_yscale("log")
    axes.set(xlabel="eigenvalue of the Hessian", ylabel="density", ylim=(floor, 3 * float(y.max())))
    axes.legend()
    return f"density of the spectrum of the Hessian, from {exact(low)} to {exact(high)}"
