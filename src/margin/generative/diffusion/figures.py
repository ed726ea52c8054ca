"""The denoising film: samples at a row of times from noise to data, in the plane over the field of scores."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import framed, levels
from margin.figures.svg import INK, MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 6.6
"""Inches of a row of frames."""

SAMPLES = 4
"""Pictures that are followed, a row each."""

DOTS = 256
"""Points that are shown in a frame, at most."""


def film(axes: "Axes", finding: Finding) -> str:
    """Frames side by side, the noisiest first: points with arrows along the score, or pictures in rows."""
    if "film" not in finding.curves or "film times" not in finding.curves:
        return ""
    shown, times = (finding.curves[name].detach().cpu().double() for name in ("film", "film times"))
    if not bool(shown.isfinite().all()):
        return ""
    names = [f"t = {int(t)}" for t in times.tolist()]
    if shown.ndim == 5:
        return _pictures(axes, shown, names)
    if shown.ndim != 3 or shown.shape[2] != 2:
        return ""
    return _points(axes, shown, names, finding)


def _points(axes: "Axes", shown: Tensor, names: list[str], finding: Finding) -> str:
    count, side = len(shown), WIDE / len(shown)
    sized(axes, 0.1, 0.1, WIDE, side + 0.3)
    axes.set_axis_off()
    reach = 1.05 * min(float(shown.abs().amax()), 3.5)
    scores = finding.curves.get("scores")
    for i, (frame, name) in enumerate(zip(shown, names, strict=True)):
        place = axes.inset_axes((i / count, 0.0, 0.94 / count, 0.94 * side / (side + 0.3)))
        if scores is not None and i < len(scores):
            grid, arrow = finding.curves["grid"].double(), scores[i].detach().cpu().double()
            arrow = arrow / arrow.norm(dim=1, keepdim=True).clamp_min(1e-12)  # the direction alone
            place.quiver(*grid.T, *arrow.T, color=MUTED, width=0.006, scale=22, alpha=0.6)
        x = frame[:DOTS]
        place.plot(x[:, 0], x[:, 1], "o", color=SERIES[0], markersize=1.8, markeredgewidth=0, alpha=0.8)
        framed(place)
        place.set(xlim=(-reach, reach), ylim=(-reach, reach))
        place.set_title(name, fontsize=8.5, color=INK, pad=3)
    field = ", with arrows along the score" if scores is not None else ""
    return f"{min(DOTS, shown.shape[1])} samples at {count} times from noise to data{field}"


def _pictures(axes: "Axes", shown: Tensor, names: list[str]) -> str:
    count, rows = len(shown), min(SAMPLES, shown.shape[1])
    side = WIDE / count
    tall = side * min(shown.shape[-2] / shown.shape[-1], 2.0)
    height = rows * tall + 0.3
    sized(axes, 0.1, 0.1, WIDE, height)
    axes.set_axis_off()
    for i, name in enumerate(names):
        frame = shown[i, :rows]
        low, high = torch.quantile(frame, torch.tensor([0.01, 0.99], dtype=frame.dtype)).tolist()
        for j, picture in enumerate(frame):
            bottom = (rows - 1 - j) * tall / height
            place = axes.inset_axes((i / count, bottom, 0.94 / count, 0.94 * tall / height))
            place.imshow(levels(picture, low, high), interpolation="nearest")
            framed(place)
            if j == 0:
                place.set_title(name, fontsize=8.5, color=INK, pad=3)
    return f"{rows} samples at {count} times from noise to data"
