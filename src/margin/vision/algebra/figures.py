"""Figures of a network of images: its first filters and what they respond to, saliency over images, shifts.

A drawing knows its curves by their names and returns "" where they are absent.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import framed, levels, signed, values
from margin.figures.svg import MUTED, SERIES, sized, whole_ticks
from margin.math.evenly import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE, GAP, TITLE = 0.86, 0.08, 0.2
"""Inches of a picture, between pictures, and of the words above one."""

MOST_LAYERS = 5
"""Layers whose curve is drawn: the first, the last and those evenly between."""


def _grid(axes: "Axes", rows: list[list[tuple[str, Tensor]]], color: str, side: float = SIDE) -> None:
    """Pictures in rows, from the least to the largest value of each, those of "signed" rows by their sign.

    Args:
        axes: Where they go.
        rows: Title and picture; without a title a place is left free.
        color: "level", or "signed" for the last row.
        side: Inches of a picture.
    """
    columns = max(map(len, rows))
    width, height = columns * (side + GAP), len(rows) * (side + TITLE)
    sized(axes, 0.1, 0.1, width, height)
    axes.set_axis_off()
    for r, row in enumerate(rows):
        by_sign = color == "signed" and r == len(rows) - 1
        for c, (title, picture) in enumerate(row):
            if not title:
                continue
            bottom = (len(rows) - 1 - r) * (side + TITLE)
            place = axes.inset_axes((c * (side + GAP) / width, bottom / height, side / width, side / height))
            low, high = float(picture.min()), float(picture.max())
            place.imshow(signed(picture) if by_sign else pixels(picture, low, high), interpolation="nearest")
            framed(place)
            place.set_title(title, fontsize=7.5, color=MUTED, pad=2)


def pixels(picture: Tensor, low: float, high: float) -> Any:
    """An image of three channels in its colors, of another number from paper to ink."""
    if picture.ndim == 3 and len(picture) == 3:
        return ((picture - low) / ((high - low) or 1.0)).clamp(0, 1).permute(1, 2, 0).numpy()
    return levels(picture, high, low) if low < high else levels(picture, low, low + 1)


def filters(axes: "Axes", finding: Finding) -> str:
    """The strongest first filters, and what each makes of one held-out image."""
    names = [name for name in finding.curves if name.startswith("filter ")]
    if not names or "image" not in finding.curves:
        return ""
    image = values(finding, "image")
    above = [(f"map {n.split()[1]}", values(finding, f"response of {n}")) for n in names]
    below = [(name, values(finding, name)) for name in names]
    _grid(axes, [[("an image", image), *above], [("", image), *below]], "signed")
    return f"an image, the maps that {len(names)} filters make of it, and these filters by their sign"


def saliency(axes: "Axes", finding: Finding) -> str:
    """Held-out images, and the derivative of the predicted class's score laid over each."""
    count = sum(name.startswith("saliency ") for name in finding.curves)
    if not count:
        return ""
    row = []
    for i in range(1, count + 1):
        image, found = values(finding, f"image {i}"), values(finding, f"saliency {i}")
        row += [(f"image {i}", image), ("its saliency", overlaid(image, found))]
    _grid(axes, [row], "level")
    return f"{count} held-out images, each beside its saliency laid over it in warm color"


def overlaid(image: Tensor, found: Tensor) -> Tensor:
    """A gray picture of an image, faint, with its saliency in a warm color; three channels from 0 to 1."""
    gray = image.mean(0)
    span = float(gray.max() - gray.min()) or 1.0
    faint = 0.35 + 0.6 * (gray - gray.min()) / span
    share = (found[0] / (float(found.max()) or 1.0)).clamp(0, 1)
    warm = torch.tensor((0.85, 0.25, 0.05), dtype=faint.dtype)[:, None, None]
    return (1 - share) * faint.expand(3, -1, -1) + share * warm


def shifts(axes: "Axes", finding: Finding) -> str:
    """Equivariance error, or the share of classes that change, over the pixels that an image is moved."""
    names = [name for name in finding.curves if name not in ("pixels", "shorter side")]
    if "pixels" not in finding.curves or not names:
        return ""
    picked = evenly(len(names), MOST_LAYERS).tolist()
    x = values(finding, "pixels")
    for i, color in zip(picked, SERIES, strict=False):
        axes.plot(x, values(finding, names[i]), color=color, marker="o", markersize=3, label=names[i])
    axes.set(xlabel="pixels that the image is moved", ylabel="share" if len(names) == 1 else "relative error")
    axes.set_ylim(bottom=0)
    whole_ticks(axes.xaxis)
    if len(names) > 1:
        axes.set_ylim(top=1.6 * axes.get_ylim()[1])  # room for the names
        axes.legend()
    return f"{', '.join(names[i] for i in picked)} over the pixels that an image is moved"


def field(axes: "Axes", finding: Finding) -> str:
    """How much the middle of the last feature map depends on each pixel."""
    names = [name for name in finding.curves if name.startswith("dependence")]
    if not names:
        return ""
    picture = values(finding, names[0])
    scale = picture.max().clamp_min(torch.finfo(picture.dtype).tiny)
    _grid(axes, [[("each pixel's part", (picture / scale).sqrt())]], "signed", side=2 * SIDE)
    return f"{names[0]} on each pixel, on a scale of square roots"
