"""Text in the width of the terminal: rows in aligned columns, folded lines, color.

Where a file or a pipe reads, rows stay whole and plain, so that ``grep`` and ``cut`` find a row on a line.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby

from margin.figures.digits import freed, held
from margin.figures.rows import GAP, aligned, sizes_of

Style = str | Mapping[str, str]
"""Words of :data:`CODES`; or such by the first word of what a cell says."""

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35"}

LEAST = 40
"""Columns of the terminal that the last cells of a table need, if they are folded below one another."""


def columns(rows: Sequence[tuple[str, ...]], styles: Sequence[Style] = (), *, lead: int = 0) -> str:
    """Rows of text in aligned columns, folded where they are wider than the terminal.

    The last cell is folded below itself or, where little room is left, below the others. In a table with a
    header all other cells are moved below those that say what a row is of.

    Args:
        rows: The cells of each row.
        styles: The style of each column.
        lead: The columns that say what a row is of where the first row is the header; 0 without a header.
    """
    limit, styles = width(), [*styles, *[""] * len(rows[0])]
    if limit is None:
        return aligned(rows)
    sizes = sizes_of(rows)
    before = sum(sizes[:-1]) + len(GAP) * (len(sizes) - 1)
    if before + sizes[-1] <= limit or (not lead and limit - before >= LEAST):
        room = limit - before
        lines = [line for row in rows for line in _aligned(row, sizes, room, styles)]
        if lead:
            lines[:1] = _aligned(rows[0], sizes, room, ["bold"] * len(sizes))
    elif lead:
        lines = _below(rows, styles, lead, limit)
    else:
        lines = [line for row in rows for line in _stacked(row, styles, limit)]
    return "\n".join(lines)


def _aligned(row: Sequence[str], sizes: Sequence[int], room: int, styles: Sequence[Style]) -> list[str]:
    """A row whose last cell takes as many lines as it needs."""
    *cells, last = row
    lead = GAP.join(
        painted(cell, style) + " " * (size - len(cell))
        for cell, size, style in zip(cells, sizes, styles, strict=False)
    )
    blank = " " * (sum(sizes[:-1]) + len(GAP) * (len(sizes) - 2))
    style = styles[len(cells)]
    starts = [lead, *[blank] * len(last)]
    lines = [
        f"{start}{GAP if cells else ''}{painted(text, style)}"
        for start, text in zip(starts, folded(last, room), strict=False)
    ]
    return [line.rstrip() for line in lines]


def _stacked(row: Sequence[str], styles: Sequence[Style], limit: int) -> list[str]:
    """The cells of a row but the last one after another, and that below them."""
    *cells, last = row
    below = [f"    {painted(text, styles[len(cells)])}" for text in folded(last, limit - 4)]
    return [*_flowing(cells, styles, limit), *below]


def _flowing(cells: Sequence[str], styles: Sequence[Style], limit: int) -> list[str]:
    """Cells one after another, each on a line of its own where it does not fit behind those before it."""
    lines: list[str] = []
    taken = 0
    for cell, style in zip(cells, styles, strict=False):
        for text in folded(cell, limit) if cell else []:
            if lines and taken + len(GAP) + len(text) <= limit:
                lines[-1] += GAP + painted(text, style)
                taken += len(GAP) + len(text)
            else:
                lines.append(painted(text, style))
                taken = len(text)
    return lines


def _below(rows: Sequence[tuple[str, ...]], styles: Sequence[Style], lead: int, limit: int) -> list[str]:
    """Rows below what they are of: a table of the other columns, else each cell behind its column's name."""
    head, *body = rows
    sizes = sizes_of([row[lead:] for row in rows])
    fits = sum(sizes) + len(GAP) * len(sizes) <= limit
    own = styles[lead:]
    lines = [f"{GAP}{line}" for line in _aligned(head[lead:], sizes, limit, ["bold"] * len(sizes)) if fits]
    for names, group in groupby(body, key=lambda row: row[:lead]):
        lines += _flowing(names, styles, limit)
        for row in group:
            if fits:
                lines += [f"{GAP}{line}" for line in _aligned(row[lead:], sizes, limit, own) if line]
                continue
            for name, cell, style in zip(head[lead:], row[lead:], own, strict=False):
                texts = folded(f"{name}: {cell}", limit - len(GAP)) if cell else []
                lines += [f"{GAP}{painted(text, style)}" for text in texts]
    return lines


def painted(text: str, style: Style) -> str:
    """Text in a style, where a terminal reads that shows colors."""
    style = style if isinstance(style, str) else style.get(text.partition(" ")[0], "")
    codes = ";".join(CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if text and codes and colored() else text


def colored() -> bool:
    """Whether a terminal reads that shows colors, and the user wants them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def folded(text: str, room: int) -> list[str]:
    """A text in lines between whose words it is broken, never at a hyphen or inside of an interval."""
    return _wrapped(text, room) or [""]


def _wrapped(text: str, room: int, lead: str = "") -> list[str]:
    lines = textwrap.wrap(held(text), max(1, room), subsequent_indent=lead, break_on_hyphens=False)
    return [freed(line) for line in lines]


def fitted(text: str) -> str:
    """Lines as wide as the terminal at most; what is folded stands below the second of two columns.

    Without columns, what is indented is folded deeper, prose is not.
    """
    limit = max(20, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for line in text.splitlines():
        start = re.match(r" *\S.*?\S {2,}(?=\S)", line)
        indent = len(line) - len(line.lstrip())
        lead = start.end() if start and start.end() <= limit * 2 // 3 else indent + 4 * bool(indent)
        lines += _wrapped(line, limit, " " * lead) if len(line) > limit else [line]
    return "\n".join(lines)


def told(text: str) -> str:
    """A result that is no table: as :func:`fitted` on a terminal, as it is where a file or a pipe reads."""
    return text if width() is None else fitted(text)


def width() -> int | None:
    """Columns of the terminal that reads, or that ``COLUMNS`` says; None where a file or a pipe does."""
    if not (os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty()):
        return None
    return max(20, shutil.get_terminal_size().columns)


def width_of_stderr() -> int:
    """Columns of the terminal that shows progress, whatever reads the result; 80 where there is none."""
    if os.environ.get("COLUMNS", "").isdigit() or sys.stderr is None or not sys.stderr.isatty():
        return shutil.get_terminal_size().columns
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80
