"""The components of a linear code, as pictures or rows of cells, over the spectrum."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.frames import few_ticks, pictures_in_row, rows_of_cells, signed, values
from margin.figures.svg import MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_COMPONENTS = 10
MOST_BARS = 40


def components(axes: "Axes", finding: Finding) -> str:
    """The first components, as pictures where inputs are pictures, over the spectrum."""
    if "components" not in finding.curves:
        return ""
    found = values(finding, "components")
    shown = found[:MOST_COMPONENTS]
    if shown.ndim == 4 and shown.shape[1] == 1:
        shown = shown[:, 0]
    pictured = shown.ndim == 3
    spectrum = values(finding, "spectrum") if "spectrum" in finding.curves else None
    if not pictured:
        shown = shown.flatten(1)[:, None]  # a row of cells, a cell a feature
    pictures = [(str(i + 1), part) for i, part in enumerate(shown)]
    below = 1.5 if spectrum is not None else 0.2
    height = (
        pictures_in_row(axes, pictures, signed, below=below)
        if pictured
        else rows_of_cells(axes, pictures, below=below)
    )
    if spectrum is not None:
        lower = axes.inset_axes((0.0, 0.0, 1.0, 1.1 / height))
        bars = spectrum[:MOST_BARS]
        colors = [SERIES[0] if i < len(found) else MUTED for i in range(len(bars))]
        lower.bar(range(1, len(bars) + 1), bars.tolist(), color=colors)
        few_ticks(lower)
        lower.set(xlabel="component (the model's in color)", ylabel="variance")
    return f"{len(shown)} of {len(found)} components{' over the spectrum' if spectrum is not None else ''}"
