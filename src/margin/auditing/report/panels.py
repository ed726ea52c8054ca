"""Findings that are looked at rather than read: a memory's recall, components, a halfspace in the plane.

Each drawing knows its curves by their names and returns "" where they are absent, so that any claim
that carries them is drawn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import framed, levels, signed
from margin.figures.svg import INK, MUTED, SERIES, exact_ticks, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_FRAMES = 6
"""States on the way from stimulus to memory that are shown."""

MOST_COMPONENTS = 10
MOST_BARS = 40
MOST_DOTS = 2000

WIDE = 5.6
"""Inches of a row of pictures."""


def recall(axes: "Axes", finding: Finding) -> str:
    """From the stimulus by a few states to what is retrieved, beside the stored memory, over the energy."""
    wanted = ("stimulus", "trajectory", "retrieved", "energy")
    if not all(name in finding.curves for name in wanted):
        return ""
    stimulus, trajectory, retrieved, energy = (_curve(finding, name) for name in wanted)
    inner = trajectory[1:-1]
    keep = torch.linspace(0, max(len(inner) - 1, 0), min(len(inner), MOST_FRAMES - 2)).round().long()
    pictures = [("stimulus", stimulus), *(("", state) for state in inner[keep]), ("retrieved", retrieved)]
    if "memory" in finding.curves:
        pictures.append(("stored", _curve(finding, "memory")))
    span = (min(float(p.min()) for _, p in pictures), max(float(p.max()) for _, p in pictures))
    height = _row(axes, pictures, lambda picture: levels(picture, *span), below=1.5)
    lower = axes.inset_axes((0.0, 0.0, 1.0, 1.1 / height))
    step = _curve(finding, "step") if "step" in finding.curves else torch.arange(len(energy))
    lower.plot(step, energy, color=SERIES[0])
    _plain(lower)
    lower.set(xlabel="update", ylabel="energy")
    fell = exact(float(f"{float(energy[0] - energy[-1]):.3g}"))
    return f"{len(pictures)} states from the stimulus to the memory, and the energy, which falls by {fell}"


def components(axes: "Axes", finding: Finding) -> str:
    """The first components, as pictures where inputs are pictures, over the spectrum."""
    if "components" not in finding.curves:
        return ""
    found = _curve(finding, "components")
    shown = found[:MOST_COMPONENTS]
    if shown.ndim == 4 and shown.shape[1] == 1:
        shown = shown[:, 0]
    pictured = shown.ndim == 3
    spectrum = _curve(finding, "spectrum") if "spectrum" in finding.curves else None
    if not pictured:
        shown = shown.flatten(1)[:, None]  # a row of cells, a cell a feature
    pictures = [(str(i + 1), part) for i, part in enumerate(shown)]
    below = 1.5 if spectrum is not None else 0.2
    height = _row(axes, pictures, signed, below=below) if pictured else _stack(axes, pictures, below=below)
    if spectrum is not None:
        lower = axes.inset_axes((0.0, 0.0, 1.0, 1.1 / height))
        bars = spectrum[:MOST_BARS]
        colors = [SERIES[0] if i < len(found) else MUTED for i in range(len(bars))]
        lower.bar(range(1, len(bars) + 1), bars.tolist(), color=colors)
        _plain(lower)
        lower.set(xlabel="component (the model's in color)", ylabel="variance")
    return f"{len(shown)} of {len(found)} components{' over the spectrum' if spectrum is not None else ''}"


def halfspace(axes: "Axes", finding: Finding) -> str:
    """Points of the plane by class, the boundary, and its two parallels at the least margin."""
    if not all(name in finding.curves for name in ("points", "labels", "boundary")):
        return ""
    points, labels = _curve(finding, "points"), _curve(finding, "labels")
    sized(axes, 0.68, 0.48, 3.3, 3.3)
    keep = torch.linspace(0, len(points) - 1, min(len(points), MOST_DOTS)).round().long()
    for label, color, marker in ((0, SERIES[1], "s"), (1, SERIES[0], "o")):
        own = points[keep][labels[keep] == label]
        axes.scatter(own[:, 0], own[:, 1], s=9, color=color, marker=marker, label=f"class {label}", alpha=0.7)
    line = _curve(finding, "boundary")
    axes.plot(line[:, 0], line[:, 1], color=INK, linewidth=1.2, label="boundary")
    if "margin" in finding.curves:
        for name, ends in zip(("least margin", ""), _curve(finding, "margin"), strict=True):
            style: Any = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (4, 3))}
            axes.plot(ends[:, 0], ends[:, 1], label=name, **style)
    low, high = points.amin(0), points.amax(0)
    half, middle = 0.54 * float((high - low).max()) or 1.0, (low + high) / 2
    axes.set(
        xlim=(float(middle[0]) - half, float(middle[0]) + half),
        ylim=(float(middle[1]) - half, float(middle[1]) + half),
        xlabel="first input (model units)",
        ylabel="second input",
    )
    axes.legend(loc="best")
    return f"{len(keep):,} points of two classes, the boundary and its parallels at the least margin"


# how pictures are laid out


def _curve(finding: Finding, name: str) -> Tensor:
    return finding.curves[name].detach().cpu().double()


def _row(
    axes: "Axes", pictures: list[tuple[str, Tensor]], color: Callable[[Tensor], Any], *, below: float
) -> float:
    """Pictures side by side, room of ``below`` inches under them; the height of the axes."""
    count = len(pictures)
    side = min(WIDE / count, 1.5)
    tall = side * min(max(p.shape[-2] / p.shape[-1] for _, p in pictures), 2.0)
    height = below + tall + 0.3
    sized(axes, 0.75, 0.45, WIDE, height)
    axes.set_axis_off()
    for i, (name, picture) in enumerate(pictures):
        place = axes.inset_axes((i * side / WIDE, below / height, 0.92 * side / WIDE, tall / height))
        aspect: Any = "equal" if picture.shape[-2] > 1 else "auto"
        place.imshow(color(picture), aspect=aspect, interpolation="nearest")
        framed(place)
        place.set_title(name, fontsize=8.5, color=MUTED, pad=3)
    return height


def _stack(axes: "Axes", pictures: list[tuple[str, Tensor]], *, below: float) -> float:
    """Rows of cells one under the other, where inputs are no pictures."""
    count = len(pictures)
    tall = 0.22 * count
    height = below + tall + 0.1
    sized(axes, 0.75, 0.45, WIDE, height)
    axes.set_axis_off()
    for i, (name, picture) in enumerate(pictures):
        bottom = (below + tall - 0.22 * (i + 1)) / height
        place = axes.inset_axes((0.0, bottom, 1.0, 0.19 / height))
        place.imshow(signed(picture), aspect="auto", interpolation="nearest")
        framed(place)
        place.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5, color=MUTED)
    return height


def _plain(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    for axis in (axes.xaxis, axes.yaxis):
        exact_ticks(axis)
