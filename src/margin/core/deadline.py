"""A deadline: until when a question may compute, which every loop of it reads that may be long."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from margin.core.findings import NotAsked

STOPPED = "stopped after"
"""How the reason begins why a question has no answer for which its time was too short."""


class Deadline:
    """A point in time by ``time.perf_counter``; ``missed`` says how a computation missed it, or is ""."""

    def __init__(self, until: float) -> None:
        self.until, self.start, self.missed = until, time.perf_counter(), ""


NONE = Deadline(math.inf)
_current: ContextVar[Deadline] = ContextVar("deadline", default=NONE)


@contextmanager
def deadline(until: float) -> Iterator[None]:
    """Within the block :func:`check_deadline` raises as soon as time is up.

    Whoever caught that and went on has computed something else than was asked, by the speed of the machine:
    so the block raises again when it ends.

    Args:
        until: By ``time.perf_counter``.

    Raises:
        NotAsked: Time was up.
    """
    mine = Deadline(until)
    token = _current.set(mine)
    try:
        yield
    except Exception as error:
        if mine.missed:
            raise NotAsked(mine.missed) from error
        raise
    finally:
        _current.reset(token)
    if mine.missed:
        raise NotAsked(mine.missed)


def check_deadline(needs: float = 0.0, what: str = "the next step") -> None:
    """Go on only where what comes next ends in time.

    Args:
        needs: Seconds that it needs, about.
        what: What comes next.

    Raises:
        NotAsked: It would not: "stopped after 20 s: a pass needs about 2 s of 1 s".
    """
    mine, now = _current.get(), time.perf_counter()
    if now + needs > mine.until:
        left = mine.until - now
        fits = f"{what} needs about {duration(needs)} of {duration(left)}"
        why = fits if needs and left > 0 else "its time is up"
        mine.missed = f"{STOPPED} {duration(now - mine.start)}: {why}"
        raise NotAsked(mine.missed)


def seconds_left() -> float:
    """The time until the deadline, for a library's own limit; inf where there is none."""
    return max(_current.get().until - time.perf_counter(), 0.0)


def duration(seconds: float) -> str:
    """A time in the unit that people would name it in: "4 s", "3 min", "2.5 h"."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 0.95 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s"
