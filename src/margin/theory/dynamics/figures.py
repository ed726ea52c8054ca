"""The paths of optimizers over the contours of a loss of two weights; the loss along one gradient step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.data.files.writing import whole_file
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES, sized
from margin.math.convexity.functions import Function
from margin.theory.dynamics.rates import Make, follow
from margin.theory.dynamics.weight_function import customary, surface, window_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREFIX = "path: "
"""How the names of the curves begin that are paths."""

LEVELS = 14
"""Contours; evenly spaced in the logarithm of the height above the lowest point of the surface."""

MARKERS = ("o", "s", "^", "D", "v")
AWAY = 20
"""Widths of the picture beyond which a path has left it for good."""

LEAST = 1e-12
"""A smaller share of what there was is left by rounding, and is not drawn."""

SIDE = 4.0
"""Inches of the longer side."""

COLORS = ("#1f5f9e", "#b0711a", "#a33636", "#3a7d44", "#6b4c9a", "#555555")
"""Of the paths in a file of its own, which no page gives colors."""


def trajectories(axes: "Axes", finding: Finding) -> str:
    """Contours of the surface, and each path from its start to its end."""
    found = {
        name.removeprefix(PREFIX): path for name, path in finding.curves.items() if name.startswith(PREFIX)
    }
    if not found or not all(name in finding.curves for name in ("surface", "window")):
        return ""
    values, window = (finding.curves[name].detach().cpu().double() for name in ("surface", "window"))
    if not bool(window.isfinite().all()) or not bool(values.isfinite().any()):
        return ""
    wide, high = (float(b - a) for a, b in window)
    scale = SIDE / max(wide, high)
    sized(axes, 0.7, 0.48, wide * scale, high * scale)
    contours(axes, values, window, MUTED)
    follow_paths(axes, found, SERIES, INK)
    axes.set(xlabel="first weight", ylabel="second weight")
    return f"the paths of {', '.join(found)} over the contours of the loss"


def rate(axes: "Axes", finding: Finding) -> str:
    """What a method has left after each step, beside its bound; the scale is logarithmic."""
    if not all(name in finding.curves for name in ("step", "measured", "bound")):
        return ""
    step, measured, bound = (
        finding.curves[name].detach().cpu().double() for name in ("step", "measured", "bound")
    )
    dashes: Any = {"color": MUTED, "linestyle": (0, (4, 3))}
    for name, y, style in (("bound", bound, dashes), ("measured", measured, {"color": SERIES[0]})):
        told = y > LEAST * measured.max()
        axes.plot(step[told], y[told], label=name, **style)
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="after so many steps")
    axes.legend()
    return f"what is left after each of {len(step)} steps, and the bound, on a logarithmic scale"


def step_gain(axes: "Axes", finding: Finding) -> str:
    """The mean loss after a gradient step by its rate, of the same examples and of those left out of it."""
    parts, drawn = ("the same examples", "examples left out"), []
    before = finding.curves.get("loss: the same examples", torch.zeros(0))[:1].double()
    for part, color in zip(parts, SERIES, strict=False):
        names = (f"rate: {part}", f"loss: {part}")
        if not all(name in finding.curves for name in names):
            return ""
        x, y = (finding.curves[name].detach().cpu().double() for name in names)
        shown = (x > 0) & y.isfinite() & (y <= 2 * before.abs() + before)  # a leap would flatten the fall
        if bool(shown.any()):
            axes.plot(x[shown], y[shown], color=color, marker="o", markersize=3, label=part)
            drawn.append(part)
    if not drawn:
        return ""
    axes.axhline(float(before), color=INK, linewidth=0.9, label="before the step")
    if "loss: a constant" in finding.curves:
        constant = float(finding.curves["loss: a constant"][0])
        axes.axhline(constant, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label="a constant answer")
    axes.set_xscale("log")
    axes.set(xlabel="learning rate", ylabel="mean loss after a step")
    axes.legend()
    height = exact(float(f"{float(before):.3g}"))
    return f"mean loss after one gradient step, of {' and of '.join(drawn)}; {height} before"


def contours(axes: "Axes", values: Tensor, window: Tensor, color: str) -> None:
    """Contours that are as dense near the lowest point as far from it.

    Args:
        axes: Where they are drawn.
        values: On a grid; rows go along the second coordinate.
        window: Low and high of each coordinate.
        color: Of the lines.
    """
    (left, right), (bottom, top) = window.tolist()
    height, width = values.shape
    x, y = torch.linspace(left, right, width), torch.linspace(bottom, top, height)
    finite = values[values.isfinite()]
    low, span = finite.min(), float(finite.max() - finite.min())
    axes.grid(False)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    if span == 0:
        return
    levels = float(low) + span * torch.logspace(-4, -0.05, LEVELS, dtype=torch.float64)
    shown = values.where(values.isfinite(), finite.max())
    axes.contour(
        x.numpy(), y.numpy(), shown.numpy(), levels=levels.tolist(), colors=color, linewidths=0.5, alpha=0.6
    )


def follow_paths(axes: "Axes", paths: Mapping[str, Tensor], colors: Sequence[str], ink: str) -> None:
    """A line with a mark for each of its first iterates, a ring at the start, a larger mark at the end.

    Args:
        axes: Where they are drawn.
        paths: Iterates by name, two coordinates each.
        colors: Of the paths, in turn.
        ink: Of the start.
    """
    for i, (name, path) in enumerate(paths.items()):
        points = path.detach().cpu().double()
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        near = (points[:, 0] - left).abs() < AWAY * (right - left)
        near &= (points[:, 1] - bottom).abs() < AWAY * (top - bottom)
        points = points[near.int().cumprod(0).bool()]  # until it leaves
        color, marker = colors[i % len(colors)], MARKERS[i % len(MARKERS)]
        style: Any = {"color": color, "marker": marker, "markersize": 2.6, "linewidth": 1.1}
        axes.plot(points[:, 0], points[:, 1], label=name, zorder=3 - i / 10, **style)
        axes.plot(points[-1:, 0], points[-1:, 1], color=color, marker=marker, markersize=6, zorder=4)
    first = next(iter(paths.values())).detach().cpu().double()[0]
    axes.scatter([float(first[0])], [float(first[1])], s=52, facecolors="none", edgecolors=ink, zorder=5)
    axes.legend(loc="best")


def draw(
    f: Function,
    start: Sequence[float],
    file: str | Path,
    *,
    optimizers: Mapping[str, Make] | None = None,
    steps: int = 60,
    window: Sequence[Sequence[float]] | None = None,
    title: str = "",
) -> Path:
    """Draw the paths of optimizers on a function of two coordinates into a PNG, SVG or PDF file.

    Args:
        f: The function, twice differentiable.
        start: Where every path begins.
        file: Where the picture goes; its suffix says in which format.
        optimizers: Makes each from the parameters, by name; gradient descent, heavy ball, Nesterov's method
            and Adam if not given.
        steps: Iterations of each, at least 1.
        window: Low and high of each axis; what holds the paths if not given.
        title: Above the picture.

    Raises:
        ValueError: The start has not two coordinates, there is no optimizer or no step, or the format is
            none that can be written.
    """
    at, path = torch.as_tensor(start, dtype=torch.float64), Path(file)
    if at.shape != (2,) or steps < 1:
        raise ValueError(f"a picture needs a start of two coordinates and a step: got {list(start)}, {steps}")
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"the file must end in .png, .svg or .pdf: got {path.name!r}")
    made = customary(f, at) if optimizers is None else optimizers
    if not made:
        raise ValueError("a picture needs an optimizer: got none")
    found = {name: follow(f, at, make, steps) for name, make in made.items()}
    box = window_of(found) if window is None else torch.tensor(window, dtype=torch.float64)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, high = (float(b - a) for a, b in box)
    scale = 6.0 / max(wide, high)
    figure = Figure(figsize=(wide * scale + 0.9, high * scale + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    contours(axes, surface(f, box, 101), box, "#777777")
    follow_paths(axes, {name: p.points for name, p in found.items()}, COLORS, "#111111")
    axes.set_title(title)
    with whole_file(path) as drawn:
        figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    return path
