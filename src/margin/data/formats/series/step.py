"""The time from a row of a series to the next: in words, and whether two are the same."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

SAME = 1.12
"""Ratio up to which two time steps are one: months have 28 to 31 days, and clocks are not exact."""

Irregular = Literal["error", "read", "last"]
"""What happens to rows off the grid of times: refused, read one after another, or brought onto the grid."""

OFF = 0.12
"""How far from a whole number of usual steps, in these, a step may be: clocks are not exact."""

CHANCE = 1e-4
"""How often lost rows may be taken for another rate, in each series and length of a gap."""

BURST = 0.1
"""Share of one length of gap that is granted everywhere: rows are lost in bursts."""

MONTH = 2_629_746.0
"""Seconds of a mean month of the Gregorian calendar: a twelfth of 365.2425 days."""

UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0))


CALENDAR = ((12, "year"), (3, "quarter"), (1, "month"))


class TimeStep(NamedTuple):
    """The usual time from a row to the next.

    Args:
        length: Seconds between dates, or the difference of numbers that count the rows; positive.
        dated: Whether the times are dates.
        business: Whether it is a day of a calendar without weekends.
    """

    length: float
    dated: bool
    business: bool = False

    def __str__(self) -> str:
        if not self.dated:
            return f"{self.length:g}"
        if self.business:
            return f"{(days := self.length / 86_400):g} business day{'s' * (days != 1)}"
        if self.length % MONTH == 0:  # only steps of the calendar are whole mean months
            months = self.length / MONTH
            count, unit = next(
                (months / n, u) for n, u in CALENDAR if months % n == 0 and (n != 3 or months == 3)
            )
            return f"{count:g} {unit}{'s' * (count != 1)}"
        for unit, seconds in UNITS:
            if self.length >= seconds:
                count = self.length / seconds
                return f"{count:.4g} {unit}{'s' * (count != 1)}"
        return f"{self.length * 1e6:g} microseconds"

    def is_like(self, other: "TimeStep") -> bool:
        """Whether both are of one kind and of one length, but for what months and clocks differ in."""
        longer, shorter = max(self.length, other.length), min(self.length, other.length)
        return self.dated == other.dated and longer <= SAME * shorter


DAY = 86_400.0
"""Seconds of a day."""

CYCLES = (("day", DAY), ("week", 7 * DAY), ("year", 12 * MONTH))
"""The cycles of the calendar that a season may be, the shortest first."""


def season_of(step: TimeStep | None) -> tuple[int, str]:
    """The rows of a season, and its name: the shortest cycle of the calendar that has two rows or more.

    Hours have the day, days the week (business days 5 of it), weeks, months and quarters the year. It is 1
    row where no cycle is a whole number of rows, as of years, and where times are not dates.

    Reference: Hyndman and Athanasopoulos 2021, Section 2.1 (seasonal periods).
    """
    if step is None or not step.dated:
        return 1, ""
    if step.business:
        return (5, "week") if step.length == DAY else (1, "")
    for name, seconds in CYCLES:
        rows = round(seconds / step.length)
        # a year is 52.18 weeks: of days and more the nearest whole number of rows is the season
        nearly = name == "year" and step.length >= DAY
        if rows > 1 and (nearly or abs(rows * step.length - seconds) < 1e-6 * seconds):
            return rows, name
    return 1, ""


def check_step(where: str, step: TimeStep | None, trained: Sequence[float | bool] | None) -> None:
    """Refuse rows that are another time apart than in training, where both are known.

    Args:
        where: What a message calls the times.
        step: That of the rows.
        trained: Length and whether it is dated, as a run's encoding holds them.

    Raises:
        ValueError: The steps differ.
    """
    if step is None or trained is None:
        return
    length, dated = trained
    own = TimeStep(float(length), bool(dated))
    if not step.is_like(own):
        raise ValueError(
            f"{where}: rows must be as far apart as those that the run was trained on, {own}: "
            f"got {step} a row"
        )


def usual_step(steps: NDArray[np.float64]) -> float:
    """The usual time from a row to the next: the median, or where most rows are lost the shortest.

    Where the rows of a grid are lost one by one, the shortest step stays the most frequent however many are:
    its frequency is the share q of rows kept, that of m steps q (1 - q)^(m - 1). By chance another may be
    more frequent; where one is twice as frequent it is the step, and single rows lie between.

    Args:
        steps: The times from each row to the next, positive.
    """
    usual = float(np.median(steps))
    times = np.round(steps / steps.min())
    shortest = float(np.median(steps[times == 1]))
    lost = bool(2 * (times == 1).sum() >= np.unique(times, return_counts=True)[1].max())
    fits = lost and shortest < usual and off_grid(steps, shortest, calendar=False) is None
    return shortest if fits and off_grid(steps, usual, calendar=False) is not None else usual


def off_grid(steps: NDArray[np.float64], usual: float, *, calendar: bool) -> tuple[int, str] | None:
    """The first step that leaves the grid of the usual one, counted from 0, and how; None where none does.

    A whole number of usual steps is a gap, and stays on the grid: weekends, lost rows. Gaps of one length in
    a row are another rate where lost rows would hardly bring them: were steps independent, a run of r steps
    of length m would be expected fewer than :data:`CHANCE` times among n, n p^r for the share p of length m
    elsewhere, (count + 1) / (steps + 2) by Laplace's rule of succession, and at least :data:`BURST`.

    Args:
        steps: The times from each row to the next, positive.
        usual: The usual one.
        calendar: Whether steps are months or years, which differ in length.
    """
    times = np.round(steps / usual)
    room = OFF * usual * (np.maximum(times, 1) if calendar else 1)
    off = (times < 1) | (np.abs(steps - times * usual) > room)
    kinds = ((off, "is off the grid of times"), (_rates(times), "begins another rate"))
    ends = [(int(np.flatnonzero(found)[0]), how) for found, how in kinds if found.any()]
    return min(ends, default=None)


def _rates(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which steps begin another rate; ``times`` are whole numbers of usual steps."""
    starts = np.flatnonzero(np.diff(times, prepend=np.nan) != 0)
    lengths = np.diff(starts, append=len(times))
    _, kind, count = np.unique(times, return_inverse=True, return_counts=True)
    elsewhere = (count[kind[starts]] - lengths + 1) / (len(times) - lengths + 2)
    rare = np.log(len(times)) + lengths * np.log(np.maximum(elsewhere, BURST)) < np.log(CHANCE)
    found = np.zeros(len(times), dtype=bool)
    found[starts[rare & (times[starts] > 1)]] = True
    return found


def on_grid(times: NDArray[np.float64], usual: float) -> NDArray[np.int64]:
    """Which row stands for each time of the grid from the first time on: the last that is not later.

    Args:
        times: The time of each row, ascending.
        usual: The step of the grid.
    """
    grid = times[0] + usual * np.arange(int((times[-1] - times[0]) / usual + 1e-6) + 1)
    return np.searchsorted(times, grid + 1e-6 * usual, side="right") - 1
