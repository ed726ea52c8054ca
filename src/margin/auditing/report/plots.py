"""The plots of a report: one for each finding that people would rather see, by the name of its claim.

A drawing reads the curves that a finding carries and returns None where they are absent, so that a
claim of a third party with curves of its own still gets lines.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.auditing.report.drawings import Drawing, panels
from margin.auditing.report.matrix import confusion
from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES, drawing, exact_ticks, sized, themed, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 400
"""Points of a line: more than a page's pixels show nothing and weigh."""

MOST_DOTS = 2000
"""Dots of a scatter plot; of more, every so many are drawn."""

APART = ("step", "epoch", "seconds", "examples_per_second", "peak_memory_mib")
"""Columns of a history that are no measurement of the model."""


def plot(name: str, finding: Finding, identifier: str) -> str:
    """The plot of a finding as ``<svg>``; "" where it has no curves.

    Args:
        name: The claim's name.
        finding: Its answer.
        identifier: Prefix of the element's identifiers, unique in the page.
    """
    if not finding.curves:
        return ""
    own = [DRAWINGS[name]] if name in DRAWINGS else []
    for draw in chain(own, panels(), [lines]):
        with drawing() as (figure, axes):
            if shown := draw(axes, finding):
                _plain_ticks(axes)
                return themed(figure, identifier, shown)
    return ""


def learning_curves(history: Sequence[Mapping[str, Any]], identifier: str) -> list[tuple[str, str]]:
    """Title and ``<svg>`` of each quantity of a history that changes: training beside validation."""
    columns = list(dict.fromkeys(key for row in history for key in row if key not in APART))
    made: list[tuple[str, str]] = []
    for quantity in dict.fromkeys(key.removeprefix("train_").removeprefix("val_") for key in columns):
        parts = [key for key in (f"train_{quantity}", f"val_{quantity}", quantity) if key in columns]
        series = {key: _column(history, key) for key in parts}
        series = {key: points for key, points in series.items() if len(points[0]) > 1}
        if not any(len(set(y)) > 1 for _, y in series.values()):
            continue
        with drawing() as (figure, axes):
            _history(axes, quantity, series)
            title = {"lr": "learning rate"}.get(quantity, quantity.replace("_", " "))
            made.append((title, themed(figure, f"{identifier}-{len(made)}", f"{title} by training step")))
    return made


