"""Oversmoothing as colors: a row a depth, a column a node; where all differences are gone, all is grey."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.svg import sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW = 3.7, 0.26
"""Inches of the picture, and of a row."""


def smoothing(axes: "Axes", finding: Finding) -> str:
    """Each node's difference from the limit, as a color: grey is none."""
    colors, depths = finding.curves.get("smoothing colors"), finding.curves.get("smoothing depths")
    if colors is None or depths is None or not bool(colors.isfinite().all()):
        return ""
    colors, names = colors.detach().cpu(), [str(int(depth)) for depth in depths]
    sized(axes, 0.62, 0.48, WIDTH, max(ROW * len(colors), 0.8))
    axes.imshow(colors.numpy(), aspect="auto", interpolation="nearest")
    every = -(-len(names) // 12)
    axes.set_yticks(range(0, len(names), every), names[::every])
    axes.set_xticks([])
    axes.grid(False)
    axes.set(xlabel=f"{colors.shape[1]} nodes", ylabel="depth")
    last = float((colors[-1] - 0.5).abs().mean() * 2)
    first = float((colors[0] - 0.5).abs().mean() * 2)
    return (
        f"colors of {colors.shape[1]} nodes by depth, {names[0]} to {names[-1]}: grey where nothing but the "
        f"degree is left; the mean color's strength goes from {first:.2f} to {last:.2f}"
    )
