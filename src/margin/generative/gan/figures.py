"""What a critic says of examples and of samples: two histograms, apart where it tells them apart."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.svg import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 40


def critics(axes: "Axes", finding: Finding) -> str:
    """How a critic's numbers are distributed over the data and over the samples."""
    names = {"critic: data": "held-out examples", "critic: samples": "samples"}
    if not all(name in finding.curves for name in names):
        return ""
    found = {name: finding.curves[name].detach().cpu().double() for name in names}
    found = {name: values[values.isfinite()] for name, values in found.items()}
    if not all(len(values) for values in found.values()):
        return ""
    everything = torch.cat(list(found.values()))
    low, high = float(everything.min()), float(everything.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    for (name, label), color in zip(names.items(), SERIES, strict=False):
        counts = torch.histc(found[name], BINS, low, high) / len(found[name])
        axes.stairs(counts, edges, fill=True, color=color, alpha=0.3)
        axes.stairs(counts, edges, color=color, linewidth=1.2, label=label)
    axes.set(xlabel="the critic's number", ylabel="share", ylim=(0, None))
    axes.legend()
    return "how the critic's numbers of held-out examples and of samples are distributed"
