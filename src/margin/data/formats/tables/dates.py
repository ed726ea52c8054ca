"""Dates in tables: how they are written (ISO 8601), and the numbers of the calendar that they become.

A date is kept as days since 1970, a float64: microseconds of this millennium are exact to a third of one.
"""

import re
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

FORMS = (
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m"),
    *("%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m"),
    *("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%+"),
)
"""How dates are written; the last is ISO 8601 with its zone, as 2016-07-01T00:00:00Z."""

YEAR = r"^\s*\d{4}[-/]\d{1,2}"
"""How a date of each of :data:`FORMS` begins."""

ZONE = r"(\d:\d{2}(?::\d{2}(?:\.\d+)?)?)(\s*(?:Z|[+-]\d{2}:?\d{2}))$"
"""The end of a clock with its zone, a group each: ``:00:00`` and ``+02:00``."""

DAYS = r"\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}"
"""How a date begins of which two numbers could be the day."""

MICROSECONDS = 86_400e6
"""Of a day."""

PARTS = ("days since 1970", "year", "month", "day of month", "weekday", "hour")
"""What a date becomes; weekdays count from Monday, 1, and an hour has its minutes as a fraction."""


NAMED = r"^\s*(?:\d{1,2}(?:er)?[ .-]{1,2}[^\W\d_]{3,9}\.?|[A-Za-z]{3,9}\.? \d{1,2},?)[ -]\d{2,4}"
"""How a date with the name of its month begins."""

NAMES = {
    "Jan": "januar|jänner|jän|janvier|janv|jan",
    "Feb": "februar|février|fevrier|févr|fév|feb",
    "Mar": "märz|mär|mrz|mars|mar",
    "Apr": "april|avril|avr|apr",
    "May": "mai",
    "Jun": "juni|juin|jun",
    "Jul": "juli|juillet|juil|jul",
    "Aug": "august|août|aout|aug",
    "Sep": "september|septembre|sept|sep",
    "Oct": "oktober|octobre|okt|oct",
    "Nov": "november|novembre|nov",
    "Dec": "dezember|décembre|decembre|déc|dez|dec",
}
"""German and French names of months (Unicode CLDR), wide and abbreviated, by what English calls them."""

MONTHS = ("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d. %b %Y", "%b %d, %Y", "%b %d %Y")

ORDERED = (
    r"^(?:\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}-\d{1,2}-\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}|\d{2}\.\d{2}\.\d{2})"
    r"(?:[ T]+\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp][Mm])?)?$"
)
"""A whole date with its day or its month first; 1.2.10 is a version."""

DIGITS = (19_000_101, 21_001_231)
"""Whole numbers between which ``%Y%m%d`` may be meant."""


def ambiguous(cell: str, option: str = "--data.time-format") -> str:
    """What is to be done about a date whose day and month could be mixed up; "" for another cell."""
    if not re.match(DAYS, cell):
        return ""
    day, month = _orders(cell)
    return f" and say how: {option} '{day}' (the day first) or '{month}' (the month first)"


def _orders(cell: str) -> tuple[str, str]:
    """How a date of :data:`DAYS` is written if its day comes first, and if its month does."""
    found = re.match(DAYS, cell)
    mark = next(c for c in found.group() if c in "./-") if found else "/"
    year = "%Y" if found and len(found.group().strip().split(mark)[-1]) == 4 else "%y"
    rest = cell[found.end() :].strip() if found else ""
    clock = {0: "", 1: " %H:%M", 2: " %H:%M:%S"}.get(rest.count(":"), "") if rest else ""
    if clock and rest[-2:].upper() in ("AM", "PM"):
        clock = clock.replace("%H", "%I") + (" %p" if " " in rest else "%p")
    day, month = (f"{mark.join((*two, year))}{clock}" for two in (("%d", "%m"), ("%m", "%d")))
    return day, month


