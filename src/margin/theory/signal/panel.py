"""What passes the layers of a network, over depth on a logarithmic axis: it multiplies layer by layer."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST = ("at the start", "predicted")
"""Curves that others are compared with: drawn below, dashed."""

MOST_TICKS = 8


def over_depth(axes: "Axes", finding: Finding) -> str:
    """Each curve over the layer's number; layers where nothing passes have no logarithm and are left out."""
    if "depth" not in finding.curves:
        return ""
    depth = finding.curves["depth"].detach().cpu().double()
    curves = {name: c.detach().cpu().double() for name, c in finding.curves.items() if name != "depth"}
    curves = {name: c for name, c in curves.items() if c.shape == depth.shape}
    drawn = []
    for name, color in zip(sorted(curves, key=lambda name: name not in FIRST), SERIES, strict=False):
        seen = (curves[name] > 0) & curves[name].isfinite()
        if not bool(seen.any()):
            continue
        base = name in FIRST
        axes.plot(
            depth[seen],
            curves[name][seen],
            color=MUTED if base else color,
            linestyle=(0, (4, 3)) if base else "-",
            marker="o" if len(depth) < 40 else "",
            markersize=3,
            label=name,
        )
        drawn.append(name)
    if not drawn:
        return ""
    _ticked(axes, torch.cat([curves[name] for name in drawn]))
    layers = list(range(1, len(depth) + 1, -(-len(depth) // MOST_TICKS)))  # a layer has no fractions
    axes.set(
        xticks=layers, xlabel="layer", ylabel=finding.unit if finding.unit != "predicted" else "mean square"
    )
    if len(drawn) > 1:
        axes.legend()
    return f"{' and '.join(drawn)} over {len(depth)} layers, on a logarithmic axis"


def _ticked(axes: "Axes", values: torch.Tensor) -> None:
    """A logarithmic axis of at least a decade, on whole powers of ten where it spans several."""
    from matplotlib.ticker import LogLocator

    values = values[(values > 0) & values.isfinite()]
    low, high = float(values.min()), float(values.max())
    if high < 10 * low:
        middle = (low * high) ** 0.5
        low, high = middle / 10**0.5, middle * 10**0.5
    room = (high / low) ** 0.06
    axes.set_yscale("log")
    axes.set_ylim(low / room, high * room)
    wide = high > 1e3 * low
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=8))
