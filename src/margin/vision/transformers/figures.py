"""Attention maps: images, and over each how much of what the logits read comes from its patches."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import WIDE, curve, framed, levels
from margin.figures.svg import MUTED, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIMMED = 0.25
"""What is left of the brightness of a patch that counts nothing."""


def brightness(images: Tensor, maps: Tensor) -> Tensor:
    """The images with patches as bright as they count: the largest as it is, none at :data:`DIMMED`.

    Args:
        images: In [0, 1], of shape (images, channels, height, width).
        maps: Shares of the patches, of shape (images, rows, columns).
    """
    height, width = images.shape[2:]
    rows, columns = maps.shape[1:]
    tall, wide = -(-height // rows), -(-width // columns)  # padded below and right, where they do not divide
    pixels = F.interpolate(maps[:, None], scale_factor=(tall, wide), mode="nearest")[..., :height, :width]
    share = pixels / maps.amax((1, 2))[:, None, None, None].clamp(min=torch.finfo(maps.dtype).tiny)
    return images * (DIMMED + (1 - DIMMED) * share)


def attention_maps(axes: "Axes", finding: Finding) -> str:
    """A row of images over the same with their patches as bright as attention rollout counts them.

    Args:
        axes: Where it is drawn.
        finding: With the curves ``images`` and ``attention``; without them nothing is drawn.
    """
    images, maps = curve(finding, "images"), curve(finding, "attention")
    if images is None or maps is None:
        return ""
    low, high = float(images.min()), float(images.max())
    shown = (images - low) / ((high - low) or 1.0)
    rows = [shown, brightness(shown, maps)]
    side = WIDE / max(4, len(images))
    tall = side * min(images.shape[2] / images.shape[3], 2.0)
    sized(axes, 0.75, 0.1, WIDE, 2 * tall)
    axes.set_axis_off()
    for below, (name, row) in enumerate(zip(("image", "attention"), rows, strict=True)):
        for i, picture in enumerate(row):
            place = axes.inset_axes(
                (i * side / WIDE, (1 - below) / 2 + 0.02, 0.94 * side / WIDE, 0.46), zorder=2
            )
            color = picture.permute(1, 2, 0).numpy() if len(picture) == 3 else levels(1 - picture, 0.0, 1.0)
            place.imshow(color, interpolation="nearest", aspect="auto")
            framed(place)
            if i == 0:
                place.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5, color=MUTED)
    return (
        f"{len(images)} held-out images, and the same with patches as bright as attention rollout counts them"
    )
