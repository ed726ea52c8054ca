"""Chains as pictures: the trace of each, and the ranks of its draws among all, even where chains agree.

Vehtari et al. (2021), Section 5: rank plots in place of traces alone, which hide a disagreement where draws
are many.
"""

from typing import TYPE_CHECKING

import torch

from margin.bayes.mcmc.diagnostics import rank_normalized
from margin.core.findings import Finding
from margin.figures.frames import few_ticks, values
from margin.figures.svg import GRID, MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 6.4, 2.2
"""Inches of the traces and the ranks together."""

BINS = 10
"""Bins of the ranks."""


def chains(axes: "Axes", finding: Finding) -> str:
    """The draws of each chain in order, and how many of its ranks lie in each tenth of all."""
    if "draws" not in finding.curves:
        return ""
    draws = values(finding, "draws")
    count, number = draws.shape
    if count < BINS:
        return ""
    sized(axes, 0.5, 0.45, WIDTH, HEIGHT)
    axes.set_axis_off()
    trace = axes.inset_axes((0.0, 0.0, 0.56, 1.0))
    ranks = axes.inset_axes((0.68, 0.0, 0.32, 1.0))
    colors = [SERIES[k % len(SERIES)] for k in range(number)]
    places = torch.special.ndtr(rank_normalized(draws))
    edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
    for k, color in enumerate(colors):
        trace.plot(
            torch.arange(1, count + 1), draws[:, k], color=color, linewidth=0.9, label=f"chain {k + 1}"
        )
        heights = torch.histogram(places[:, k], edges)[0]
        ranks.stairs(heights, edges, color=color, linewidth=1.2)
    ranks.axhline(count / BINS, color=GRID, linewidth=1.0, zorder=0)
    ranks.set_ylim(0, None)
    trace.set(xlabel="draw", ylabel="output")
    ranks.set(xlabel="rank among all draws", ylabel="draws of a chain")
    for place in (trace, ranks):
        few_ticks(place)
    if number <= len(SERIES):
        trace.legend(ncols=number, fontsize=7, labelcolor=MUTED, loc="lower left", bbox_to_anchor=(0, 1))
    return (
        f"{count} draws of each of {number} chains, of the output on which they agree the least: in order, "
        "and their ranks among all, even where chains agree"
    )
