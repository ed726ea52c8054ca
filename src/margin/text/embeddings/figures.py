"""A map of words: those that are near each other in the plane of largest variance, with their names."""

from typing import TYPE_CHECKING

from margin.core.findings import Finding
from margin.figures.frames import FILLS, curve
from margin.figures.svg import sized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, TALL = 5.6, 4.2
"""Inches of the map."""


def word_groups(finding: Finding) -> dict[str, list[str]]:
    """The words whose neighbors are shown, each with these.

    Args:
        finding: Whose labels are ``word: neighbor``.
    """
    groups: dict[str, list[str]] = {}
    for label in finding.labels:
        word, _, other = label.partition(": ")
        groups.setdefault(word, []).append(other)
    return groups


def word_map(axes: "Axes", finding: Finding) -> str:
    """Words as dots with their names, the neighbors of one word in its color.

    Args:
        axes: Where it is drawn.
        finding: With the curve ``word map``: the words with neighbors, then their neighbors in order;
            without it nothing is drawn.
    """
    plane, groups = curve(finding, "word map"), word_groups(finding)
    if plane is None or len(plane) != len(groups) + sum(map(len, groups.values())):
        return ""
    sized(axes, 0.35, 0.3, WIDE, TALL)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.margins(x=0.15)  # room for the words at the right
    at = len(groups)
    for k, (word, others) in enumerate(groups.items()):
        color = tuple(part / 255 for part in FILLS[k % len(FILLS)])
        rows = [plane[k], *plane[at : at + len(others)]]
        at += len(others)
        for name, place in zip((word, *others), rows, strict=True):
            x, y = place.tolist()
            first = name == word
            axes.scatter([x], [y], s=28 if first else 9, color=[color], linewidths=0)
            axes.annotate(
                name,
                (x, y),
                xytext=(3, 2),
                textcoords="offset points",
                fontsize=8 if first else 7,
                weight="bold" if first else "normal",
            )
    return (
        f"{len(groups)} frequent words, large, and their nearest neighbors, in the plane of largest variance"
    )
