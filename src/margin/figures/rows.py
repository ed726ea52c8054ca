"""Tables of text: rows in aligned columns, or as HTML, the first row the header; text as HTML as it is."""

from collections.abc import Sequence
from html import escape

GAP = "  "
"""What stands between two columns."""

Rows = Sequence[Sequence[str]]


def sizes_of(rows: Rows) -> list[int]:
    """The width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(rows: Rows) -> str:
    """Rows in aligned columns, each row on a line, however long."""
    sizes = sizes_of(rows)
    padded = ([cell.ljust(size) for cell, size in zip(row, sizes, strict=True)] for row in rows)
    return "\n".join(GAP.join(row).rstrip() for row in padded)


def html_table(rows: Rows) -> str:
    """The rows as a table of HTML."""
    tags = ["th", *["td"] * (len(rows) - 1)]
    lines = (
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=True)
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def html_text(text: str) -> str:
    """A text of several lines as HTML, as it stands."""
    return f"<pre>{escape(text)}</pre>"
