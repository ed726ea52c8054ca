"""Samples of a generator and data: points of the plane over each other, images in rows."""

from typing import TYPE_CHECKING

from torch import Tensor

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 3.4
"""Inches of a square of points."""

ACROSS = 6
"""Images in a row."""

CELL = 0.6
"""Inches of an image, with the gap to the next."""

TITLE = 0.24
"""Inches of a line above images."""

OTHERS = ("held-out images", "nearest training images")


def sample_points(axes: "Axes", finding: Finding) -> str:
    """Samples over held-out points, both axes of one scale."""
    if not all(name in finding.curves for name in ("sample points", "held-out points")):
        return ""
    data, samples = (
        finding.curves[name].detach().cpu().double() for name in ("held-out points", "sample points")
    )
    sized(axes, 0.62, 0.55, SIDE, SIDE)
    for points, color, label in ((data, MUTED, "held-out examples"), (samples, SERIES[2], "samples")):
        x, y = points.T.numpy()
        axes.scatter(x, y, s=9, color=color, label=label, linewidths=0, alpha=0.6)
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.08), ncols=2, borderaxespad=0.0, handletextpad=0.1)
    return f"{len(samples)} samples over {len(data)} held-out examples"


def sample_images(axes: "Axes", finding: Finding) -> str:
    """Samples, and below them held-out images or the training images nearest to them, in one gray scale."""
    other = next((name for name in OTHERS if name in finding.curves), None)
    if other is None or "sample images" not in finding.curves:
        return ""
    pictures = {"samples": finding.curves["sample images"], other: finding.curves[other]}
    rows = sum(-(-len(images) // ACROSS) for images in pictures.values())
    wide, high = ACROSS * CELL, rows * CELL + len(pictures) * TITLE
    sized(axes, 0.1, 0.1, wide, high)
    axes.set_axis_off()
    axes.set(xlim=(0, wide), ylim=(high, 0))
    levels = finding.curves[other].detach().cpu().double()
    low, high_level = float(levels.min()), float(levels.max())
    top = 0.0
    for name, images in pictures.items():
        axes.text(0, top + 0.7 * TITLE, name, fontsize=8.5, color=MUTED)
        top += TITLE
        for i, image in enumerate(images.detach().cpu().double()):
            x, y = CELL * (i % ACROSS), top + CELL * (i // ACROSS)
            shade = ((image - low) / ((high_level - low) or 1.0)).clamp(0, 1)
            axes.imshow(
                colors(shade).numpy(), extent=_box(x, y, shade), interpolation="nearest", aspect="auto"
            )
        top += CELL * -(-len(images) // ACROSS)
    # each picture has moved the limits to its own
    axes.set(xlim=(0, wide), ylim=(high, 0))
    return f"{len(pictures['samples'])} samples above {len(pictures[other])} {other}"


def colors(image: Tensor) -> Tensor:
    """An image (C, H, W) of levels in [0, 1] as (H, W, 3): gray unless it has three channels."""
    if len(image) == 3:
        return image.permute(1, 2, 0)
    return image.mean(0)[:, :, None].expand(-1, -1, 3)


def _box(x: float, y: float, image: Tensor) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of an image in its cell, in its own proportions."""
    height, width = image.shape[1:]
    side = 0.94 * CELL / max(height, width)
    return x, x + side * width, y + side * height, y


def samples(axes: "Axes", finding: Finding) -> str:
    """Samples as images, or as points of the plane."""
    return sample_images(axes, finding) or sample_points(axes, finding)
