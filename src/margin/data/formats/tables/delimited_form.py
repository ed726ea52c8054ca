"""How delimited text is written (RFC 4180 and what spreadsheets make of it): separator and decimal mark.

Both are found out from the first lines. Where a comma divides every line as well as a semicolon does, the
commas are decimal marks if the semicolon's cells are numbers with one.
"""

import csv
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

Decimal = Literal[".", ","]

SEPARATORS = ",;\t|"
LINES = 50
"""Lines by which a file is judged."""

SEEN = 100_000
"""Characters by which a file is judged, below the largest cell that :mod:`csv` reads."""

NAMES = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""What messages call a separator."""

THOUSANDS = {
    mark: rf"^[+-]?[1-9]\d{{0,2}}(?:\{other}\d{{3}})+(?:\{mark}\d+)?$"
    for mark, other in ((".", ","), (",", "."))
}
"""By the decimal mark: numbers whose thousands the other mark divides."""

SURE = {
    mark: rf"^[+-]?[1-9]\d{{0,2}}(?:\{other}\d{{3}})+(?:\{mark}\d+|\{other}\d{{3}})$"
    for mark, other in ((".", ","), (",", "."))
}
"""Those that cannot be read otherwise: with both marks, or with the other one twice."""

_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
_BESIDE = re.compile(
    r"^([$€£¥₹]|USD|EUR|GBP|CHF)\s*|\s*([%‰$€£¥₹]|USD|EUR|GBP|CHF)$|(?<=\d)[\s'\u2019](?=\d{3})"
)
"""What stands beside the digits of a number: a unit, and spaces that divide thousands."""

_LONE = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")


def separator_of(text: str) -> str:
    """The separator that divides the most of the first lines as it divides the first.

    Args:
        text: The beginning of a file.
    """
    lines = _lines(text)

    def score(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in _cells(lines, separator)]
        if not widths or widths[0] == 1:
            return 0.0, 0
        return sum(width == widths[0] for width in widths) / len(widths), widths[0]

    scores = {separator: score(separator) for separator in SEPARATORS}
    best = max(SEPARATORS, key=lambda separator: scores[separator])
    if best != ",":
        return best
    others = [mark for mark in SEPARATORS[1:] if scores[mark][0] >= scores[","][0]]
    return next((mark for mark in others if _divides_numbers(_cells(lines, mark))), best)


def decimal_of(text: str, separator: str, usual: Decimal = ".") -> tuple[Decimal, str, bool]:
    """The decimal mark of the numbers in the first lines, ``usual`` where nothing tells.

    One mark before three digits may divide thousands: by itself it tells nothing. Cells that commas divide
    have decimal points, unless it is said otherwise.

    Returns:
        The mark; the first number with one point that might divide thousands, "" where there is none;
        whether a number tells the mark.
    """
    cells = [_BESIDE.sub("", cell.strip()) for record in _cells(_lines(text), separator) for cell in record]
    points = [cell for cell in cells if _POINT.fullmatch(cell)]
    lone = [cell for cell in points if _LONE.fullmatch(cell)]
    if len(points) > len(lone) or any(re.match(SURE["."], cell) for cell in cells):
        return ".", "", True
    if separator == ",":
        return (usual if any(_COMMA.fullmatch(cell) for cell in cells) else "."), "", False
    if any(re.match(SURE[","], cell) for cell in cells):
        return ",", "", True
    if lone:
        told = any(map(_counts_thousands, zip_longest(*_cells(_lines(text), separator), fillvalue="")))
        return (",", "", True) if told else (usual, lone[0], False)
    commas = [cell for cell in cells if _COMMA.fullmatch(cell)]
    return (",", "", True) if any(not _GROUPED.fullmatch(cell) for cell in commas) else (usual, "", False)


def _counts_thousands(column: Sequence[str]) -> bool:
    """Whether the points of a column can only divide thousands: 2.000 and 1.500 beside 7, 80 and 950.

    Who writes a fraction in three digits, zeros too, writes 80.000; who leaves zeros out writes 2 and 1.5.
    Three numbers below a thousand are asked for: one or two may stand for a missing value.
    """
    cells = [_BESIDE.sub("", cell.strip()) for cell in column]
    points = [cell for cell in cells if _LONE.fullmatch(cell)]
    whole = {cell for cell in cells if re.fullmatch(r"[+-]?\d+", cell)}
    small = {cell for cell in whole if 0 < abs(int(cell)) < 1000}
    zeros = any(cell.endswith("0") for cell in points)
    return zeros and len(small) > 2 and all(abs(int(cell)) < 1000 for cell in whole)


def check_form(separator: str | None, decimal: str | None) -> None:
    """Refuse a separator of several characters, and one that is the decimal mark.

    Raises:
        ValueError: As said.
    """
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\n\r'):
        raise ValueError(f"separator must be one character, as ; or a tab: got {separator!r}")
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be a point or a comma: got {decimal!r}")
    if separator is not None and separator == decimal != ",":  # a cell that holds a comma is quoted
        raise ValueError(f"separator and decimal must be two characters: got {separator!r} for both")


def _lines(text: str) -> list[str]:
    """The first whole lines that are not blank; of a longer one, its beginning."""
    lines = text[:SEEN].splitlines()
    if len(lines) > 1 and len(text) > SEEN:
        lines.pop()  # cut short
    return [line for line in lines[:LINES] if line.strip()]


def _cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    if any('"' in line for line in lines):
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    return [line.split(separator) for line in lines]


def _divides_numbers(records: Sequence[Sequence[str]]) -> bool:
    """Whether every cell with a comma, but for those of a header, is a number with a decimal comma."""
    if not records:
        return False
    marked = [cell.strip() for record in records[1:] or records for cell in record if "," in cell]
    if not marked:
        return not any("," in cell for cell in records[0])
    return all(_COMMA.fullmatch(cell) for cell in marked)
