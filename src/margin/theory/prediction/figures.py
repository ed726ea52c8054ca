"""Predictions drawn: reliability, margins, ROC curves, predicted against observed.

The confusion matrix as a picture: what each class is taken for, the shade a cell's share of its row.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import MOST_DOTS, curve
from margin.figures.svg import GRID, INK, MUTED, SERIES, sized
from margin.math.evenly import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability(axes: "Axes", finding: Finding) -> str:
    """Frequency against stated probability, bin by bin: on the diagonal, the model means what it says."""
    readings = [name.removesuffix("confidence") for name in finding.curves if name.endswith("confidence")]
    readings = [r for r in readings if f"{r}accuracy" in finding.curves]
    if not readings:
        return ""
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="calibrated")
    for reading, color in zip(readings, SERIES, strict=False):
        x, y = (finding.curves[f"{reading}{name}"].double() for name in ("confidence", "accuracy"))
        count = finding.curves.get(f"{reading}count", torch.ones_like(x)).double()
        full = (count > 0) & x.isfinite() & y.isfinite()
        x, y, share = x[full], y[full], count[full] / count[full].sum()
        axes.vlines(x, x, y, color=color, linewidth=1.2, alpha=0.6)
        label = reading.removesuffix(": ") or "bins (area: examples)"
        axes.scatter(x, y, s=8 + 140 * share, color=color, label=label, zorder=3)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.05), xlabel="stated probability", ylabel="frequency")
    axes.legend(loc="upper left", markerscale=0.7)
    return "frequency against stated probability, bin by bin, beside the diagonal of a calibrated model"


def margins(axes: "Axes", finding: Finding) -> str:
    """How the output margins are distributed: left of 0 are the mistakes."""
    values = curve(finding, "margins", "margin")
    if values is None or not bool(values.isfinite().any()):
        return ""
    values = values[values.isfinite()]
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / 40
    # A bin begins at 0, so that no bar mixes right and wrong.
    first, last = math.floor(low / width), math.ceil(high / width)
    edges = [width * i for i in range(first - 1, last + 2)]  # rounding may put an end just outside
    each = finding.curves.get("each", torch.ones(1)).double()
    counts = []
    for part, color, called in (
        (values[values > 0], SERIES[0], "right"),
        (values[values <= 0], SERIES[2], "wrong or tied"),
    ):
        counts.append(round(len(part) * float(each)))
        if len(part) or called == "right":
            weights = each.expand(len(part)).numpy()
            axes.hist(part.numpy(), edges, weights=weights, color=color, label=f"{called}: {counts[-1]:,}")
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set(xlabel=f"margin ({finding.unit})", ylabel="examples")
    axes.legend()
    return f"histogram of the margins: {counts[0]} above 0, {counts[1]} at or below"


def roc(axes: "Axes", finding: Finding) -> str:
    """True against false positive rate over every threshold; on the diagonal, scores tell nothing."""
    x, y = curve(finding, "false positive rate"), curve(finding, "true positive rate")
    if x is None or y is None or x.shape != y.shape:
        return ""
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="chance")
    axes.plot(x, y, color=SERIES[0], label="scores", clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false positive rate", ylabel="true positive rate")
    axes.legend(loc="lower right")
    return "ROC curve: true against false positive rate, beside the diagonal of scores that tell nothing"


def agreement(axes: "Axes", finding: Finding) -> str:
    """Predicted against observed value, a dot an example: on the diagonal, the prediction is right."""
    from matplotlib.ticker import MaxNLocator

    x, y = curve(finding, "observed"), curve(finding, "predicted")
    if x is None or y is None or x.shape != y.shape:
        return ""
    finite = x.isfinite() & y.isfinite()
    x, y = x[finite], y[finite]
    if not len(x):
        return ""
    keep = evenly(len(x), MOST_DOTS)
    low, high = float(torch.minimum(x, y).min()), float(torch.maximum(x, y).max())
    room = 0.04 * (high - low) or 1.0
    ends = (low - room, high + room)
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    axes.plot(ends, ends, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="predicted = observed")
    size = 4.0 if len(keep) < 200 else 2.5
    axes.plot(x[keep], y[keep], "o", color=SERIES[0], markersize=size, markeredgewidth=0, alpha=0.5)
    axes.set(xlim=ends, ylim=ends, xlabel="observed", ylabel="predicted")
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.legend(loc="upper left")
    shown = f"{len(keep):,} of {len(x):,}" if len(keep) < len(x) else f"{len(x):,}"
    return f"predicted against observed value of {shown} examples, beside the line where both agree"


def bands(axes: "Axes", finding: Finding) -> str:
    """Intervals of 95 % and observed values: along the input, or example by example in order of the mean."""
    found = [curve(finding, name) for name in ("observed", "mean", "low", "high")]
    if any(each is None for each in found):
        return ""
    observed, mean, low, high = (each for each in found if each is not None)
    x = curve(finding, "input")
    along = torch.arange(len(mean)).double() if x is None else x
    axes.fill_between(along, low, high, color=SERIES[0], alpha=0.25, linewidth=0, label="95% interval")
    axes.plot(along, mean, color=SERIES[0], label="mean")
    inside = (low <= observed) & (observed <= high)
    for part, color, name in ((inside, INK, "inside"), (~inside, SERIES[2], "outside")):
        axes.plot(
            along[part], observed[part], ".", color=color, markersize=3, label=f"{name}: {int(part.sum())}"
        )
    axes.set(xlabel="held-out examples by predicted mean" if x is None else "input", ylabel="value")
    axes.legend()
    return f"95% intervals of {len(mean)} held-out values: {int(inside.sum())} lie inside"


def quantiles(axes: "Axes", finding: Finding) -> str:
    """How often values lie below a quantile of their law, by its level: on the diagonal, laws are right."""
    x, y = curve(finding, "level"), curve(finding, "frequency")
    if x is None or y is None or x.shape != y.shape:
        return ""
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="calibrated")
    axes.step(x, y, where="post", color=SERIES[0], label="held-out values")
    axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="level of the quantile", ylabel="share of values below it")
    axes.legend(loc="upper left")
    said = "share of held-out values below each quantile of their law, beside the diagonal of right laws"
    width = curve(finding, "width")
    if width is None or not len(width) or not bool(width.isfinite().all()):
        return said
    sharp = axes.inset_axes((0.56, 0.13, 0.4, 0.26))
    low, high = float(width.min()), float(width.max())
    room = 0.05 * (high - low) or 0.1 * (abs(high) or 1.0)
    edges = torch.linspace(max(low - room, 0.0), high + room, 13, dtype=torch.float64)
    sharp.stairs(torch.histogram(width, edges)[0], edges, color=SERIES[2], fill=True, alpha=0.6)
    sharp.set_title("width of the 95% intervals", fontsize=7, color=MUTED)
    sharp.set_yticks([])
    sharp.tick_params(labelsize=7)
    return f"{said}; inside, how wide the 95% intervals are (their sharpness)"


def sources(axes: "Axes", finding: Finding) -> str:
    """How the uncertainty is distributed over the held-out examples and those of the other source."""
    found = [curve(finding, name) for name in ("held-out", "other")]
    own, other = (None if each is None else each[each.isfinite()] for each in found)
    if own is None or other is None or not len(own) or not len(other):
        return ""
    every = torch.cat((own, other))
    low, high = float(every.min()), float(every.max())
    edges = torch.linspace(low, high if high > low else low + 1, 31, dtype=torch.float64)
    for values, color, name in ((own, SERIES[0], "held-out"), (other, SERIES[2], "other source")):
        share = torch.histogram(values.double(), edges)[0] / len(values)
        axes.stairs(share, edges, color=color, fill=True, alpha=0.25)
        axes.stairs(share, edges, color=color, linewidth=1.4, label=name)
    axes.set(xlabel=finding.labels[0] if finding.labels else "uncertainty", ylabel="share of the examples")
    axes.set_ylim(0, None)
    axes.legend()
    return "how the uncertainty of the held-out examples and of those of the other source is distributed"


def suspects(axes: "Axes", finding: Finding) -> str:
    """The probability of the likelier class over that of the label, a dot a suspected label."""
    x, y = curve(finding, "probability of given"), curve(finding, "probability of likely")
    if x is None or y is None or not len(x):
        return ""
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="as likely")
    axes.plot(x, y, "o", color=SERIES[2], markersize=3, markeredgewidth=0, alpha=0.6)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="of the label", ylabel="of the likelier class")
    axes.legend(loc="lower right")
    return f"probability of the likelier class over that of the label, for {len(x)} suspected labels"


MOST_NAMED = 20
"""Classes whose names and counts are written; with more, the shade alone is shown."""

MOST_SMALL = 8
"""Classes that fit beside the text; with more, the picture is as wide as the page."""

FAINTEST, DARKEST = 0.08, 0.5
"""Opacity of a cell that is hardly filled, and of one that holds its row; ink stays legible on it."""

SHADE = (0x5B, 0x8F, 0xC4)
"""The color of a picture without counts, seen on white and on black paper."""

LONGEST_NAME = 14
"""Characters of a class's name; of a longer one the middle is left out, so that its number stays."""


