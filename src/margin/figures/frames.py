"""What drawings of findings share: a curve by its name, pictures in a row, numbers as colors."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.svg import GRID, MUTED, exact_ticks, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT, DARK = (0xF2, 0xF2, 0xEE), (0x2B, 0x5F, 0x8F)
WARM = (0xB0, 0x71, 0x1A)
"""Colors of a picture's least and largest value; of values with a sign, of those below and above 0."""


FILLS = (
    *((0x4C, 0x78, 0xA8), (0xF5, 0x8E, 0x18), (0x54, 0xA2, 0x4B), (0xE4, 0x57, 0x56), (0x72, 0xB7, 0xB2)),
    *((0xB2, 0x79, 0xA2), (0xEE, 0xCA, 0x3B), (0x9D, 0x75, 0x5D), (0xFF, 0x9D, 0xA6), (0x8C, 0x8C, 0x8C)),
)
"""One color for each class, as they come; mixed with the page, so that they serve on light and dark."""

MOST_DOTS = 2000
"""Dots of a scatter plot; of more, every so many are drawn."""

WIDE = 5.6
"""Inches of a row of pictures."""


def curve(finding: Finding, *names: str) -> Tensor | None:
    """The first of these curves that the finding has; a blank or an underscore divides words."""
    known = {name.replace("_", " "): curve for name, curve in finding.curves.items()}
    found = next((known[name] for name in names if name in known), None)
    return None if found is None or found.numel() == 0 else found.detach().cpu().double()


def values(finding: Finding, name: str) -> Tensor:
    """A curve that the finding has, in double precision."""
    return finding.curves[name].detach().cpu().double()


def framed(axes: "Axes") -> None:
    """A thin frame, no ticks and no grid."""
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=GRID)


# 7 parameters and the axes: what is drawn, where, and the words above it
def place_picture(
    axes: "Axes",
    colors: Any,
    left: float,
    bottom: float,
    side: float,
    *,
    title: str = "",
    size: float = 8.5,
    at_left: bool = False,
) -> None:
    """A picture in a thin frame within axes whose units are inches: axes of its own take twice as long.

    Args:
        axes: Without an axis, from (0, 0) on.
        colors: An image of three channels, each in [0, 1]; its longer side fills the square.
        left: Of the square.
        bottom: Of the square.
        side: Of the square.
        title: Words above the picture.
        size: Of the words, in points.
        at_left: Whether they begin where the picture does, else they stand over its middle.
    """
    from matplotlib import rcParams
    from matplotlib.patches import Rectangle

    rows, columns = colors.shape[:2]
    scale = side / max(rows, columns)
    wide, tall = columns * scale, rows * scale
    x, y = left + (side - wide) / 2, bottom + (side - tall) / 2
    limits = axes.get_xlim(), axes.get_ylim()
    axes.imshow(colors, extent=(x, x + wide, y, y + tall), interpolation="nearest", aspect="auto")
    axes.set(xlim=limits[0], ylim=limits[1])
    edge = rcParams["axes.linewidth"]
    axes.add_patch(Rectangle((x, y), wide, tall, fill=False, edgecolor=GRID, linewidth=edge, clip_on=False))
    if title:
        place, ha = (x, "left") if at_left else (x + wide / 2, "center")
        axes.text(place, y + tall + 0.02, title, fontsize=size, color=MUTED, va="bottom", ha=ha)


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


def pictures_in_row(
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


def rows_of_cells(axes: "Axes", pictures: list[tuple[str, Tensor]], *, below: float) -> float:
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


def few_ticks(axes: "Axes") -> None:
    """Whole numbers below, three levels at the side."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    for axis in (axes.xaxis, axes.yaxis):
        exact_ticks(axis)
