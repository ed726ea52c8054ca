"""The runs of words that filters answer to, as bars with the words beside them."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.svg import MUTED, SERIES, sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, LONGEST = 0.3, 60
"""Inches of a bar with its words, and the letters of these that are shown."""


def ngrams(axes: "Axes", finding: Finding) -> str:
    """A bar a filter, as long as its largest answer, over the runs of words that get it."""
    values, mean = finding.value.double(), finding.curves.get("mean answer")
    if values.ndim != 1 or not len(values) or not bool(values.isfinite().all()):
        return ""
    count = len(values)
    sized(axes, 0.2, 0.5, 5.2, ROW * count)
    places = [count - 1 - k for k in range(count)]
    axes.barh([p - 0.25 for p in places], values.tolist(), height=0.22, color=SERIES[0])
    if mean is not None:
        axes.plot(mean.tolist(), [p - 0.25 for p in places], "|", color=SERIES[1], markersize=7)
    for place, label in zip(places, finding.labels, strict=True):
        text = label if len(label) <= LONGEST else label[: LONGEST - 3] + "..."
        axes.text(0, place + 0.05, text, va="center", ha="left", fontsize=8, color=MUTED)
    axes.set(xlabel="answer of the filter: largest, and its mean over the texts", ylim=(-0.6, count - 0.4))
    axes.set_yticks([])
    return f"the runs of words that {count} filters answer to most: {'; '.join(finding.labels[:3])}"