def confusion(axes: "Axes", finding: Finding) -> str:
    """What each class is taken for: true class by row, predicted by column, mistakes in another color."""
    cells = finding.curves.get("confusion")
    if cells is None or cells.ndim != 2 or cells.shape[0] != cells.shape[1] or not bool(cells.sum() > 0):
        return ""
    cells = cells.detach().cpu().double()
    share = (cells / cells.sum(1, keepdim=True)).nan_to_num()
    count = len(cells)
    axes.grid(visible=False)
    axes.set(xlabel="predicted class (shade: share of the row)", ylabel="true class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if count > MOST_NAMED:
        _shaded(axes, share)
    else:
        _counted(axes, cells, share, class_names(finding, cells))
    right = exact(float(f"{float(cells.trace() / cells.sum()):.3g}"))
    return f"confusion matrix of {count} classes: {right} of the examples lie on the diagonal"


def class_names(finding: Finding, cells: Tensor) -> list[str]:
    """A name for each class: the finding's labels are of those that occur, in order."""
    names = [f"class {k}" for k in range(len(cells))]
    occurring = cells.sum(1).nonzero().flatten().tolist()
    if len(finding.labels) == len(occurring):
        for k, label in zip(occurring, finding.labels, strict=True):
            names[k] = label
    if all(name == f"class {k}" for k, name in enumerate(names)):
        return [str(k) for k in range(len(names))]
    start, end = LONGEST_NAME // 2, LONGEST_NAME // 2 - 1
    return [
        name if len(name) <= LONGEST_NAME else f"{name[:start].rstrip()}…{name[-end:].lstrip()}"
        for name in names
    ]


def _counted(axes: "Axes", cells: Tensor, share: Tensor, names: list[str]) -> None:
    """Cells with their counts, and names on both axes."""
    from matplotlib.patches import Rectangle

    count, longest = len(cells), max(map(len, names))
    side = 3.0 if count <= MOST_SMALL else min(0.34 * count, 6.2)
    step = 72 * side / count
    upright = 5.5 * longest > 0.95 * step
    left = 0.45 + 0.08 * longest
    sized(axes, left, 0.42 + (0.08 * longest if upright else 0.12), side, side)
    written = {(i, j): exact(float(f"{cells[i, j]:.6g}")) for i, j in cells.nonzero().tolist()}
    size = min(9.0, 0.9 * step / (0.62 * max(map(len, written.values()))))
    for (i, j), text in written.items():
        color = SERIES[0] if i == j else SERIES[2]
        opacity = FAINTEST + (DARKEST - FAINTEST) * float(share[i, j])
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=color, alpha=opacity, edgecolor="none")
        axes.add_patch(cell)
        axes.text(j, i, text, ha="center", va="center_baseline", fontsize=size, color=INK)
    edges = [k - 0.5 for k in range(count + 1)]
    axes.hlines(edges, -0.5, count - 0.5, color=GRID, linewidth=0.7)
    axes.vlines(edges, -0.5, count - 0.5, color=GRID, linewidth=0.7)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))
    small = min(9.0, 0.8 * step)
    axes.set_xticks(range(count), names, rotation=90 if upright else 0, fontsize=small, color=INK)
    axes.set_yticks(range(count), names, fontsize=small, color=INK)


def _shaded(axes: "Axes", share: Tensor) -> None:
    """The shares as one image whose opacity they are."""
    count = len(share)
    sized(axes, 0.62, 0.5, 5.2, 5.2)
    alpha = torch.where(share > 0, FAINTEST + (1 - FAINTEST) * share, 0)
    color = torch.tensor(SHADE, dtype=torch.float64) / 255
    image = torch.cat((color.expand(count, count, 3), alpha[:, :, None]), 2)
    axes.imshow(image.numpy(), aspect="auto")
    axes.spines[:].set(visible=True, color=MUTED)
