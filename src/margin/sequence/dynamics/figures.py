"""The eigenvalues of recurrent matrices beside the unit circle, before and after training.

Gradients over time: the norm of dz_T / dz_(T-k) by lag k on a logarithmic axis, beside its bound.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES, sized, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATES = {"at the beginning": (SERIES[1], "o"), "now": (SERIES[0], ".")}
"""When, and how it is drawn: rings for the beginning, so that a dot that has not moved sits in its ring."""


def eigenvalues(axes: "Axes", finding: Finding) -> str:
    """A dot an eigenvalue, inside or outside the unit circle; rings where they were when training began."""
    found = {}
    for when in STATES:
        names = (f"real part {when}", f"imaginary part {when}")
        if all(name in finding.curves for name in names):
            x, y = (finding.curves[name].detach().cpu().double() for name in names)
            finite = x.isfinite() & y.isfinite()
            found[when] = (x[finite], y[finite])
    if not found or not all(len(x) for x, _ in found.values()):
        return ""
    sized(axes, 0.68, 0.85, 3.3, 3.3)
    angle = torch.linspace(0, 2 * math.pi, 200)
    axes.plot(angle.cos(), angle.sin(), color=INK, linewidth=0.9, label="unit circle")
    for when, (x, y) in found.items():
        color, marker = STATES[when]
        fill = "none" if marker == "o" else color
        axes.plot(
            x,
            y,
            marker,
            color=color,
            markerfacecolor=fill,
            markersize=4,
            markeredgewidth=0.8,
            label=when,
            alpha=0.8,
        )
    reach = 1.08 * max(1.0, *(float(torch.maximum(x.abs(), y.abs()).max()) for x, y in found.values()))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="real part", ylabel="imaginary part")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, borderaxespad=0.0)
    x, y = found.get("now", next(iter(found.values())))
    modulus = (x.square() + y.square()).sqrt()
    return (
        f"{len(x)} eigenvalues in the complex plane with the unit circle, of modulus "
        f"{exact(float(modulus.min()))} to {exact(float(modulus.max()))}; {', '.join(found)}"
    )


MEDIAN, LEAST, LARGEST, BOUND = ": median norm", ": least norm", ": largest norm", ": bound"
"""How the curves of a recurrence are named, after its own name."""

DECADES = 18
"""Powers of ten below the largest value that are shown: what is smaller is 0 to a float64 beside it."""


def by_lag(axes: "Axes", finding: Finding) -> str:
    """The median norm over the examples with its range, and dashed the bound; what is 0 has no logarithm."""
    lag = finding.curves.get("lag")
    names = [name.removesuffix(MEDIAN) for name in finding.curves if name.endswith(MEDIAN)][: len(SERIES)]
    if lag is None or not names:
        return ""
    lag = lag.detach().cpu().double()
    shown, tops = [], []
    for name, color in zip(names, SERIES, strict=False):
        median, least, largest = (_curve(finding, name + what) for what in (MEDIAN, LEAST, LARGEST))
        seen = (median > 0) & median.isfinite()
        if not bool(seen.any()):
            continue
        shown.append(name)
        tops.append(median[seen])
        below = torch.where(least > 0, least, median)[seen]
        axes.fill_between(lag[seen], below, largest[seen], color=color, alpha=0.16, linewidth=0)
        axes.plot(lag[seen], median[seen], color=color, marker="o", markersize=3, label=name)
        if name + BOUND in finding.curves:
            bound = _curve(finding, name + BOUND)
            kept = (bound > 0) & bound.isfinite()
            tops.append(bound[kept])
            dashes = (0, (4, 3))
            label = None if len(shown) > 1 else "bound"  # all are dashed
            axes.plot(lag[kept], bound[kept], color=color, linestyle=dashes, linewidth=1.1, label=label)
    if not shown:
        return ""
    axes.axhline(1, color=MUTED, linewidth=0.8)
    _logarithmic(axes, torch.cat(tops))
    axes.set(xlabel="lag (steps)", ylabel="norm of dz_T / dz_(T-lag)")
    whole_ticks(axes.xaxis)
    axes.legend()
    bounds = ", dashed the bound" if any(name.endswith(BOUND) for name in finding.curves) else ""
    return f"norm of the gradient over {int(lag[-1])} lags of {', '.join(shown)}{bounds}"


def _curve(finding: Finding, name: str) -> Tensor:
    return finding.curves[name].detach().cpu().double()


def _logarithmic(axes: "Axes", values: Tensor) -> None:
    """A logarithmic axis over the values and 1, of at least two decades and of :data:`DECADES` at most."""
    from matplotlib.ticker import LogLocator

    high = max(1.0, float(values.max()))
    low = max(min(1.0, float(values.min())), high * 10.0**-DECADES)
    if high < 100 * low:
        low, high = low / 10, high * 10
    room = (high / low) ** 0.06
    axes.set_yscale("log")
    axes.set_ylim(low / room, high * room)
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
