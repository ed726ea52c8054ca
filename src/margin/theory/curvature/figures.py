"""The density of a Hessian's spectrum, on a logarithmic axis, between its extreme eigenvalues.

Most of a network's eigenvalues lie about 0 and few are large: on a linear axis only the first are seen.

The loss over paths and slices of the weights: lines along paths, contours on a plane, a rising rate.

Sharpness beside its limit of stability belongs here too: both are the loss's landscape seen by a training.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import curve
from margin.figures.svg import INK, SERIES, sized

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


PATH, LOSS, MISTAKES, ERROR = "place on the path", "loss: ", "mistakes: ", ", error"
LEVELS = 9
"""Contours of a plane."""


def landscape(axes: "Axes", finding: Finding) -> str:
    """The drawing for the curves that a finding of this topic has; "" where it has none of them."""
    for draw in (paths, contours, slices, rates, stability):
        if shown := draw(axes, finding):
            return shown
    return ""


def _curves(finding: Finding, *names: str) -> list[Tensor]:
    found = [finding.curves[name].detach().cpu().double() for name in names if name in finding.curves]
    return found if len(found) == len(names) and all(len(c) for c in found) else []


def paths(axes: "Axes", finding: Finding) -> str:
    """The loss along each path with a band of two standard errors."""
    names = [n for n in finding.curves if n.startswith(LOSS) and not n.endswith(ERROR)]
    if PATH not in finding.curves or not names:
        return ""
    t = finding.curves[PATH].detach().cpu().double()
    drawn = []
    for name, color in zip(names, SERIES, strict=False):
        y = finding.curves[name].detach().cpu().double()
        if not bool(y.isfinite().all()):
            continue
        label = name.removeprefix(LOSS)
        error = finding.curves.get(name + ERROR, torch.zeros_like(y)).detach().cpu().double()
        axes.fill_between(t, y - 2 * error, y + 2 * error, color=color, alpha=0.16, linewidth=0)
        axes.plot(t, y, color=color, label=label)
        drawn.append(label)
    if not drawn:
        return ""
    axes.set(xlabel="place on the path", ylabel="mean loss", xlim=(0, 1))
    axes.set_ylim(bottom=0 if axes.get_ylim()[0] < 0 <= float(finding.curves[names[0]].min()) else None)
    if len(drawn) > 1:
        axes.legend()
    return f"mean loss along the path, with two standard errors: {', '.join(drawn)}"


def contours(axes: "Axes", finding: Finding) -> str:
    """The loss on a plane about the weights, which are marked, as is the lowest place."""
    curves = _curves(finding, "first direction", "second direction", "loss on the plane")
    if not curves or not bool(curves[2].isfinite().any()):
        return ""
    from matplotlib.ticker import MaxNLocator

    x, y, z = curves
    known = z[z.isfinite()]
    if float(known.max()) <= float(known.min()):
        return ""
    levels = MaxNLocator(LEVELS).tick_values(float(known.min()), float(known.max()))
    sized(axes, 0.68, 0.72, 3.3, 3.0)
    for level in levels[1:-1]:  # one on the other, so that higher is darker
        axes.contourf(x, y, z.T, levels=[level, levels[-1]], colors=[SERIES[0]], alpha=0.07)
    lines = axes.contour(x, y, z.T, levels=levels, colors=[SERIES[0]], linewidths=0.9)
    axes.clabel(lines, fontsize=7, fmt=lambda level: exact(round(level, 10)), colors=[INK])
    row, column = divmod(int(z.nan_to_num(math.inf).argmin()), z.shape[1])
    axes.plot([0], [0], marker="o", color=INK, linestyle="", markersize=6, label="the weights")
    axes.plot(
        x[row], y[column], marker="x", color=SERIES[2], linestyle="", markersize=7, label="lowest place"
    )
    axes.set(xlabel="along the sharpest direction", ylabel="along the second")
    axes.grid(False)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=2, borderaxespad=0.0)
    low, high = (exact(float(f"{float(end):.3g}")) for end in (known.min(), known.max()))
    return f"contours of the mean loss on the plane of the two sharpest directions, from {low} to {high}"


def slices(axes: "Axes", finding: Finding) -> str:
    """The loss along each random direction, and their mean."""
    x = _curves(finding, "distance")
    names = [name for name in finding.curves if name.startswith("direction ")]
    if not x or not names:
        return ""
    lines = torch.stack(_curves(finding, *names))
    if not bool(lines.isfinite().all()):
        return ""
    for line in lines:
        axes.plot(x[0], line, color=SERIES[0], linewidth=0.8, alpha=0.5)
    axes.plot(x[0], lines.mean(0), color=SERIES[2], label=f"mean of {len(lines)} directions")
    axes.set(xlabel="distance, in norms of the weights", ylabel="mean loss")
    axes.legend()
    return f"mean loss along {len(lines)} random directions on both sides of the weights"


def rates(axes: "Axes", finding: Finding) -> str:
    """The loss after a step at each rate, on a logarithmic axis, with the rates that were found."""
    curves = _curves(finding, "learning rate", "loss after the step", "rates found")
    if not curves or len(curves[0]) != len(curves[1]):
        return ""
    x, y, marks = curves
    known = y.isfinite()
    if not bool(known.any()):
        return ""
    axes.plot(x[known], y[known], color=SERIES[0])
    styles = ((0, (1, 1.5)), (0, (4, 3)), "-")
    names = ("steepest fall", "lowest loss", "last rate")
    for mark, style, name in zip(marks.tolist(), styles, names, strict=False):
        if math.isfinite(mark):
            label = f"{name}: {exact(float(f'{mark:.2g}'))}"
            axes.axvline(mark, color=SERIES[2], linewidth=1.1, linestyle=style, label=label)
    axes.set_xscale("log")
    # What it leaps to in the end would flatten the fall.
    room = 2 * float(y[known][0].abs()) + float(y[known][0])
    axes.set_ylim(top=min(axes.get_ylim()[1], room) if room > 0 else None)
    axes.set(xlabel="learning rate", ylabel="loss after the step")
    axes.legend()
    return f"loss after a step at each learning rate from {exact(float(x[0]))} to {float(x[-1]):.3g}"


def stability(axes: "Axes", finding: Finding) -> str:
    """The sharpness of the training loss by step beside the limit of the optimizer's stability."""
    curves = _curves(finding, "step", "sharpness", "stability limit")
    if not curves or not len(curves[0]) == len(curves[1]) == len(curves[2]):
        return ""
    step, sharpness, limit = curves
    axes.plot(step, limit, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label="limit of stability")
    marker = "o" if len(step) < 20 else ""
    axes.plot(step, sharpness, color=SERIES[0], marker=marker, markersize=3, label="sharpness")
    axes.set(xlabel="step", ylabel="largest eigenvalue")
    positive = torch.cat((sharpness, limit))
    if float(positive.min()) > 0 and float(positive.max()) > 30 * float(positive.min()):
        axes.set_yscale("log")
    axes.legend()
    return "sharpness of the training loss by step, beside the limit of stability"