def unambiguous(cells: pl.Series) -> tuple[str, str]:
    """The one form that reads the dates of a column that are not ISO 8601, and what is said of it.

    Of ``13/04/2023`` the day comes first, so it does in all others of the column; where every date could be
    read both ways, or a column has both orders, no form is told.

    Returns:
        The form, "" for none; a sentence, "" where there is nothing to say.
    """
    some = cells.drop_nulls()
    if not len(some) or not any(re.match(begin, some[0]) for begin in (YEAR, ORDERED, NAMED)):
        return "", ""
    other = some.filter(~some.str.contains(YEAR))
    if not len(other):
        return "", ""
    beside = f", beside {some.filter(some.str.contains(YEAR))[0]!r}" if len(other) < len(some) else ""
    if re.match(NAMED, other[0]):
        forms = [form + clock for form in MONTHS for clock in ("", " %H:%M", " %H:%M:%S")]
        most = 0.1 * len(other)
        read = next((form for form in forms if written_as(other, form, "").null_count() <= most), "")
        return (read, f"dates are written as {other[0]!r}{beside}") if read else ("", "")
    orders = _orders(other[0]) if re.match(ORDERED, other[0]) else ()
    found = {form: written_as(other, form, "") for form in orders}
    reads = [form for form, dates in found.items() if dates.null_count() == 0]
    reads = reads or [form for form, dates in found.items() if dates.null_count() <= 0.1 * len(other)]
    if len(reads) != 1:
        return "", ""
    wrong = next(dates for form, dates in found.items() if form != reads[0])
    first = "day" if reads[0].startswith("%d") else "month"
    shows = other.filter(wrong.is_null())[0]
    return reads[0], f"the {first} of a date comes first, as {shows!r} tells{beside}"


def of_digits(numbers: pl.Series, form: str) -> pl.Series | None:
    """Whole numbers as days since 1970 by a form of digits, as %Y%m%d; None where one is no such date."""
    if not re.fullmatch(r"%Y%m%d(?:%H%M(?:%S)?)?", form):
        return None
    text = numbers.cast(pl.Int64).cast(pl.String)
    days = days_of(text, form)
    return days if days.null_count() == numbers.null_count() else None


def may_be_digits(numbers: pl.Series) -> bool:
    """Whether whole numbers are all dates as 20230131, of 1900 to 2100."""
    low, high = DIGITS
    some = numbers.to_numpy()
    if not len(some) or not (np.nanmin(some) >= low and np.nanmax(some) <= high):
        return False
    return of_digits(numbers, "%Y%m%d") is not None


def written_as(cells: pl.Series, form: str, option: str) -> pl.Series:
    """Text as dates written as a form says; null where a cell is written in another way.

    A year of two digits is none where the form has one of four, which would read 23 as the year 23.

    Raises:
        ValueError: The form is none; ``option`` is what it was given by.
    """
    try:
        dates = cells.str.strip_chars().str.to_datetime(form, strict=False)
        if ("%b" in form or "%B" in form) and dates.null_count() > cells.null_count():
            dates = dates.fill_null(_english(cells).str.strip_chars().str.to_datetime(form, strict=False))
        return dates.set(dates.dt.year() < 100, None)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{option} must say how a date is written, as %d/%m/%Y %H:%M: got {form!r}: {reason}"
        ) from None


def _english(cells: pl.Series) -> pl.Series:
    """Dates with the English names of their months; 1er janvier is the first of it."""
    cells = cells.str.replace(r"^(\s*1)er\b", "${1}")
    for name, others in NAMES.items():
        cells = cells.str.replace(rf"(?i)\b(?:{others})\b\.?", name)
    return cells


def form_of(cells: pl.Series) -> str:
    """The form that reads most of the cells."""
    return _read(cells)[0]


def dates_of(cells: pl.Series) -> pl.Series:
    """Text as dates by the form that reads most of them; null where a cell is written otherwise."""
    return _read(cells)[1]


