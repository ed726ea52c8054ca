"""The ladder of bounds drawn: a bar a rung, the vacuous ones folded into a line."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.digits import exact
from margin.figures.svg import INK, MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rungs(axes: "Axes", finding: Finding) -> str:
    """A bar for each bound below 1, the tightest on top; how many are vacuous stands below."""
    known = sorted(zip(finding.value.tolist(), finding.labels, strict=True))
    shown = [(value, name) for value, name in known if value < 1]
    if not shown:
        return ""
    places = range(len(shown))
    axes.barh(places, [value for value, _ in shown], height=0.55, color=SERIES[0])
    for place, (value, name) in zip(places, shown, strict=True):
        axes.annotate(
            f"{name}: {exact(round(value, 4))}", (0, place), (0, 13), textcoords="offset points", color=INK,
            fontsize=8.5, va="bottom",
        )  # fmt: skip
    axes.set(
        xlim=(0, 1), ylim=(len(shown) - 0.5, -0.9), xlabel="share of new examples answered wrongly, at most"
    )
    axes.set_yticks([])
    if folded := len(known) - len(shown):
        axes.annotate(
            f"{folded} more say nothing", (1, len(shown) - 0.55), ha="right", color=MUTED, fontsize=8.5
        )
    return "upper bounds of the share of new examples answered wrongly, the tightest on top"
