"""The ladder of bounds drawn: a bar a rung, the vacuous ones folded into a line of text."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES
from margin.theory.bounds.ladder import CONSTANT

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rungs(axes: "Axes", finding: Finding) -> str:
    """A bar for each bound below a constant answer's errors, the tightest on top; the others are counted."""
    known = sorted(zip(finding.value.tolist(), finding.labels, strict=True))
    constant = float(finding.curves.get(CONSTANT, 1.0))  # an earlier audit's findings have it not
    shown = [(value, name) for value, name in known if value < constant]
    places, lowest = range(len(shown)), max(len(shown), 1) - 0.5
    axes.barh(places, [value for value, _ in shown], height=0.55, color=SERIES[0])
    for place, (value, name) in zip(places, shown, strict=True):
        axes.annotate(
            f"{name}: {exact(round(value, 4))}", (0, place), (3, 13), textcoords="offset points", color=INK,
            fontsize=8.5, va="bottom",
        )  # fmt: skip
    axes.axvline(constant, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(lowest + 0.8, -0.9), xlabel="share of new examples answered wrongly, at most")
    axes.set_yticks([])
    told = f"a constant answer errs on {exact(round(constant, 3))} (dashed)"
    if folded := len(known) - len(shown):
        more = (
            f"{folded} {'more ' if shown else ''}bound{'s say' if folded > 1 else ' says'} no more than that"
        )
        told = f"{told};\n{more}"
    end = constant - 0.01 if constant > 0.7 else 1.0
    axes.annotate(told, (end, lowest + 0.75), ha="right", va="bottom", color=MUTED, fontsize=8.5)
    return "upper bounds of the share of new examples answered wrongly, the tightest on top"
