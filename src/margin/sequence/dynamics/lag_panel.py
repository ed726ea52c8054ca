"""Gradients over time: the norm of dz_T / dz_(T-k) by lag k on a logarithmic axis, beside its bound."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
