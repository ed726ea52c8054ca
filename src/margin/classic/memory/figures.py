"""A memory's recall: from the stimulus over a few states to what is stored, and the energy."""

from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.frames import few_ticks, levels, pictures_in_row, values
from margin.figures.svg import SERIES
from margin.math.evenly import evenly

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_FRAMES = 6
"""States on the way from stimulus to memory that are shown."""


def recall(axes: "Axes", finding: Finding) -> str:
    """From the stimulus by a few states to what is retrieved, beside the stored memory, over the energy."""
    wanted = ("stimulus", "trajectory", "retrieved", "energy")
    if not all(name in finding.curves for name in wanted):
        return ""
    stimulus, trajectory, retrieved, energy = (values(finding, name) for name in wanted)
    inner = trajectory[1:-1]
    keep = evenly(len(inner), MOST_FRAMES - 2)
    pictures = [("stimulus", stimulus), *(("", state) for state in inner[keep]), ("retrieved", retrieved)]
    if "memory" in finding.curves:
        pictures.append(("stored", values(finding, "memory")))
    span = (min(float(p.min()) for _, p in pictures), max(float(p.max()) for _, p in pictures))
    height = pictures_in_row(axes, pictures, lambda picture: levels(picture, *span), below=1.5)
    lower = axes.inset_axes((0.0, 0.0, 1.0, 1.1 / height))
    step = values(finding, "step") if "step" in finding.curves else torch.arange(len(energy))
    lower.plot(step, energy, color=SERIES[0])
    few_ticks(lower)
    lower.set(xlabel="update", ylabel="energy")
    fell = exact(float(f"{float(energy[0] - energy[-1]):.3g}"))
    return f"{len(pictures)} states from the stimulus to the memory, and the energy, which falls by {fell}"
