"""Weights of attention as a picture: a row a token that reads, a column one that is read, shaded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.figures.svg import MUTED, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

SHADE = (0x5B, 0x8F, 0xC4)
"""The color of a weight, seen on white and on black paper."""

SIDE, LARGEST = 0.24, 4.2
"""Inches of a cell, and of the longer side of the picture at most."""

NUMBERS = 10
"""Numbers of tokens beside an axis at most, where there are no words."""


def drawable(weights: Tensor | None) -> bool:
    """Whether there are weights, (tokens that read, tokens that are read), all finite."""
    return (
        weights is not None
        and weights.ndim == 2
        and 0 not in weights.shape
        and bool(weights.isfinite().all())
    )


def shaded(axes: "Axes", weights: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> float:
    """Draw the weights of attention, the largest in full color.

    Args:
        axes: Alone in their figure.
        weights: (tokens that read, tokens that are read).
        rows: The words of the tokens that read, where they are known; else the axis has their numbers from 1.
        columns: Of the tokens that are read.

    Returns:
        Inches of a cell.
    """
    weights = weights.detach().cpu().double()
    side = min(SIDE, LARGEST / max(weights.shape))
    sized(axes, 0.9, 0.9, side * weights.shape[1], side * weights.shape[0])
    axes.grid(visible=False)
    color = torch.tensor(SHADE, dtype=torch.float64) / 255
    shade = (weights / weights.max().clamp(min=1e-12)).clamp(0, 1)
    axes.imshow(
        torch.cat((color.expand(*shade.shape, 3), shade[:, :, None]), 2).numpy(),
        aspect="auto",
        interpolation="nearest",
    )
    axes.spines[:].set(visible=True, color=MUTED)
    _named(axes.xaxis, columns, weights.shape[1], rotation=90)
    _named(axes.yaxis, rows, weights.shape[0], rotation=0)
    return side


def _named(axis: "Axis", words: Sequence[str], count: int, rotation: float) -> None:
    """Words beside each token, or the numbers of some of them: a token has no fractions."""
    if len(words) == count:
        axis.set_ticks(range(count), words, rotation=rotation, fontsize=7)
    else:
        places = range(0, count, -(-count // NUMBERS))
        axis.set_ticks(places, [str(place + 1) for place in places])
