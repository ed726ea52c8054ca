"""Forecasts: what was read, the forecast with its band, what followed; errors by steps ahead."""

from typing import TYPE_CHECKING, Any

import torch

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES, exact_ticks, sized, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAN = ("past", "truth", "forecast", "band low", "band high")
"""The curves of one forecast."""

WIDE, HIGH, LOW = 3.6, 2.0, 1.5
"""Inches of the axes of a forecast, and of those of the errors under them."""


def forecast_and_errors(axes: "Axes", finding: Finding) -> str:
    """A forecast beside what followed, over the errors by steps ahead, of a finding that has both."""
    if "steps ahead" not in finding.curves or not (shown := fan(axes, finding)):
        return ""
    sized(axes, 0.75, 0.45 + LOW + 0.5, WIDE, HIGH)
    below: Any = axes.inset_axes((0.0, -(LOW + 0.5) / HIGH, 1.0, LOW / HIGH))
    errors = over_steps_ahead(below, finding)
    below.set_ylabel("error (last value: 1)")
    for axis in (below.xaxis, below.yaxis):
        exact_ticks(axis)
    return f"{shown}; below it, {errors}"


def fan(axes: "Axes", finding: Finding) -> str:
    """A forecast after its past, with the band between its quantiles where it has one, beside the truth."""
    if not all(name in finding.curves for name in ("past", "truth", "forecast")):
        return ""
    past, truth, forecast = (finding.curves[name].detach().cpu() for name in ("past", "truth", "forecast"))
    before, ahead = torch.arange(1 - len(past), 1), torch.arange(1, len(truth) + 1)
    axes.plot(before, past, color=MUTED, label="read")
    axes.plot(ahead, truth, color=SERIES[0], label="what followed")
    band = "band low" in finding.curves and "band high" in finding.curves
    if band:
        low, high = finding.curves["band low"].cpu(), finding.curves["band high"].cpu()
        axes.fill_between(ahead, low, high, color=SERIES[1], alpha=0.22, linewidth=0, label="80 % band")
    axes.plot(ahead, forecast, color=SERIES[1], label="median" if band else "forecast")
    axes.axvline(0.5, color=MUTED, linewidth=0.7, linestyle=(0, (4, 3)))
    axes.set(xlabel="steps ahead", ylabel="value")
    whole_ticks(axes.xaxis)
    axes.legend()
    shown = "its median and 80 % band" if band else "the forecast"
    return f"{len(past)} rows that were read, then {shown} beside what followed, {len(truth)} steps"


def over_steps_ahead(axes: "Axes", finding: Finding) -> str:
    """Each curve over how many steps after the last row that was read the forecast lies."""
    if "steps ahead" not in finding.curves:
        return ""
    ahead = finding.curves["steps ahead"].detach().cpu()
    curves = {name: c.detach().cpu() for name, c in finding.curves.items() if name != "steps ahead"}
    curves = {name: c for name, c in curves.items() if c.shape == ahead.shape and name not in FAN}
    for (name, curve), color in zip(curves.items(), SERIES, strict=False):
        base = name == "last value"
        axes.plot(
            ahead,
            curve,
            color=MUTED if base else color,
            linestyle=(0, (4, 3)) if base else "-",
            marker="o" if len(ahead) < 30 else "",
            markersize=3,
            label=name,
        )
    axes.set_ylim(bottom=0)
    axes.set(xlabel="steps ahead", ylabel="error (1: that of the last value, in all)")
    whole_ticks(axes.xaxis)
    axes.legend()
    return f"root mean squared error of {' and '.join(curves)} by steps ahead"


def skill(axes: "Axes", finding: Finding) -> str:
    """The errors by steps ahead, under a forecast where the finding has one."""
    return forecast_and_errors(axes, finding) or over_steps_ahead(axes, finding)
