"""A lock on a run's directory: one training at a time writes there.

The lock is the operating system's, on the file ``RUN/lock``: it ends with the process that holds it, however
that ends, so a file that is left behind blocks nothing. The file says who holds it.
"""

import errno
import json
import os
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from margin.data.files.writing import naming_the_full
from margin.engine.parallel.processes import broadcast_from_rank0

NAME = "lock"
"""The name of the file in the run's directory."""

TRIES = 5
"""Attempts at a lock: whoever looks whether it is held holds it for a moment."""

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a file system says that knows no locks: then what the file says decides."""


class RunBusyError(OSError):
    """Another process is training the run."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a run.

    Args:
        process: Its number on its machine.
        host: The machine's name.
        since: When it began, ISO 8601 in UTC.
    """

    process: int
    host: str
    since: str

    def __str__(self) -> str:
        """As in a sentence."""
        return f"process {self.process} on {self.host}, since {self.since}"


class Lock:
    """A run's directory, held until :meth:`release`, or until nobody has this object any more.

    Args:
        directory: The run's.

    Raises:
        RunBusyError: Another holds it; the message says who.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        for attempt in range(TRIES):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            if _held_elsewhere(descriptor, self.path, shared=False):
                os.close(descriptor)
                time.sleep(0.02 * (attempt + 1))
            elif not _is_at(descriptor, self.path):
                os.close(descriptor)  # its holder removed the file in between: this lock would guard nothing
            else:
                break
        else:
            who = _read(self.path)
            raise RunBusyError(
                f"{directory} is being trained by {who or 'another process'}: wait for it, or end it first"
            )
        self._let_go: Callable[[], object] = weakref.finalize(
            self, _let_go, descriptor, self.path, os.getpid()
        )
        text = json.dumps(asdict(_myself())).encode()
        with naming_the_full(self.path, len(text)):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, text)

    def release(self) -> None:
        """Let others train the run; once is enough."""
        self._let_go()


def held(path: Path) -> Lock | None:
    """The lock of a run's directory; of several processes the first holds it, and all are told if it cannot.

    Raises:
        RunBusyError: Another training holds it.
    """
    taken: list[Lock] = []
    broadcast_from_rank0(lambda: taken.append(Lock(path)))
    return taken[0] if taken else None


def holder_of(directory: Path) -> Holder | None:
    """Who trains a run at this moment, or None; what a killed training has left counts for nothing."""
    path = directory / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # there is none
        return None
    try:
        held = _held_elsewhere(descriptor, path, shared=True)
    finally:
        os.close(descriptor)
    return (_read(path) or Holder(0, "another machine", "now")) if held else None


def _let_go(descriptor: int, path: Path, process: int) -> None:
    with suppress(OSError):  # Windows removes no file that is open: what is left there is not held
        if process == os.getpid() and _is_at(descriptor, path):  # a fork's copy ends without a word
            path.unlink()
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that the path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _held_elsewhere(descriptor: int, path: Path, *, shared: bool) -> bool:
    """Take the lock of an open file, or say that another has it."""
    try:
        _take(descriptor, shared=shared)
    except OSError as error:
        if error.errno in NO_LOCKS:
            who = _read(path)
            return who is not None and _alive(who)
        return True
    return False


def _take(descriptor: int, *, shared: bool) -> None:
    try:
        import fcntl
    except ImportError:
        import msvcrt  # Windows; a byte far behind the text, which stays readable

        os.lseek(descriptor, 2**30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _alive(who: Holder) -> bool:
    """Whether a holder's process runs; of another machine nothing is known, so it does."""
    if who.host != socket.gethostname():
        return True
    if who.process == os.getpid():
        return False  # this very process asks: what it left is over
    try:
        os.kill(who.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _myself() -> Holder:
    return Holder(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))


def _read(path: Path) -> Holder | None:
    """What the file says; None where it says nothing that can be read."""
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
