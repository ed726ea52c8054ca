"""The attention of one text: a row a token that reads, a column one that is read, the words on both axes."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.svg import MUTED, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADE = (0x5B, 0x8F, 0xC4)
"""The color of a weight, seen on white and on black paper."""

SIDE, LARGEST = 0.24, 4.2
"""Inches of a cell, and of the side of the picture at most."""


def attention_map(axes: "Axes", finding: Finding) -> str:
    """The weights of the last layer for one text, with its words where the tokenizer is known."""
    weights = finding.curves.get("attention")
    if weights is None or weights.ndim != 2 or 0 in weights.shape or not bool(weights.isfinite().all()):
        return ""
    rows, columns = weights.shape
    side = min(SIDE, LARGEST / max(rows, columns))
    sized(axes, 0.9, 0.9, side * columns, side * rows)
    axes.grid(visible=False)
    color = torch.tensor(SHADE, dtype=torch.float64) / 255
    shade = weights.double() / weights.max().clamp(min=1e-12)
    image = torch.cat((color.expand(rows, columns, 3), shade[:, :, None].clamp(0, 1)), 2)
    axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
    axes.spines[:].set(visible=True, color=MUTED)
    said = next((line for line in finding.remarks if line.startswith("tokens: ")), "")
    words = said.removeprefix("tokens: ").split(" ") if said else []
    if len(words) == columns:
        axes.xaxis.set_ticks(range(columns), words, rotation=90, fontsize=7)
        axes.yaxis.set_ticks(range(rows), words[:rows], fontsize=7)
    axes.set(xlabel="token that is read", ylabel="token that reads")
    return f"attention of {rows} tokens of one held-out text in the last layer, the mean over its heads"
