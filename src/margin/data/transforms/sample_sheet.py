"""Samples as one picture: images side by side, points of the plane as a cloud."""

import math
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from margin.data.files.writing import whole_file
from margin.data.transforms.augmentation_sheet import COLOR

SIDE = 56
"""Pixels of a small image's longer side in the picture, about: each of its own is repeated."""

GAP = 2
"""Pixels between two images."""


def has_picture(values: Tensor) -> bool:
    """Whether samples are images of one or three channels, or points of the plane."""
    return (values.ndim == 4 and values.shape[1] in (1, 3)) or (values.ndim == 2 and values.shape[1] == 2)


def write_picture(path: Path, values: Tensor, span: tuple[float, float] | None = None) -> None:
    """Write samples as a PNG.

    Args:
        path: Where it goes.
        values: What :func:`has_picture` knows.
        span: The values of black and white; None: the least and the largest of all images.

    Raises:
        ValueError: A value is not finite.
    """
    if not bool(values.isfinite().all()):
        raise ValueError("a picture needs finite samples: a value is not a number, or infinite")
    if values.ndim == 2:
        _write_cloud(path, values)
    else:
        _write_images(path, values, span)


def image_sheet(
    images: Float[Tensor, "batch channel height width"], span: tuple[float, float] | None = None
) -> Float[Tensor, "channel rows columns"]:
    """Images side by side, row by row, on white: levels from 0 (black) to 1 (white).

    The sheet has as many columns as rows, or more; a small image's pixels are repeated.
    """
    count, channels, height, width = images.shape
    low, high = (float(images.min()), float(images.max())) if span is None else span
    shade = ((images.double() - low) / ((high - low) or 1.0)).clamp(0, 1)
    times = max(1, SIDE // max(height, width))
    shade = shade.repeat_interleave(times, 2).repeat_interleave(times, 3)
    across = math.ceil(math.sqrt(count))
    down = -(-count // across)
    tall, wide = height * times + GAP, width * times + GAP
    sheet = torch.ones(channels, down * tall + GAP, across * wide + GAP, dtype=torch.float64)
    for i, image in enumerate(shade):
        top, left = i // across * tall + GAP, i % across * wide + GAP
        sheet[:, top : top + height * times, left : left + width * times] = image
    return sheet


def _write_images(path: Path, images: Tensor, span: tuple[float, float] | None) -> None:
    from PIL import Image

    levels = (image_sheet(images, span) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    with whole_file(path) as file:
        Image.fromarray(levels[..., 0] if levels.shape[2] == 1 else levels).save(file, format="PNG")


def _write_cloud(path: Path, points: Tensor) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained", dpi=120)
    axes = figure.subplots()
    size = min(20.0, max(1.0, 4000 / len(points)))
    axes.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=size, color=COLOR, alpha=0.6, linewidths=0)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_title(f"{len(points)} samples", fontsize=10)
    with whole_file(path) as file:
        figure.savefig(file, format="png")
