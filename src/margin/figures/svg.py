"""Figures that take their colors from the page: matplotlib's SVG with CSS variables for its colors.

A figure is drawn in stand-in colors; each is replaced by a variable that the page defines for light,
dark and print. Identifiers are made unique to the figure and nothing refers outside of the page.
"""

import io
import re
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from margin.figures.digits import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#0a0b01"
MUTED = "#0a0b02"
GRID = "#0a0b03"
PAPER = "#0a0b04"
SERIES = ("#0a0b11", "#0a0b12", "#0a0b13", "#0a0b14", "#0a0b15")
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "rule", PAPER: "paper"} | {
    color: f"series-{i}" for i, color in enumerate(SERIES, 1)
}
ALONE = {
    "ink": "currentColor",
    "muted": "#7f858c",
    "rule": "#8a8f9655",
    "paper": "transparent",
    "series-1": "#4f86b8",
    "series-2": "#bd7f26",
    "series-3": "#cc5b54",
    "series-4": "#8d78ba",
    "series-5": "#4c9670",
    "good": "#3f9165",
    "bad": "#cc5b54",
    "doubt": "#b07d1f",
    "void": "#9a70bd",
}
"""Colors that are read on light and on dark, where the page around a figure defines none."""

WIDTH, HEIGHT = 4.4, 2.75
"""Inches: a figure fills a phone's width and half a page's at about its own size."""

REM = 5.5
"""Widths of a letter m on the page for an inch of a figure: what a figure of the usual width is given."""

EDGE = 0.07
"""Inches between the axes of a figure of its own size and the edge."""

MARGINS = {"left": 0.155, "right": 0.985, "bottom": 0.175, "top": 0.965}
"""Room for five digits and a label; fixed, so that the axes of a page's figures are aligned."""

LARGE = 'class="large"'
"""Marks a figure that is wider than half a page: it needs the page's width, or to be scrolled."""

STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "margin",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.unicode_minus": False,
    "axes.labelsize": 9.0,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(SERIES)})",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.6,
    "path.simplify": True,
}


@contextmanager
def drawing(width: float = WIDTH, height: float = HEIGHT) -> "Iterator[tuple[Figure, Axes]]":
    """A figure with one pair of axes, in the stand-in colors; matplotlib's settings are put back after."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        figure.subplots_adjust(**MARGINS)
        yield figure, figure.add_subplot()


def sized(axes: "Axes", left: float, bottom: float, width: float, height: float) -> None:
    """Give the axes a size in inches, and the figure what they and their labels need.

    Args:
        axes: Alone in their figure.
        left: Room for the labels of the vertical axis.
        bottom: Room for those of the horizontal axis.
        width: Of the axes; the figure is no narrower than the others of a page.
        height: Of the axes.
    """
    from matplotlib.figure import Figure

    figure = axes.get_figure()
    if not isinstance(figure, Figure):
        raise ValueError(f"axes must be alone in a figure: got axes in {type(figure).__name__}")
    whole, high = max(left + width + EDGE, WIDTH), bottom + height + EDGE
    figure.set_size_inches(whole, high)
    figure.subplots_adjust(left / whole, bottom / high, (left + width) / whole, 1 - EDGE / high)


def whole_ticks(axis: Any) -> None:
    """Ticks at whole numbers alone: of what is counted, as steps or tokens."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))


def exact_ticks(axis: Any) -> None:
    """Numbers on an axis as the page has them: no digit that says nothing, a true minus; no minor ticks."""
    from matplotlib.ticker import NullLocator

    axis.set_major_formatter(lambda value, position: exact(round(value, 12)).replace("-", "−"))
    axis.set_minor_locator(NullLocator())  # they are not seen here, and take half of a drawing's time


def plain_ticks(axes: "Axes") -> None:
    """Ticks that a drawing has not chosen: few, at exact numbers."""
    from matplotlib.ticker import AutoLocator, FixedLocator, MaxNLocator

    if isinstance(axes.xaxis.get_major_locator(), AutoLocator):  # the drawing has chosen none
        axes.xaxis.set_major_locator(MaxNLocator(6))
    for axis in (axes.xaxis, axes.yaxis):
        if isinstance(axis.get_major_locator(), FixedLocator):
            continue  # the drawing has named its ticks
        exact_ticks(axis)


def themed(figure: "Figure", name: str, description: str) -> str:
    """The figure as an ``<svg>`` element for a page.

    Args:
        figure: Drawn within :func:`drawing`.
        name: Letters, digits and hyphens: prefixes the identifiers, unique in the page.
        description: What is shown, for those who cannot see it.
    """
    from html import escape

    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True)
    text = file.getvalue()
    text = text[text.index("<svg") :].strip()
    inches = figure.get_size_inches()[0]
    large = f' {LARGE} style="--width: {REM * inches:.1f}rem"' if inches > WIDTH else ""
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = _own_identifiers(text, name)
    for color, variable in VARIABLES.items():
        text = text.replace(color, f"var(--{variable})")
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    label = escape(description, quote=True)
    return re.sub(r"\n\s*", "\n", text.replace("<svg", f'<svg{large} role="img" aria-label="{label}"', 1))


def alone(html: str) -> str:
    """The same HTML for any page: a color that the page does not define is that of :data:`ALONE`."""
    return re.sub(
        r"var\(--([\w-]+)\)", lambda m: f"var(--{m[1]}, {ALONE[m[1]]})" if m[1] in ALONE else m[0], html
    )


class Picture:
    """A figure that shows itself in a notebook, in the colors of the page around it.

    Args:
        figure: Drawn within :func:`drawing`, where this is made too.
        description: What is shown, for those who cannot see it.
    """

    def __init__(self, figure: "Figure", description: str) -> None:
        for axes in figure.axes:
            plain_ticks(axes)
        self.description = description
        self._svg = alone(themed(figure, f"picture-{next(numbers)}", description))

    def __repr__(self) -> str:
        return f"Picture: {self.description}"

    def _repr_html_(self) -> str:
        return f'<figure style="max-width: 32rem; margin: .6rem 0">{self._svg}</figure>'


numbers = count()
"""Numbers of what a notebook shows, by which its identifiers are its own."""


def _own_identifiers(text: str, name: str) -> str:
    """Drop the identifiers that nothing refers to, and prefix the rest."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="#|url\(#)([^")]+)', rf"\g<1>{name}-\g<2>", text)
