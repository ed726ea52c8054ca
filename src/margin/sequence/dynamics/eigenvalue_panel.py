"""The eigenvalues of recurrent matrices beside the unit circle, before and after training."""

import math
from typing import TYPE_CHECKING

import torch

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATES = {"at the beginning": (SERIES[1], "o"), "now": (SERIES[0], ".")}
"""When, and how it is drawn: rings for the beginning, so that a dot that has not moved sits in its ring."""


def eigenvalues(axes: "Axes", finding: Finding) -> str:
    """A dot an eigenvalue, inside or outside the unit circle; rings where they were when training began."""
    found = {}
    for when in STATES:
        names = (f"real part {when}", f"imaginary part {when}")
        if all(name in finding.curves for name in names):
            x, y = (finding.curves[name].detach().cpu().double() for name in names)
            finite = x.isfinite() & y.isfinite()
            found[when] = (x[finite], y[finite])
    if not found or not all(len(x) for x, _ in found.values()):
        return ""
    sized(axes, 0.68, 0.85, 3.3, 3.3)
    angle = torch.linspace(0, 2 * math.pi, 200)
    axes.plot(angle.cos(), angle.sin(), color=INK, linewidth=0.9, label="unit circle")
    for when, (x, y) in found.items():
        color, marker = STATES[when]
        fill = "none" if marker == "o" else color
        axes.plot(
            x,
            y,
            marker,
            color=color,
            markerfacecolor=fill,
            markersize=4,
            markeredgewidth=0.8,
            label=when,
            alpha=0.8,
        )
    reach = 1.08 * max(1.0, *(float(torch.maximum(x.abs(), y.abs()).max()) for x, y in found.values()))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xlabel="real part", ylabel="imaginary part")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, borderaxespad=0.0)
    x, y = found.get("now", next(iter(found.values())))
    modulus = (x.square() + y.square()).sqrt()
    return (
        f"{len(x)} eigenvalues in the complex plane with the unit circle, of modulus "
        f"{exact(float(modulus.min()))} to {exact(float(modulus.max()))}; {', '.join(found)}"
    )
