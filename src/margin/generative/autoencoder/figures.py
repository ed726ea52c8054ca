"""Inputs and their reconstructions, traversals of a code's coordinates, and a map of codes of two numbers.

A drawing knows its curves by their names and returns "" where they are absent.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.frames import FILLS
from margin.figures.svg import GRID, MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, TALLEST = 5.6, 7.0
"""Inches of a sheet of pictures: its width, and its height at most."""

LABEL = 1.0
"""Inches left of a sheet for the names of its rows."""

MAP = 3.0
"""Inches of the square in which codes are shown."""

LEAST = 12
"""Colored classes at most; of more, none is named."""


def reconstructions(axes: "Axes", finding: Finding) -> str:
    """A row of inputs over the row of what is left of them; rows of features as strips of cells."""
    if not all(name in finding.curves for name in ("originals", "reconstructions")):
        return ""
    pair = torch.stack(
        [finding.curves[name].detach().cpu().double() for name in ("originals", "reconstructions")]
    )
    sized(axes, LABEL, 0.1, WIDE, height_of(pair, WIDE))
    sheet(axes, pair, ["input", "restored"])
    return f"{pair.shape[1]} inputs over their reconstructions"


def traversals(axes: "Axes", finding: Finding) -> str:
    """A row for each coordinate of the code, from low to high values; codes of two numbers as a map."""
    if "traversal" not in finding.curves:
        return ""
    paths = finding.curves["traversal"].detach().cpu().double()
    order = finding.value.argsort(descending=True).tolist()
    names = [f"code {i + 1}" for i in order[: len(paths)]]
    wide = min(WIDE, 0.55 * paths.shape[1])
    if paths.ndim < 4:
        wide = WIDE
    codes = finding.curves.get("codes")
    wide = wide if codes is None else MAP
    high = height_of(paths, wide)
    if codes is None:
        sized(axes, LABEL, 0.1, wide, high)
        sheet(axes, paths, names)
        return f"what is decoded as each of {len(paths)} coordinates moves, the strongest first"
    sized(axes, LABEL, 0.5 + high + 0.5, MAP, MAP)
    chart(axes, codes.detach().cpu().double(), finding.curves.get("labels of codes"))
    below: Any = axes.inset_axes((0.0, -(high + 0.6) / MAP, 1.0, high / MAP))
    sheet(below, paths, names)
    return f"{len(codes):,} codes in the plane, over what is decoded as each coordinate moves"


def chart(axes: "Axes", codes: Tensor, labels: Tensor | None) -> None:
    """Codes of two numbers as points, colored by class where classes are known and few."""
    kinds = [] if labels is None else labels.unique().tolist()
    if 0 < len(kinds) <= LEAST:
        for i, kind in enumerate(kinds):
            own = codes[labels == kind]
            fill = tuple(part / 255 for part in FILLS[i % len(FILLS)])
            axes.scatter(own[:, 0], own[:, 1], s=7, color=fill, label=str(kind), linewidths=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=1.6, handletextpad=0.1)
    else:
        axes.scatter(codes[:, 0], codes[:, 1], s=7, color=SERIES[0], linewidths=0)
    axes.set(xlabel="code 1", ylabel="code 2")


def height_of(pictures: Tensor, width: float) -> float:
    """Inches of a sheet of that width, of pictures as they are or of strips of cells."""
    rows, columns = pictures.shape[:2]
    if pictures.ndim < 4:
        return min(TALLEST, 0.3 * rows)
    return min(TALLEST, width * rows * pictures.shape[-2] / (columns * pictures.shape[-1]))


def sheet(axes: Any, pictures: Tensor, names: list[str]) -> None:
    """Rows of pictures (rows, columns, *one) as one image, gaps of the page's paper between them.

    Args:
        axes: Where it is drawn.
        pictures: Pictures (channels, height, width) or (height, width); anything else as a strip of cells.
        names: Of the rows.
    """
    rows, columns, *one = pictures.shape
    colored = len(one) == 3 and one[0] == 3
    planes = pictures if colored else pictures.mean(2, keepdim=True) if len(one) == 3 else pictures
    if len(one) != 3:
        planes = planes.reshape(rows, columns, 1, *(one if len(one) == 2 else (1, -1)))
    _, _, channels, height, width = planes.shape
    low, high = float(planes.min()), float(planes.max())
    shades = ((planes - low) / ((high - low) or 1.0)).clamp(0, 1)
    gap = max(1, round(0.06 * max(height, width)))
    canvas = torch.zeros(rows, columns, 4, height + gap, width + gap, dtype=torch.float64)
    canvas[:, :, :3, :height, :width] = shades if channels == 3 else 1 - shades
    canvas[:, :, 3, :height, :width] = 1.0
    image = canvas.permute(0, 3, 1, 4, 2).reshape(rows * (height + gap), columns * (width + gap), 4)
    axes.imshow(image.numpy(), aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([(i + 0.5) * (height + gap) - gap / 2 - 0.5 for i in range(rows)], names)
    axes.tick_params(length=0, labelcolor=MUTED)
    axes.spines[:].set(visible=False, color=GRID)