def spectrum(axes: "Axes", finding: Finding) -> str:
    """Ritz values of the Hessian with the weight that Lanczos gives each."""
    ritz = curve(finding, "ritz values", "ritz", "eigenvalues")
    if ritz is None:
        return ""
    weight = curve(finding, "weights")
    if weight is None or weight.shape != ritz.shape:
        weight = torch.ones_like(ritz)
    shown = (weight > 0) & ritz.isfinite()
    ritz, weight = ritz[shown], weight[shown]
    axes.vlines(
        ritz, torch.full_like(weight, float(weight.min()) / 3), weight, color=SERIES[0], linewidth=1.1
    )
    axes.scatter(ritz, weight, color=SERIES[0], s=10, zorder=3)
    if float(weight.max()) > 30 * float(weight.min()):
        axes.set_yscale("log")
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set(xlabel="eigenvalue of the Hessian (Ritz value)", ylabel="weight")
    least, largest = (exact(float(end)) for end in (ritz.min(), ritz.max()))
    return f"spectrum of the Hessian: {len(ritz)} Ritz values from {least} to {largest}"


def draws(axes: "Axes", finding: Finding) -> str:
    """The single draws of which an estimate is the mean."""
    forms = curve(finding, "quadratic forms")
    if forms is None or not bool(forms.isfinite().all()):
        return ""
    axes.scatter(range(1, len(forms) + 1), forms, color=SERIES[0], s=14)
    axes.axhline(float(forms.mean()), color=SERIES[2], linewidth=1.2, label="mean")
    axes.set(xlabel="probe", ylabel=finding.unit.replace("^2", "²"))
    axes.legend()
    return f"{len(forms)} draws beside their mean"
