"""The times of a series' rows: how they are written, whether they ascend, gaps, and the grid they lie on."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from margin.data.files.reading import check_unpacked
from margin.data.formats.series.step import MONTH, OFF, Irregular, TimeStep, off_grid, on_grid, usual_step
from margin.data.formats.tables.columns import no_column
from margin.data.formats.tables.dates import (
    NAMED,
    ORDERED,
    YEAR,
    ZONE,
    ambiguous,
    dates_of,
    form_of,
    unambiguous,
    written_as,
)
from margin.data.formats.tables.delimited import Table

TIMES = ("date", "time", "datetime", "timestamp", "year", "month", "day", "week", "ds", "datum", "zeit")
"""Names of a column of times that need not be said."""

MOST_GAPS = 3
"""Gaps that a note names."""


class Clock(NamedTuple):
    """How the times of a series are read.

    Args:
        form: How they are written, as "%d/%m/%Y"; "" finds it out, where day and month cannot be mixed up.
        irregular: What happens to rows off the grid of times.
    """

    form: str = ""
    irregular: Irregular = "error"


CLOCK = Clock()


def time_column_of(table: Table, names: Sequence[str], clock: Clock) -> str | None:
    """The column of times among these: one called so, else one of text that is dates; None where none is.

    One called so whose first cell is a date is taken even if a later cell is none, which is refused by row.
    """
    called = [name for name in names if name.lower() in TIMES]
    for name in called:
        if _begins_dated(table, name) or _is_time(table, name, clock):
            return name
    texts = (name for name in names if _begins_dated(table, name))
    return next((name for name in texts if _is_time(table, name, clock)), None)


def _begins_dated(table: Table, name: str) -> bool:
    """Whether a column is of text, and its first cell begins as a date that is more than digits."""
    cells = table.frame[name]
    text = cells[0] or "" if cells.dtype == pl.String else ""
    return any(re.match(begin, text) for begin in (YEAR, ORDERED, NAMED))


def _is_time(table: Table, name: str, clock: Clock) -> bool:
    """Whether every cell of a column is a time."""
    try:
        times_of(table, name, told(table, name, clock)[0].form)
    except ValueError:
        return False
    return True


def told(table: Table, name: str, clock: Clock) -> tuple[Clock, str]:
    """The clock with the form of dates that are not ISO 8601, where there is one reading; what is said of it.

    Raises:
        ValueError: A cell is written otherwise than nearly all.
    """
    if clock.form or name not in table.frame.columns or table.frame[name].dtype != pl.String:
        return clock, ""
    form, said = unambiguous(table.frame[name].str.strip_chars())
    if not form:
        return clock, ""
    _by_form(table, name, form, "the others")
    return clock._replace(form=form), f"column {name!r}: {said}"


def times_of(table: Table, name: str, form: str = "") -> pl.Series:
    """A column of times as dates, or as numbers; ``form`` says how they are written.

    Raises:
        ValueError: There is no such column, or a cell is no time.
    """
    if name not in table.frame.columns:
        raise ValueError(no_column(table, name))
    cells = table.frame[name]
    if form and cells.dtype == pl.String:
        return _by_form(table, name, form)
    if compact := _compact(cells):
        return cells.cast(pl.String).str.strip_chars().str.to_datetime(compact)
    if cells.dtype != pl.String:
        times = cells
    else:
        stripped = cells.str.strip_chars()
        numbers, dates = stripped.cast(pl.Float64, strict=False), dates_of(stripped)
        times = dates if dates.null_count() < numbers.null_count() else numbers
        zoned = stripped.str.contains(ZONE)
        if len(odd := (zoned != zoned[0]).arg_true()):
            raise ValueError(
                f"{table.at(odd[0], name)}: all times must have their offset from UTC, or none: got "
                f"{cells[odd[0]]!r} beside {cells[0]!r}"
            )
    if times.dtype.is_float():
        times = times.set(~times.is_finite(), None)  # NaN is neither before nor after a time
    if len(bad := times.is_null().arg_true()):
        raise ValueError(
            f"{table.at(bad[0], name)}: a time must be a date such as 2016-07-01 00:00:00, or a number: "
            f"got {cells[bad[0]]!r}{ambiguous(str(cells[bad[0]])).replace(' and say', '; say')}"
        )
    return times


def _by_form(table: Table, name: str, form: str, says: str = "time_format says") -> pl.Series:
    """Dates written as the user says, or as the others are.

    Raises:
        ValueError: The form is none, or a cell is written in another way.
    """
    cells = table.frame[name]
    dates = written_as(cells, form, "time_format")
    if len(bad := dates.is_null().arg_true()):
        raise ValueError(
            f"{table.at(bad[0], name)}: a time must be written as {says}, {form}: got "
            f"{cells[bad[0]]!r} ({len(bad)} such cells)"
        )
    return dates


COMPACT = {"%Y%m%d": r"^[12]\d{7}$", "%Y%m": r"^(?:19|20)\d{2}(?:0[1-9]|1[0-2])$"}
"""Dates of digits alone: days, as 19580329, and months, as 195803."""


def _compact(cells: pl.Series) -> str:
    """The form of dates of digits alone, or "" where they are not all such; months of one year only count."""
    text = cells.cast(pl.String) if cells.dtype.is_integer() else cells
    if text.dtype != pl.String:
        return ""
    text = text.str.strip_chars()
    for form, written in COMPACT.items():
        if text.str.contains(written).fill_null(False).all():
            several = form == "%Y%m%d" or text.str.head(4).n_unique() > 1
            return form if several and not text.str.to_datetime(form, strict=False).null_count() else ""
    return ""


class Spacing(NamedTuple):
    """The times of a series: in words, their step, notes; the rows of a grid, where that was asked.

    ``later`` are the times of the rows that would follow, as many as were asked for.
    """

    text: str = ""
    step: TimeStep | None = None
    notes: tuple[str, ...] = ()
    rows: NDArray[np.int64] | None = None
    times: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


def spacing_of(table: Table, name: str, times: pl.Series, how: Clock, ahead: int = 0) -> Spacing:
    """The times in words, their step, a note of their gaps, and the times of ``ahead`` rows that follow.

    Times that no row of the table has are written as its own are.

    Raises:
        ValueError: A time comes twice, falls, or is off the grid where that is no option.
    """
    shown, irregular = table.frame[name], how.irregular
    if len(times) < 2:
        return Spacing(str(shown[0]))
    since = times - times[0]
    dated = since.dtype == pl.Duration
    clock = since.dt.total_microseconds().to_numpy() / 1e6 if dated else since.cast(pl.Float64).to_numpy()
    values = np.diff(clock)
    _check_order(table, name, values, times)
    unit, size, clock = _counted(times.cast(pl.Date).to_numpy(), clock) if dated else ("", 1.0, clock)
    values = np.diff(clock)
    usual = usual_step(values)
    calendar = dated and not unit and usual > 20 * 86_400  # dates that only nearly are a month apart
    step = TimeStep(usual * size, dated, unit == "business day")
    text, notes = f"{shown[0]} to {shown[len(shown) - 1]}, {step} a row", list[str]()
    if off := off_grid(values, usual, calendar=calendar):
        where = f"{table.at(off[0] + 1, name)}: {shown[off[0] + 1]} {off[1]}"
        apart = step._replace(length=float(values[off[0]]) * size)
        where += f", {apart} after the row before, where {step} is usual"
        if irregular == "error" or (irregular == "last" and calendar):
            raise ValueError(f"{where}; {_OPTIONS[calendar]}")
        notes.append(f"rows are not evenly spaced in time, and {_DONE[irregular]}: {where}")
    wide = np.flatnonzero(values > usual * (1.2 if calendar else 1 + OFF))
    if irregular == "last" and not calendar and (off or len(wide)):
        wanted = int(8 * clock[-1] / usual)
        check_unpacked(table.name, 8 * len(clock), wanted, f"correct the times of column {name!r}")
        rows = on_grid(clock, usual)
        said = _written(_stamps(usual * np.arange(len(rows) + ahead), times, unit), shown, how.form)
        said, later = said[: len(rows)], said[len(rows) :]
        notes.append(
            f"brought to {step} a row, each the last row before its time: {len(rows)} rows of {len(clock)}"
        )
        return Spacing(f"{said[0]} to {said[-1]}, {step} a row", step, tuple(notes), rows, said, later)
    later = _written(_following(times, clock, usual, unit, ahead), shown, how.form) if ahead else ()
    if not len(wide) or off:
        return Spacing(text, step, tuple(notes), later=later)
    gaps = _places(table, shown, wide)
    notes.append(f"gaps in time, read as if there were none (a step is {step}): {gaps}")
    return Spacing(f"{text}, {len(wide)} gap{'s' * (len(wide) > 1)}", step, tuple(notes), later=later)


def _places(table: Table, shown: pl.Series, wide: NDArray[np.int64]) -> str:
    """The first gaps in words, and how many more there are."""
    said = [f"{shown[k]} to {shown[k + 1]} (row {table.rows[k + 1]})" for k in wide[:MOST_GAPS].tolist()]
    return ", ".join(said) + f" and {len(wide) - MOST_GAPS} more" * (len(wide) > MOST_GAPS)


_OPTIONS = {
    False: "correct the rows, or train with --data.irregular last, which brings them onto the grid by the "
    "last row before each time, or read, which takes row after row",
    True: "correct the rows, or train with --data.irregular read, which takes row after row",
}
_DONE = {"read": "are read one after another", "last": "are brought onto a grid"}


def _counted(days: NDArray[Any], clock: NDArray[np.float64]) -> tuple[str, float, NDArray[np.float64]]:
    """Dates counted by the calendar: by months, by days without weekends, else by the seconds of the clock.

    They are by the month where each is the same day of its month (the last where that is too short), or the
    last weekday. They are business days where a day is the usual step and a weekend, always, none.

    Returns:
        The unit, its seconds, and the units from the first date to each.
    """
    dates, seconds = days.astype("datetime64[D]"), np.diff(clock)
    usual = float(np.median(seconds)) / 86_400
    if usual > 20:
        months = dates.astype("datetime64[M]")
        starts, ends = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]") - 1
        place, last = (dates - starts).astype(int), (ends - starts).astype(int)
        same = bool((place == np.minimum(place.max(), last)).all())
        if same or (dates == np.busday_offset(ends, 0, roll="backward")).all():
            return "month", MONTH, (months - months[0]).astype(float)
    weekends = (np.diff(dates).astype(int) == 3) & (dates[1:].astype(int) % 7 == MONDAY)
    hour = bool((seconds % 86_400 == 0).all())
    if usual == 1 and hour and weekends.any() and np.is_busday(dates).all():
        return "business day", 86_400.0, np.busday_count(dates[0], dates).astype(float)
    return "", 1.0, clock


MONDAY = 4
"""What is left of the days since 1 January 1970, a Thursday, divided by 7."""


def _stamps(since: NDArray[Any], times: pl.Series, unit: str) -> pl.Series:
    """The times so long after the first: dates in UTC, ``since`` in seconds or a unit, or numbers."""
    if not times.dtype.is_temporal():
        return pl.Series(times[0] + since)
    first = times.cast(pl.Datetime("us"))[0]
    if unit == "month":
        starts = pl.repeat(first, len(since), eager=True, dtype=pl.Datetime("us"))
        return starts.dt.offset_by(pl.Series([f"{k:.0f}mo" for k in since]))
    if unit == "business day":
        day = np.datetime64(first.date())
        since = (np.busday_offset(day, since.astype(int)) - day).astype(int) * 86_400
    return first + pl.Series((since * 1e6).round().astype(np.int64)).cast(pl.Duration("us"))


def _following(
    times: pl.Series, clock: NDArray[np.float64], usual: float, unit: str, count: int
) -> pl.Series:
    """The times of the rows after the last, a usual step apart.

    Of months each is the same day, the last where a month is too short, or the last weekday, as
    :func:`_counted` tells.
    """
    since = clock[-1] + usual * np.arange(1, count + 1)
    stamps = _stamps(since, times, unit)
    if unit != "month":
        return stamps
    dates = times.cast(pl.Date).to_numpy().astype("datetime64[D]")
    begun = dates.astype("datetime64[M]")
    months = begun[0] + np.round(since).astype(int)
    ends = (months + 1).astype("datetime64[D]") - 1
    place = int((dates - begun.astype("datetime64[D]")).astype(int).max())
    same = np.minimum(months.astype("datetime64[D]") + place, ends)
    last = (begun + 1).astype("datetime64[D]") - 1
    weekday = (dates == np.busday_offset(last, 0, roll="backward")).all() and not (dates == last).all()
    days = np.busday_offset(ends, 0, roll="backward") if weekday else same
    hours = stamps.to_numpy() - stamps.to_numpy().astype("datetime64[D]")
    return pl.Series(days.astype("datetime64[us]") + hours)


def _written(times: pl.Series, cells: pl.Series, form: str) -> tuple[str, ...]:
    """Times as the cells of a column are written: in their form, and at the last one's offset from UTC.

    Args:
        times: Numbers, or dates in UTC.
        cells: The column, whose times are known to be such.
        form: What the user says of its form; "" finds it out.
    """
    if not times.dtype.is_temporal():
        return tuple(f"{one:.15g}" for one in times)
    if cells.dtype.is_temporal():
        zone = getattr(cells.dtype, "time_zone", None)
        own = (
            times.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else times.cast(cells.dtype)
        )
        return tuple(map(str, own))
    text = cells.cast(pl.String).str.strip_chars()
    last, suffix = text.tail(1), ""
    if not form and (zone := last.str.extract(ZONE, 2)[0]):
        suffix, text = zone, text.str.replace(ZONE, "${1}")
        times = times + (dates_of(text.tail(1))[0] - dates_of(last)[0].replace(tzinfo=None))
    form = form or _compact(cells) or form_of(text)
    month = re.findall(r"[^\W\d_]{3,}", text[-1]) if "%b" in form else []
    english = written_as(text.tail(1), form, "").dt.to_string("%b %B")[0] if month else ""
    if month and month[0].lower() not in english.lower().split():
        form = "%Y-%m-%d" + form.partition("%Y")[2]  # months have their names in another language
    said = times.dt.to_string(form)
    again = dates_of(said) if form == "%Y-%m" else written_as(said, form, "time_format")
    return tuple(said + suffix) if again.equals(times) else tuple(f"{one}{suffix}" for one in times)


SUMMER = (
    "; daylight saving ends so: write the times in UTC, or with their offset, as 2024-10-27T02:00:00+01:00"
)
"""What is said of an hour that comes twice where clocks are put back."""


def _repeats(times: pl.Series, row: int, value: float) -> str:
    """:data:`SUMMER` where a row lies in the hour that clocks repeat at the end of summer, else ""."""
    if not times.dtype.is_temporal() or value < -3600:
        return ""
    when = times.cast(pl.Datetime("us"))[row]
    ends = when.month in (4, 10, 11) and when.isoweekday() in (6, 7) and when.hour <= 3
    return SUMMER * ends


def _begins_again(times: pl.Series, row: int) -> str:
    """What is said where a row is back at the first time, as of a second series below the first."""
    again = times[row] <= times[0]
    return "; if another series begins here, give each a file, or a column, of its own" * again


def _check_order(table: Table, name: str, values: NDArray[np.float64], times: pl.Series) -> None:
    """Refuse times that come twice or fall."""
    shown = table.frame[name]
    if len(twin := np.flatnonzero(values == 0)):
        row = int(twin[0]) + 1
        raise ValueError(
            f"{table.at(row, name)}: every time must come once: {shown[row]} comes twice; if {name!r} is not "
            f"the rows' time, train with --data.time-column, or leave it out by --data.ignore {name!r}; if "
            f"the clock stands in another column, write both in one{_repeats(times, row, 0.0)}"
        )
    if len(fall := np.flatnonzero(values < 0)):
        row = int(fall[0]) + 1
        raise ValueError(
            f"{table.at(row, name)}: rows must be in order of time: got {shown[row]} "
            f"after {shown[row - 1]}; sort them{_begins_again(times, row)}"
            f"{_repeats(times, row, float(values[row - 1]))}"
        )
