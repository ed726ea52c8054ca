"""Accuracy against epsilon, between what is certified and what an attack left."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.frames import curve
from margin.figures.svg import MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def radii(axes: "Axes", finding: Finding) -> str:
    """How many examples are certified up to which radius; those never certified at the left."""
    radius, least = curve(finding, "radius"), curve(finding, "sigma", "eps")
    if radius is None or least is None:
        return ""
    certified, ends = radius[radius > 0], torch.linspace(0, max(float(radius.max()), float(least.max())), 21)
    counts = torch.histogram(certified.float().cpu(), ends.float()).hist
    axes.bar(ends[:-1].tolist(), counts.tolist(), float(ends[1]), align="edge", color=SERIES[0])
    none = int((radius <= 0).sum())
    axes.bar([-float(ends[1]) * 1.5], [none], float(ends[1]), color=MUTED)
    axes.annotate("none", (-float(ends[1]) * 1.5, none), ha="center", va="bottom")
    axes.set(xlabel="certified radius (input units)", ylabel="examples")
    return f"certified radii: {len(certified)} examples, none at {none} (wrong, or nothing is proved)"


def sandwich(axes: "Axes", finding: Finding) -> str:
    """Accuracy against epsilon: the truth lies between what is certified and what survived the attack."""
    eps, certified = curve(finding, "eps", "epsilon"), curve(finding, "certified")
    attacked = curve(finding, "attacked", "pgd")
    if eps is None or (certified is None and attacked is None):
        return ""
    x = eps.tolist()
    if certified is not None and attacked is not None:
        axes.fill_between(x, certified, attacked, color=SERIES[0], alpha=0.16, linewidth=0)
    styles = {
        "clean": (curve(finding, "clean"), MUTED, (0, (4, 3))),
        "FGSM": (curve(finding, "fgsm"), SERIES[3], (0, (1, 1.5))),
        "under attack": (attacked, SERIES[2], "-"),
        "certified": (certified, SERIES[0], "-"),
    }
    for label, (y, color, style) in styles.items():
        if y is not None:
            axes.plot(
                x, y.expand(len(x)), color=color, linestyle=style, marker="o", markersize=3, label=label
            )
    axes.set(xlabel="epsilon (input units)", ylabel="accuracy", ylim=(-0.03, 1.03))
    axes.legend(ncols=1)
    shown = [label for label, (y, _, _) in styles.items() if y is not None]
    return f"accuracy against epsilon: {', '.join(shown)}"
