"""The confusion matrix as a picture: what each class is taken for, the shade a cell's share of its row."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import GRID, INK, MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 20
"""Classes whose names and counts are written; with more, the shade alone is shown."""

MOST_SMALL = 8
"""Classes that fit beside the text; with more, the picture is as wide as the page."""

FAINTEST, DARKEST = 0.08, 0.5
"""Opacity of a cell that is hardly filled, and of one that holds its row; ink stays legible on it."""

SHADE = (0x5B, 0x8F, 0xC4)
"""The color of a picture without counts, seen on white and on black paper."""

LONGEST_NAME = 14
"""Characters of a class's name; of a longer one the middle is left out, so that its number stays."""


def confusion(axes: "Axes", finding: Finding) -> str:
    """What each class is taken for: true class by row, predicted by column, mistakes in another color."""
    cells = finding.curves.get("confusion")
    if cells is None or cells.ndim != 2 or cells.shape[0] != cells.shape[1] or not bool(cells.sum() > 0):
        return ""
    cells = cells.detach().cpu().double()
    share = (cells / cells.sum(1, keepdim=True)).nan_to_num()
    count = len(cells)
    axes.grid(visible=False)
    axes.set(xlabel="predicted class (shade: share of the row)", ylabel="true class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if count > MOST_NAMED:
        _shaded(axes, share)
    else:
        _counted(axes, cells, share, class_names(finding, cells))
    right = exact(float(f"{float(cells.trace() / cells.sum()):.3g}"))
    return f"confusion matrix of {count} classes: {right} of the examples lie on the diagonal"


def class_names(finding: Finding, cells: Tensor) -> list[str]:
    """A name for each class: the finding's labels are of those that occur, in order."""
    names = [f"class {k}" for k in range(len(cells))]
    occurring = cells.sum(1).nonzero().flatten().tolist()
    if len(finding.labels) == len(occurring):
        for k, label in zip(occurring, finding.labels, strict=True):
            names[k] = label
    if all(name == f"class {k}" for k, name in enumerate(names)):
        return [str(k) for k in range(len(names))]
    start, end = LONGEST_NAME // 2, LONGEST_NAME // 2 - 1
    return [
        name if len(name) <= LONGEST_NAME else f"{name[:start].rstrip()}…{name[-end:].lstrip()}"
        for name in names
    ]


def _counted(axes: "Axes", cells: Tensor, share: Tensor, names: list[str]) -> None:
    """Cells with their counts, and names on both axes."""
    from matplotlib.patches import Rectangle

    count, longest = len(cells), max(map(len, names))
    side = 3.0 if count <= MOST_SMALL else min(0.34 * count, 6.2)
    step = 72 * side / count
    upright = 5.5 * longest > 0.95 * step
    left = 0.45 + 0.08 * longest
    sized(axes, left, 0.42 + (0.08 * longest if upright else 0.12), side, side)
    written = {(i, j): exact(float(f"{cells[i, j]:.6g}")) for i, j in cells.nonzero().tolist()}
    size = min(9.0, 0.9 * step / (0.62 * max(map(len, written.values()))))
    for (i, j), text in written.items():
        color = SERIES[0] if i == j else SERIES[2]
        opacity = FAINTEST + (DARKEST - FAINTEST) * float(share[i, j])
        cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=color, alpha=opacity, edgecolor="none")
        axes.add_patch(cell)
        axes.text(j, i, text, ha="center", va="center_baseline", fontsize=size, color=INK)
    edges = [k - 0.5 for k in range(count + 1)]
    axes.hlines(edges, -0.5, count - 0.5, color=GRID, linewidth=0.7)
    axes.vlines(edges, -0.5, count - 0.5, color=GRID, linewidth=0.7)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))
    small = min(9.0, 0.8 * step)
    axes.set_xticks(range(count), names, rotation=90 if upright else 0, fontsize=small, color=INK)
    axes.set_yticks(range(count), names, fontsize=small, color=INK)


def _shaded(axes: "Axes", share: Tensor) -> None:
    """The shares as one image whose opacity they are."""
    count = len(share)
    sized(axes, 0.62, 0.5, 5.2, 5.2)
    alpha = torch.where(share > 0, FAINTEST + (1 - FAINTEST) * share, 0)
    color = torch.tensor(SHADE, dtype=torch.float64) / 255
    image = torch.cat((color.expand(count, count, 3), alpha[:, :, None]), 2)
    axes.imshow(image.numpy(), aspect="auto")
    axes.spines[:].set(visible=True, color=MUTED)
