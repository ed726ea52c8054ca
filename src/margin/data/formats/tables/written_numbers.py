"""Numbers as people write them in text: with a unit, with thousands divided, with a typographic minus.

``12 %``, ``$ 3.50``, ``1 234,5`` and ``1'234.5`` are numbers in one reading only (Unicode CLDR, number
patterns). What could be read in two ways is left to the caller, or refused.
"""

import re
from typing import NamedTuple

import polars as pl

from margin.data.formats.tables.delimited_form import SURE, THOUSANDS

NUMBERS_FROM = 0.9
"""A column of text with at least this share of numbers is numeric; its other cells are mistakes."""

ABSENT = ("-", "--", "---", "\u2013", "\u2014", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
"""Cells that mean a missing value among numbers: dashes, and the errors of a spreadsheet."""

_UNIT = r"[%‰$€£¥₹]|(?:USD|EUR|GBP|CHF|JPY)"
_SPACES = "\u00a0\u202f\u2009"  # no-break, narrow no-break and thin
_GROUPS = rf"\d{{1,3}}(?:[ {_SPACES}'\u2019]\d{{3}})+(?:[.,]\d+)?"
_PATTERN = (
    rf"^(?<sign>[+\-\u2212]?)[ {_SPACES}]*(?<before>{_UNIT})?[ {_SPACES}]*(?<inner>[+\-\u2212]?)"
    rf"(?<digits>{_GROUPS}|[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?)[ {_SPACES}]*(?<after>{_UNIT})?$"
)
_LOOK = re.compile(_PATTERN.replace("(?<", "(?P<"))


class Written(NamedTuple):
    """Cells as numbers with a plain minus, no unit and undivided thousands; null where a cell is none.

    Args:
        cells: The cells.
        unit: The unit of all of them, "" for none.
        odd: The row of the first number whose unit is another than the first's, None where all agree.
        first: The first cell that is not written plainly, "" where each is.
    """

    cells: pl.Series
    unit: str
    odd: int | None
    first: str


def unwritten(text: pl.Series) -> Written | None:
    """The numbers that are written in text, or None where the cells hold nothing but plain ones, or words.

    Args:
        text: Cells without surrounding space, null where they are missing.
    """
    some = text.drop_nulls()
    looked = (
        some.head(1),
        some.filter(some.str.contains(rf"[{_SPACES}%‰$€£¥₹'\u2019\u2212]|[A-Z]{{3}}")).head(1),
    )
    if not any(_LOOK.match(cell) for cells in looked for cell in cells):
        return None  # of most columns of text this look is enough
    parts = text.str.extract_groups(_PATTERN).struct
    digits, sign = parts.field("digits"), parts.field("sign").fill_null("")
    inner = parts.field("inner").fill_null("")
    found = digits.is_not_null() & ((sign == "") | (inner == ""))
    present = len(text) - text.null_count()
    if int(found.sum()) < NUMBERS_FROM * present:
        return None
    before, after = parts.field("before").fill_null(""), parts.field("after").fill_null("")
    units = (before + after).set(~found, None)
    unit = str(units.drop_nulls()[0])
    strange = (units.is_not_null() & ((units != unit) | ((before != "") & (after != "")))).arg_true()
    plain = (sign + inner).str.replace("\u2212", "-", literal=True) + digits.str.replace_all(
        rf"[ {_SPACES}'\u2019]", ""
    )
    changed = text.filter(found & (plain != text))
    if not (len(changed) or len(strange)):
        return None
    return Written(
        plain.set(~found, None),
        unit,
        int(strange[0]) if len(strange) else None,
        str(changed[0]) if len(changed) else "",
    )


def parse(text: pl.Series, decimal: str = ".") -> pl.Series:
    """Text as float64 by its decimal mark, null where a cell is no number."""
    if decimal == ",":
        text = text.set(text.str.contains(".", literal=True), None).str.replace(",", ".", literal=True)
    return text.cast(pl.Float64, strict=False)


def ungrouped(text: pl.Series, decimal: str, *, known: bool = False) -> tuple[pl.Series, str]:
    """The cells without the marks that divide thousands, and the first that had one, "" where none has.

    With a decimal comma a point can be nothing else. A comma alone may be a decimal mark: it divides
    thousands where the decimal point is known, or another number of the column has both marks, or the comma
    twice.
    """
    grouped = text.str.contains(THOUSANDS[decimal]).fill_null(value=False)
    sure = decimal == "," or known
    if not grouped.any() or not (sure or text.str.contains(SURE[decimal]).any()):
        return text, ""
    other = "." if decimal == "," else ","
    return text.str.replace_all(other, "", literal=True).zip_with(grouped, text), text.filter(grouped)[0]
