"""The attention of one pair: a row a target token, a column a source token, the shade a weight."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.attention import drawable, shaded
from margin.figures.svg import SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def alignment(axes: "Axes", finding: Finding) -> str:
    """The weights of one pair, and a dot on the source token that each target token reads most."""
    weights = finding.curves.get("alignment")
    if weights is None or not drawable(weights):
        return ""
    rows, columns = weights.shape
    side = shaded(axes, weights)
    most = weights.detach().cpu().argmax(1)
    axes.plot(most, range(rows), "o", color=SERIES[2], markersize=min(3.0, 20 * side))
    axes.set(xlabel="source token", ylabel="target token")
    return f"attention of {rows} target tokens over {columns} source tokens, a dot on the most read"
