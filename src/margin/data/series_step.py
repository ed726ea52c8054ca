"""The time from a row of a series to the next: in words, and whether two are the same."""

from collections.abc import Sequence
from typing import NamedTuple

SAME = 1.12
"""Ratio up to which two time steps are one: months have 28 to 31 days, and clocks are not exact."""

UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0), ("second", 1.0))


class TimeStep(NamedTuple):
    """The usual time from a row to the next.

    Args:
        length: Seconds between dates, or the difference of numbers that count the rows; positive.
        dated: Whether the times are dates.
    """

    length: float
    dated: bool

    def __str__(self) -> str:
        if not self.dated:
            return f"{self.length:g}"
        for unit, seconds in UNITS:
            if self.length >= seconds:
                count = self.length / seconds
                return f"{count:.4g} {unit}{'s' * (count != 1)}"
        return f"{self.length * 1e6:g} microseconds"

    def is_like(self, other: "TimeStep") -> bool:
        """Whether both are of one kind and of one length, but for what months and clocks differ in."""
        longer, shorter = max(self.length, other.length), min(self.length, other.length)
        return self.dated == other.dated and longer <= SAME * shorter


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
