"""The attention of one pair: a row a target token, a column a source token, the shade a weight."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADE = (0x5B, 0x8F, 0xC4)
"""The color of a weight, seen on white and on black paper."""

SIDE, LARGEST = 0.22, 3.6
"""Inches of a cell, and of the longer side of the picture at most."""


def alignment(axes: "Axes", finding: Finding) -> str:
    """The weights of one pair, and a dot on the source token that each target token reads most."""
    weights = finding.curves.get("alignment")
    if weights is None or weights.ndim != 2 or 0 in weights.shape or not bool(weights.isfinite().all()):
        return ""
    weights = weights.detach().cpu().double()
    rows, columns = weights.shape
    side = min(SIDE, LARGEST / max(rows, columns))
    sized(axes, 0.6, 0.48, side * columns, side * rows)
    axes.grid(visible=False)
    color = torch.tensor(SHADE, dtype=torch.float64) / 255
    image = torch.cat((color.expand(rows, columns, 3), weights[:, :, None].clamp(0, 1)), 2)
    axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
    axes.plot(weights.argmax(1), range(rows), "o", color=SERIES[2], markersize=min(3.0, 20 * side))
    axes.spines[:].set(visible=True, color=MUTED)
    axes.set(xlabel="source token", ylabel="target token")
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, rows)):
        places = list(range(0, count, -(-count // 10)))  # a token has no fractions
        axis.set_ticks(places, [str(place + 1) for place in places])
    return f"attention of {rows} target tokens over {columns} source tokens, a dot on the most read"
