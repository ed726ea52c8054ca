"""Approximation of functions of one variable, drawn: a network beside its function, its bends, its error.

A drawing knows its curves by their names and returns "" where they are absent.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES, exact_ticks, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_MARKS = 80
"""Knots that are marked; more would hide the line."""

WIDE, HIGH, LOW = 5.6, 2.5, 1.1
"""Inches of the axes, and of those of the error under them."""


def approximation(axes: "Axes", finding: Finding) -> str:
    """A function beside its interpolant and their gap, a sawtooth, a network and its bends, or a rate."""
    curves = finding.curves
    for names, draw in (
        (("x", "function", "interpolant", "error"), _interpolant),
        (("x", "network", "sawtooth"), _sawtooth),
        (("x", "network", "knots"), _network),
        (("units", "mean squared error", "Barron's bound"), _rate),
    ):
        if all(name in curves and curves[name].numel() for name in names if name != "knots") and (
            "knots" not in names or "knots" in curves
        ):
            return draw(axes, {name: curve.detach().cpu().double() for name, curve in curves.items()})
    return ""


def _interpolant(axes: "Axes", curves: dict[str, Tensor]) -> str:
    """The function and the straight lines, over the gap between them."""
    sized(axes, 0.75, 0.45 + LOW + 0.35, WIDE, HIGH)
    x = curves["x"]
    axes.plot(x, curves["function"], color=SERIES[0], label="function", linewidth=2.4, alpha=0.5)
    axes.plot(x, curves["interpolant"], color=SERIES[2], label="interpolant", linewidth=1.2)
    shown = _marked(axes, curves["knots"], x, curves["interpolant"]) if "knots" in curves else 0
    axes.legend(loc="best")
    axes.set_ylabel("value")
    axes.tick_params(labelbottom=False)
    below: Any = axes.inset_axes((0.0, -(LOW + 0.2) / HIGH, 1.0, LOW / HIGH), sharex=axes)
    below.plot(x, curves["error"], color=SERIES[1], linewidth=1.2)
    below.axhline(0, color=INK, linewidth=0.7)
    _few_ticks(below)
    below.set(xlabel="x", ylabel="error")
    largest = exact(float(f"{float(curves['error'].abs().max()):.3g}"))
    return f"a function and its interpolant with {shown} knots marked, over their gap, at most {largest}"


def _sawtooth(axes: "Axes", curves: dict[str, Tensor]) -> str:
    """The network beside the sawtooth, half a unit above and below which it would have to stay to be near."""
    sized(axes, 0.75, 0.45, WIDE, HIGH)
    x, network, sawtooth = (curves[name] for name in ("x", "network", "sawtooth"))
    same = bool((network - sawtooth).abs().max() < 1e-6)
    if not same:
        axes.plot(x, sawtooth, color=MUTED, label="sawtooth", linewidth=0.9)
        axes.fill_between(x, sawtooth - 0.5, sawtooth + 0.5, color=MUTED, alpha=0.15, linewidth=0)
    axes.plot(x, network, color=SERIES[0], label="network", linewidth=1.4)
    if not same:
        axes.legend(loc="upper right")
    axes.set(xlabel="x", ylabel="output")
    if same:
        return f"the network, a sawtooth of {len(x) - 1} pieces"
    return f"the network beside a sawtooth of {int((sawtooth.diff().sign().diff() != 0).sum()) + 1} pieces"


def _network(axes: "Axes", curves: dict[str, Tensor]) -> str:
    """The network where its inputs lie, a dot where it bends."""
    sized(axes, 0.75, 0.45, WIDE, HIGH)
    axes.plot(curves["x"], curves["network"], color=SERIES[0], linewidth=1.4)
    shown = _marked(axes, curves["knots"], curves["x"], curves["network"])
    axes.set(xlabel="x", ylabel="output")
    return f"the network's output, {shown} of {len(curves['knots'])} bends marked"


def _rate(axes: "Axes", curves: dict[str, Tensor]) -> str:
    """Error and bound against the number of units, both axes logarithmic."""
    units = curves["units"]
    axes.plot(units, curves["Barron's bound"], color=MUTED, linestyle=(0, (4, 3)), label="Barron's bound")
    axes.plot(units, curves["mean squared error"], color=SERIES[0], label="greedy net")
    axes.set(xscale="log", yscale="log", xlabel="units", ylabel="mean squared error")
    ticks = [int(m) for m in 2 ** units.log2().floor().unique()]
    axes.set_xticks(ticks, [str(m) for m in ticks])
    axes.legend(loc="best")
    return f"the mean squared error of 1 to {int(units[-1])} units beside the bound"


def _marked(axes: "Axes", knots: Tensor, x: Tensor, y: Tensor) -> int:
    """A dot on the line at each knot, if they are few."""
    import numpy as np

    if not 0 < len(knots) <= MOST_MARKS:
        return 0
    heights = np.interp(knots.numpy(), x.numpy(), y.numpy())
    axes.plot(knots, heights, "o", color=SERIES[2], markersize=3, label="knots")
    return len(knots)


def _few_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    for axis in (axes.xaxis, axes.yaxis):
        exact_ticks(axis)
