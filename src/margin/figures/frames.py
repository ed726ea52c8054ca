"""Pictures inside a drawing: a frame around one, and numbers as colors."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.figures.svg import GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT, DARK = (0xF2, 0xF2, 0xEE), (0x2B, 0x5F, 0x8F)
WARM = (0xB0, 0x71, 0x1A)
"""Colors of a picture's least and largest value; of values with a sign, of those below and above 0."""


def framed(axes: "Axes") -> None:
    """A thin frame, no ticks and no grid."""
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=GRID)


def levels(picture: Tensor, low: float, high: float) -> Any:
    """From paper to ink as the value rises; a picture of several channels by their mean."""
    plane = picture.mean(0) if picture.ndim == 3 else picture
    share = ((plane - low) / (high - low or 1.0)).clamp(0, 1)[..., None]
    light, dark = (torch.tensor(c, dtype=torch.float64) / 255 for c in (LIGHT, DARK))
    return ((1 - share) * light + share * dark).numpy()


def signed(picture: Tensor) -> Any:
    """One color below 0, another above, paper at 0."""
    plane = picture.mean(0) if picture.ndim == 3 else picture
    share = (plane / (plane.abs().max() or 1.0))[..., None]
    light, dark, warm = (torch.tensor(c, dtype=torch.float64) / 255 for c in (LIGHT, DARK, WARM))
    return torch.where(
        share > 0, (1 - share) * light + share * dark, (1 + share) * light - share * warm
    ).numpy()
