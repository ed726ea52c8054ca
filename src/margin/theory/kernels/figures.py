"""Kernels as pictures, sorted by target; their spectra; what training changes, by width."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import few_ticks, framed, signed, values
from margin.figures.svg import GRID, MUTED, SERIES, exact_ticks, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 2.6
"""Inches of a kernel."""


def matrices(axes: "Axes", finding: Finding) -> str:
    """Kernels with unit diagonal, examples in the order of their targets, lines between classes."""
    names = [name for name in ("kernel at the start", "kernel now") if name in finding.curves]
    if not names or "target" not in finding.curves:
        return ""
    target = values(finding, "target")
    sized(axes, 0.3, 0.2, len(names) * (SIDE + 0.2), SIDE + 0.3)
    axes.set_axis_off()
    edges = (target[1:] != target[:-1]).nonzero().flatten() + 1
    for i, name in enumerate(names):
        whole = len(names) * (SIDE + 0.2)
        place = axes.inset_axes((i * (SIDE + 0.2) / whole, 0, SIDE / whole, SIDE / (SIDE + 0.3)))
        place.imshow(signed(values(finding, name)), interpolation="nearest")
        framed(place)
        if len(edges) < 20:  # numbers have an order, and no borders
            for edge in edges.tolist():
                place.axhline(edge - 0.5, color=GRID, linewidth=0.8)
                place.axvline(edge - 0.5, color=GRID, linewidth=0.8)
        place.set_title(name, fontsize=8.5, color=MUTED, pad=3)
    return f"the {' and the '.join(names)} between {len(target):,} examples, sorted by target, diagonal 1"


def spectra(axes: "Axes", finding: Finding) -> str:
    """The eigenvalues of kernels, largest first, on logarithmic axes."""
    names = [name for name in ("eigenvalues at the start", "eigenvalues now") if name in finding.curves]
    drawn = {name: y[y > 1e-12 * y.max()] for name in names if bool((y := values(finding, name)).any())}
    if not drawn:
        return ""
    for (name, y), color in zip(drawn.items(), (MUTED, SERIES[0]), strict=False):
        axes.plot(torch.arange(1, len(y) + 1), y, color=color, label=name.removeprefix("eigenvalues "))
    axes.set(xscale="log", yscale="log", xlabel="number", ylabel="eigenvalue of the kernel / n")
    exact_ticks(axes.xaxis)
    exact_ticks(axes.yaxis)
    axes.legend()
    return (
        f"the eigenvalues of the tangent kernel {' and '.join(n.removeprefix('eigenvalues ') for n in drawn)}"
    )


def over_steps(axes: "Axes", finding: Finding) -> str:
    """Curves over the steps of a training: the kernel's change by width, or two ways to the same outputs."""
    if "step" not in finding.curves:
        return ""
    step = values(finding, "step")
    names = [n for n in finding.curves if n != "step" and len(finding.curves[n]) == len(step)]
    for i, name in enumerate(names):
        dashed = name == "linearized"
        axes.plot(
            step,
            values(finding, name),
            color=MUTED if dashed else SERIES[i],
            label=name,
            linestyle="--" if dashed else "-",
        )
    widths = all(name.startswith("width") for name in names)
    axes.set(xlabel="step", ylabel="relative change of the kernel" if widths else "output")
    few_ticks(axes)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.4 * (high - low))  # room for the legend
    axes.legend(loc="upper right", ncols=1)
    return f"{', '.join(names)} over {exact(float(step[-1]))} steps"


def over_width(axes: "Axes", finding: Finding) -> str:
    """The distance from the limit over the width, on logarithmic axes, beside the root's slope."""
    if not {"width", "distance from the limit"} <= finding.curves.keys():
        return ""
    width, gap = values(finding, "width"), values(finding, "distance from the limit")
    axes.plot(width, gap[0] * (width[0] / width).sqrt(), color=MUTED, linestyle="--", label="1 / sqrt(width)")
    axes.plot(width, gap, "o-", color=SERIES[0], label="measured")
    axes.set(xscale="log", yscale="log", xlabel="width", ylabel="distance from the limit")
    axes.set_xticks(width.tolist())
    exact_ticks(axes.xaxis)
    exact_ticks(axes.yaxis)
    axes.legend()
    return (
        f"the distance of tangent kernels from their limit at widths {', '.join(map(exact, width.tolist()))}"
    )
