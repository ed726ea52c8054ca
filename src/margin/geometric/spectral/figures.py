"""A graph's frequencies: its eigenvalues, where the energy of signals is, what filters let through."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from margin.core.findings import Finding
from margin.figures.svg import GRID, MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 25
"""Intervals in which eigenvalues are counted."""

STYLES = ("-", "--", ":", "-.")


def graph_spectrum(axes: "Axes", finding: Finding) -> str:
    """The share of the eigenvalues in each interval, and over it energies summed up, or responses.

    The energy of a signal is summed from the least eigenvalue on, so a curve that is early at 1 is smooth;
    a response is how much a layer multiplies a frequency by at most, in parts of its largest.
    """
    if "graph eigenvalue" not in finding.curves:
        return ""
    values = finding.curves["graph eigenvalue"].detach().cpu().double()
    named = {name: curve.detach().cpu().double() for name, curve in finding.curves.items()}
    energies = {name: curve for name, curve in named.items() if name.startswith("energy of ")}
    responses = {name: curve for name, curve in named.items() if name.startswith("response of ")}
    shown = {**{k: c.cumsum(0) for k, c in energies.items()}, **{k: _scaled(c) for k, c in responses.items()}}
    if not len(values) or not shown or not all(bool(curve.isfinite().all()) for curve in shown.values()):
        return ""
    top = 2.0 if float(values[-1]) <= 2 + 1e-9 else float(values[-1])
    counts = torch.histc(values.clamp(0, top), BINS, 0, top) / len(values)
    width = top / BINS
    middles = [(k + 0.5) * width for k in range(BINS)]
    axes.bar(middles, counts.tolist(), 0.92 * width, color=GRID, edgecolor=MUTED, linewidth=0.4)
    axes.plot([], [], color=MUTED, linewidth=5, alpha=0.4, label="share of the eigenvalues")
    for k, (name, curve) in enumerate(shown.items()):
        label = f"{name}, summed up" if name in energies else f"{name}, of its largest"
        style = STYLES[k % len(STYLES)]
        axes.plot(*_thinned(values, curve), style, color=SERIES[k % len(SERIES)], label=label)
    axes.set(xlabel="eigenvalue of the Laplacian", ylabel="share", xlim=(0, top), ylim=(0, 1.04))
    sized(axes, 0.68, 0.5 + 0.19 * (1 + len(shown)), 3.6, 2.2)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), borderaxespad=0.0)
    return (
        f"{len(values)} eigenvalues of a graph from {values[0]:.3g} to {values[-1]:.3g}; {', '.join(shown)}"
    )


def _scaled(curve: Tensor) -> Tensor:
    """In parts of the largest."""
    return curve / curve.max() if float(curve.max()) > 0 else curve


def _thinned(x: Tensor, y: Tensor, most: int = 400) -> tuple[Tensor, Tensor]:
    """Of more points than a picture shows every k-th, and the last."""
    stride = -(-len(x) // most)
    kept = torch.cat((torch.arange(0, len(x) - 1, stride), torch.tensor([len(x) - 1])))
    return x[kept], y[kept]