def _read(cells: pl.Series) -> tuple[str, pl.Series]:
    tried = []
    for form in FORMS:
        text = cells + "-01" if form == "%Y-%m" else cells
        dates = text.str.to_datetime("%Y-%m-%d" if form == "%Y-%m" else form, strict=False)
        tried.append((form, dates))
        if dates.null_count() == 0:
            return form, dates
    return min(tried, key=lambda one: one[1].null_count())


def _every(cells: pl.Series) -> pl.Series:
    """Text as dates, each cell by the form that reads it: every form of ISO 8601 has one reading."""
    dates = dates_of(cells).dt.replace_time_zone(None).dt.cast_time_unit("us")
    for form in FORMS:
        left = dates.is_null() & cells.is_not_null()
        if not left.any():
            break
        text = cells.set(~left, None)
        text, form = (text + "-01", "%Y-%m-%d") if form == "%Y-%m" else (text, form)
        read = text.str.to_datetime(form, strict=False).dt.replace_time_zone(None)
        dates = dates.fill_null(read.dt.cast_time_unit("us"))
    return dates


def days_of(cells: pl.Series, form: str = "") -> pl.Series:
    """Dates, or text that may be dates, as days since 1970, the clock as it is written; else null.

    Args:
        cells: Dates, or text.
        form: How text writes dates, as "%d/%m/%Y"; "" is ISO 8601, which is read beside a form too, unless
            the form begins with the year as well.
    """
    if cells.dtype == pl.String and form:
        dates = written_as(cells, form, "date_format")
        iso = cells.set(~cells.str.contains(YEAR), None) if dates.null_count() > cells.null_count() else None
        if iso is None or not (iso.null_count() < len(iso)) or form.startswith("%Y"):
            cells = dates
        else:
            cells = dates.fill_null(_every(iso.str.replace(ZONE, "${1}")))
    elif cells.dtype == pl.String:
        first = cells.drop_nulls().head(1)
        if not len(first) or not re.match(YEAR, first[0]):  # of most columns of text one look is enough
            return pl.repeat(None, len(cells), dtype=pl.Float64, eager=True)
        cells = _every(cells.str.replace(ZONE, "${1}"))
    clock = cells.cast(pl.Datetime("us")) if cells.dtype == pl.Date else cells.dt.replace_time_zone(None)
    return clock.dt.cast_time_unit("us").to_physical().cast(pl.Float64) / MICROSECONDS


def calendar(days: NDArray[np.float64], parts: Sequence[str]) -> NDArray[np.float64]:
    """The numbers of each date, a column a part; NaN where there is no date."""
    missing = np.isnan(days)
    micro = np.round(np.where(missing, 0, days) * MICROSECONDS).astype(np.int64)
    time = micro.astype("datetime64[us]")
    date, month, year = (time.astype(f"datetime64[{unit}]") for unit in "DMY")
    found = {
        "days since 1970": lambda: micro / MICROSECONDS,
        "year": lambda: year.astype(np.int64) + 1970,
        "month": lambda: (month - year.astype(month.dtype)).astype(np.int64) + 1,
        "day of month": lambda: (date - month.astype(date.dtype)).astype(np.int64) + 1,
        "weekday": lambda: (date.astype(np.int64) + 3) % 7 + 1,  # 1 January 1970 was a Thursday
        "hour": lambda: (time - date.astype(time.dtype)).astype(np.int64) / 3600e6,
    }
    columns = np.stack([np.asarray(found[part](), np.float64) for part in parts], 1)
    columns[missing] = np.nan
    return columns


def varying(days: NDArray[np.float64]) -> list[str]:
    """The parts that differ between dates; the first always: one of a single value would tell nothing."""
    numbers = calendar(days[~np.isnan(days)], PARTS)
    return [part for part, column in zip(PARTS, numbers.T, strict=True) if part == PARTS[0] or np.ptp(column)]


def shown(days: float) -> str:
    """A date in words, without a clock at midnight."""
    time = str(np.datetime64(round(days * MICROSECONDS), "us")).replace("T", " ")
    return time.removesuffix(".000000").removesuffix(" 00:00:00")
