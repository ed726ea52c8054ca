"""Segmentation drawn: an image, its mask, what was predicted, and where that errs."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import FILLS, framed, values
from margin.figures.svg import MUTED, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE, GAP, ABOVE, BELOW = 1.3, 0.08, 0.25, 0.25
"""Inches: of a picture, between two, for the titles above and for the classes below."""

BLANK = (0xF2, 0xF2, 0xEE)
"""The color of pixels without a class, and of what is right."""


def overlays(axes: "Axes", finding: Finding) -> str:
    """The held-out images with the largest share of wrong pixels: image, mask, predicted class, errors."""
    count = sum(name.startswith("image ") for name in finding.curves)
    if not count:
        return ""
    columns = ("image", "true class", "predicted", "where it errs")
    width, height = 4 * SIDE + 3 * GAP, count * (SIDE + GAP)
    sized(axes, 0.05, 0.05, width, BELOW + height + ABOVE)
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(-BELOW, height + ABOVE))
    shares = []
    for row in range(count):
        image, mask, found = (values(finding, f"{name} {row + 1}") for name in ("image", "mask", "predicted"))
        wrong = (mask >= 0) & (mask != found)
        shares.append(f"{float(wrong.sum() / (mask >= 0).sum()):.1%}")
        drawn = (
            shades(image),
            in_colors(mask),
            in_colors(found),
            in_colors(torch.where(wrong, mask, -1)),
        )
        for column, picture in enumerate(drawn):
            left, bottom = column * (SIDE + GAP), height - (row + 1) * (SIDE + GAP) + GAP
            inside = axes.inset_axes((left, bottom, SIDE, SIDE), transform=axes.transData)
            inside.imshow(picture, interpolation="nearest")
            framed(inside)
            if row == 0:
                axes.text(
                    left + SIDE / 2, height + 0.08, columns[column], ha="center", color=MUTED, fontsize=9
                )
    place = 0.0
    for k, name in enumerate(finding.labels[: len(FILLS)]):
        color = [part / 255 for part in FILLS[k % len(FILLS)]]
        axes.plot([place + 0.06], [-0.14], "s", color=color, markersize=7)
        axes.text(place + 0.16, -0.14, name, va="center", color=MUTED, fontsize=9)
        place += 0.35 + 0.085 * len(name)
    wrong_shares = ", ".join(shares)
    return f"{count} held-out images, their masks, the predicted classes, the wrong pixels: {wrong_shares}"


def shades(image: Tensor) -> Any:
    """An image in gray, its least value black and its largest white."""
    low, high = image.min(), image.max()
    return ((image - low) / (high - low).clamp_min(1e-12))[..., None].expand(*image.shape, 3).numpy()


def in_colors(labels: Tensor) -> Any:
    """A color for each class; blank where there is none."""
    table = torch.tensor([BLANK, *FILLS], dtype=torch.float64) / 255
    place = torch.where(labels < 0, 0, labels % len(FILLS) + 1).long()
    return table[place].numpy()