def _column(history: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    rows = [(row.get("step", i), row.get(key)) for i, row in enumerate(history)]
    known = [(float(x), float(y)) for x, y in rows if isinstance(y, int | float) and math.isfinite(y)]
    stride = -(-len(known) // MOST_POINTS) or 1
    known = [*known[:-1:stride], *known[-1:]]
    return [x for x, _ in known], [y for _, y in known]


def _history(axes: "Axes", quantity: str, series: dict[str, tuple[list[float], list[float]]]) -> None:
    names = {f"train_{quantity}": "training", f"val_{quantity}": "validation", quantity: ""}
    for key, (x, y) in series.items():
        color = SERIES[1] if key.startswith("val_") else SERIES[0]
        axes.plot(x, y, color=color, label=names[key], marker="o" if len(x) < 20 else "", markersize=3)
    values = [v for _, y in series.values() for v in y]
    if min(values) > 0 and max(values) > 30 * min(values):
        axes.set_yscale("log")
    axes.set_xlabel("step")
    whole_ticks(axes.xaxis)
    if len(series) > 1:
        axes.legend()
    _plain_ticks(axes)


# one drawing for each claim


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
    values = _curve(finding, "margins", "margin")
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
    wrong, right = values[values <= 0].tolist(), values[values > 0].tolist()
    axes.hist(right, edges, color=SERIES[0], label=f"right: {len(right):,}")
    if wrong:
        axes.hist(wrong, edges, color=SERIES[2], label=f"wrong or tied: {len(wrong):,}")
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set(xlabel=f"margin ({finding.unit})", ylabel="examples")
    axes.legend()
    return f"histogram of the margins: {len(right)} above 0, {len(wrong)} at or below"


def sandwich(axes: "Axes", finding: Finding) -> str:
    """Accuracy against epsilon: the truth lies between what is certified and what survived the attack."""
    eps, certified = _curve(finding, "eps", "epsilon"), _curve(finding, "certified")
    attacked = _curve(finding, "attacked", "pgd")
    if eps is None or (certified is None and attacked is None):
        return ""
    x = eps.tolist()
    if certified is not None and attacked is not None:
        axes.fill_between(x, certified, attacked, color=SERIES[0], alpha=0.16, linewidth=0)
    styles = {
        "clean": (_curve(finding, "clean"), MUTED, (0, (4, 3))),
        "FGSM": (_curve(finding, "fgsm"), SERIES[3], (0, (1, 1.5))),
        "under attack": (attacked, SERIES[2], "-"),
        "certified": (certified, SERIES[0], "-"),
    }
    for label, (curve, color, style) in styles.items():
        if curve is not None:
            y = curve.expand(len(x))
            axes.plot(x, y, color=color, linestyle=style, marker="o", markersize=3, label=label)
    axes.set(xlabel="epsilon (input units)", ylabel="accuracy", ylim=(-0.03, 1.03))
    axes.legend(ncols=1)
    shown = [label for label, (curve, _, _) in styles.items() if curve is not None]
    return f"accuracy against epsilon: {', '.join(shown)}"


def spectrum(axes: "Axes", finding: Finding) -> str:
    """Ritz values of the Hessian with the weight that Lanczos gives each."""
    ritz = _curve(finding, "ritz values", "ritz", "eigenvalues")
    if ritz is None:
        return ""
    weight = _curve(finding, "weights")
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


def roc(axes: "Axes", finding: Finding) -> str:
    """True against false positive rate over every threshold; on the diagonal, scores tell nothing."""
    x, y = _curve(finding, "false positive rate"), _curve(finding, "true positive rate")
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

    x, y = _curve(finding, "observed"), _curve(finding, "predicted")
    if x is None or y is None or x.shape != y.shape:
        return ""
    finite = x.isfinite() & y.isfinite()
    x, y = x[finite], y[finite]
    if not len(x):
        return ""
    keep = torch.linspace(0, len(x) - 1, min(len(x), MOST_DOTS)).round().long()
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


def lines(axes: "Axes", finding: Finding) -> str:
    """Any curves: lines over the first, where it increases and has their length, else over position."""
    curves = {
        name: c for name in finding.curves if (c := _curve(finding, name.replace("_", " "))) is not None
    }
    curves = {name: c for name, c in curves.items() if c.ndim == 1}
    curves = {name: c for name, c in curves.items() if bool(c.isfinite().any())}
    if not curves:
        return ""
    first, base = next(iter(curves.items()))
    others = {name: c for name, c in curves.items() if name != first and len(c) == len(base)}
    increasing = len(base) > 1 and bool((base.diff() > 0).all())
    over = base if others and increasing else None
    for i, (name, c) in enumerate((others if over is not None else curves).items()):
        x = torch.arange(len(c)) if over is None else over
        keep = torch.linspace(0, len(c) - 1, min(len(c), MOST_POINTS)).round().long()
        axes.plot(x[keep], c[keep], color=SERIES[i % len(SERIES)], label=name.replace("_", " "))
    axes.set_xlabel(first.replace("_", " ") if over is not None else "position")
    if over is None or bool((over == over.round()).all()):
        whole_ticks(axes.xaxis)
    axes.legend()
    return f"curves: {', '.join(curves)}"


def draws(axes: "Axes", finding: Finding) -> str:
    """The single draws of which an estimate is the mean."""
    forms = _curve(finding, "quadratic forms")
    if forms is None or not bool(forms.isfinite().all()):
        return ""
    axes.scatter(range(1, len(forms) + 1), forms, color=SERIES[0], s=14)
    axes.axhline(float(forms.mean()), color=SERIES[2], linewidth=1.2, label="mean")
    axes.set(xlabel="probe", ylabel=finding.unit.replace("^2", "²"))
    axes.legend()
    return f"{len(forms)} draws beside their mean"


DRAWINGS: dict[str, Drawing] = {
    "theory/confusion.recall": confusion,
    "theory/ranking.auroc": roc,
    "theory/residuals.r2": agreement,
    "theory/calibration.ece": reliability,
    "theory/calibration.binary_ece": reliability,
    "theory/margins.distribution": margins,
    "robust/linf.sandwich": sandwich,
    "robust/linf.fgsm": sandwich,
    "robust/l2.attack": sandwich,
    "theory/curvature.sharpness": spectrum,
    "theory/curvature.trace": draws,
}
"""How the findings of a claim are drawn; those of another claim by :func:`lines`."""


def _curve(finding: Finding, *names: str) -> Tensor | None:
    """The first of these curves that the finding has; a blank or an underscore divides words."""
    known = {name.replace("_", " "): curve for name, curve in finding.curves.items()}
    found = next((known[name] for name in names if name in known), None)
    return None if found is None or found.numel() == 0 else found.detach().cpu().double()


def _plain_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import AutoLocator, FixedLocator, MaxNLocator

    if isinstance(axes.xaxis.get_major_locator(), AutoLocator):  # the drawing has chosen none
        axes.xaxis.set_major_locator(MaxNLocator(6))
    for axis in (axes.xaxis, axes.yaxis):
        if isinstance(axis.get_major_locator(), FixedLocator):
            continue  # the drawing has named its ticks
        exact_ticks(axis)
