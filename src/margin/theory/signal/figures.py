"""What passes the layers of a network, over depth on a logarithmic axis: it multiplies layer by layer.

The variance gain of each affine map beside what LeCun, He and Glorot ask for, on a logarithmic axis.
"""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import PRINTED, Finding
from margin.figures.svg import MUTED, SERIES, exact_ticks, sized

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


LINES = {"LeCun: 1": (1.0, (0, (4, 3))), "He: 2": (2.0, "-"), "torch's default: 1/3": (1 / 3, (0, (1, 1.5)))}
"""Gains that are the same for every map, and how they are drawn."""

LEVELS = tuple(digit * 10.0**k for k in range(-9, 9) for digit in (1, 2, 5))
"""Where the vertical axis is labeled."""


def gains(axes: "Axes", finding: Finding) -> str:
    """A dot with its error for each map, a mark where Glorot's scheme would put it, lines for the others."""
    curves = {name: curve.detach().cpu().double() for name, curve in finding.curves.items()}
    if not {"map", "Glorot"} <= curves.keys():
        return ""
    sized(axes, 0.68, 1.2, 3.6, 2.3)
    where = curves["map"]
    shown = [name for name in ("at the beginning", "now") if name in curves]
    if not shown or not all(bool((curves[name] > 0).all()) for name in shown):
        return ""  # a gain of 0 has no place on a logarithmic axis
    for name, (level, style) in LINES.items():
        axes.axhline(level, color=MUTED, linewidth=0.9, linestyle=style, label=name)
    axes.plot(where, curves["Glorot"], "_", color=SERIES[3], markersize=14, label="Glorot: 2 n / (n + m)")
    for i, name in enumerate(shown):
        error = finding.stderr if i == 0 and finding.stderr is not None else None
        reach = None if error is None else PRINTED * error.detach().cpu().double()
        axes.errorbar(
            where, curves[name], yerr=reach, fmt="o", color=SERIES[i], markersize=4, linewidth=1.1, label=name
        )
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks([level for level in LEVELS if low <= level <= high])
    axes.set_xticks(where.tolist() if len(where) <= 20 else where[:: len(where) // 10].tolist())
    axes.set(xlabel="affine map, from the input to the output", ylabel="n Var W")
    axes.margins(x=0.1)
    exact_ticks(axes.xaxis)
    exact_ticks(axes.yaxis)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=2, borderaxespad=0.0)
    return (
        f"n Var W of {len(where)} affine maps ({', '.join(shown)}), beside what LeCun, He and Glorot ask for"
    )
