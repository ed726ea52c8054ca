"""Accuracy against epsilon, between what is certified and what an attack left."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.frames import WIDE, curve, framed, levels, place_picture, signed
from margin.figures.svg import MUTED, SERIES, sized

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


def examples(axes: "Axes", finding: Finding) -> str:
    """Images that one step broke, what they became, and the change; of other inputs accuracy at each eps."""
    before, after = curve(finding, "original"), curve(finding, "attacked input")
    if before is None or after is None or before.ndim != 4 or before.shape[1] not in (1, 3):
        return sandwich(axes, finding)
    change, low, high = after - before, float(before.min()), float(before.max())
    largest = float(change.abs().max())
    magnified = f"change, each image's largest in full color (at most {largest:.3g})"
    count, side = len(before), min(WIDE / max(len(before), 4), 1.1)
    height = 3 * (side + 0.2)
    sized(axes, 0.75, 0.45, WIDE, height)
    axes.set_axis_off()
    axes.set(xlim=(0, WIDE), ylim=(0, height))
    for row, name in enumerate(("original", "attacked", magnified)):
        bottom = height - (row + 1) * (side + 0.2)
        for k in range(count):
            drawn = signed(change[k]) if row == 2 else levels((before, after)[row][k], low, high)
            title = name if k == 0 else ""
            place_picture(axes, drawn, k * side, bottom, 0.92 * side, title=title, at_left=True)
    return f"{count} images that a step of at most {largest:.4g} breaks, what they became, and the change"


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
    return f"accuracy against epsilon: {', '.join(shown)}{_undecided(axes, finding)}"


def _undecided(axes: "Axes", finding: Finding) -> str:
    """Below the curves, images that no attack breaks and no bound proves right; what they are, in words."""
    images, eps = curve(finding, "undecided"), curve(finding, "undecided eps")
    if images is None or eps is None or images.ndim != 4 or images.shape[1] not in (1, 3):
        return ""
    width, height, below = 3.64, 2.1, 0.44
    side, low, high = width / max(len(images), 6), float(images.min()), float(images.max())
    sized(axes, 0.68, below + side + 0.32, width, height)
    for k, image in enumerate(images):
        bottom = -(below + side + 0.24) / height
        place = axes.inset_axes((k * side / width, bottom, 0.92 * side / width, 0.92 * side / height))
        place.imshow(levels(image, low, high), interpolation="nearest")
        framed(place)
        if k == 0:
            title = f"neither broken nor certified at {float(eps):.4g}"
            place.set_title(title, fontsize=8.5, color=MUTED, pad=3, loc="left")
    return f"; {len(images)} images that at {float(eps):.4g} neither an attack breaks nor a bound certifies"
