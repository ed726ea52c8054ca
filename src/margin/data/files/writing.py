"""Files that are replaced whole or not at all: written aside, synchronized, renamed.

A kill leaves what was there before under the final name, and so does a full disk, whose error says which
file, how much it needs and what to do.
"""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPACE = frozenset(
    code for name in ("ENOSPC", "EDQUOT", "EFBIG") if (code := getattr(errno, name, None)) is not None
)
"""What a system says where a file finds no room: the disk is full, or the share of it that a user has."""

ASIDE = ".new"
"""What the name of a file ends in that is not whole yet."""


class DiskFullError(OSError):
    """A file found no room; what was there before is there still."""


def make_directory(path: Path, what: str, remedy: str) -> None:
    """Make a directory, and those above it.

    Raises:
        OSError: It cannot be made; the message says what it was for, and what to do.
    """
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise OSError(f"{what} cannot be made: {error.strerror}; {remedy}") from None


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by one rename, after its bytes have reached the disk.

    Args:
        path: The file; its directory exists.
        content: All of it.

    Raises:
        DiskFullError: There is no room; nothing is left over.
        OSError: It cannot be written; nothing is left over.
    """
    new = path.with_name(path.name + ASIDE)
    with naming_the_full(path, len(content)):
        try:
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:  # Ctrl-C too leaves nothing half written
            new.unlink(missing_ok=True)
            raise
    _synchronize(path.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[io.BytesIO]:
    """A file in memory, which replaces the one at a path when it was written to its end.

    Args:
        path: The file; its directory exists.

    Raises:
        DiskFullError: There is no room; nothing is left over.
    """
    file = io.BytesIO()
    yield file
    write_whole(path, file.getvalue())


def append_whole(path: Path, content: bytes) -> None:
    """Add bytes to the end of a file, all or none.

    Args:
        path: The file; made where it does not exist.
        content: What is added.

    Raises:
        DiskFullError: There is no room; the file is as it was.
        OSError: It cannot be written; the file is as it was.
    """
    with naming_the_full(path, len(content)), path.open("ab") as file:
        before = file.tell()
        try:
            file.write(content)
            file.flush()
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def clear_aside(directory: Path) -> None:
    """Remove what a kill has left half written in a directory."""
    for left in directory.glob(f"*{ASIDE}"):
        if left.is_file():
            left.unlink(missing_ok=True)


@contextmanager
def naming_the_full(path: Path, size: int = 0) -> Iterator[None]:
    """An error that there is no room says of which file, how much it needs, and what to do.

    Args:
        path: The file that is written inside.
        size: Its bytes, where they are known.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in SPACE or isinstance(error, DiskFullError):
            raise
        room = f"at least {_size(size)}" if size else "room"
        raise DiskFullError(
            f"no room for {path}: {error.strerror}; free {room} in {path.parent.resolve()}"
        ) from None


@contextmanager
def going_on(how: str) -> Iterator[None]:
    """A full disk's message says how to go on, once there is room."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(f"{error}; then {how}") from None


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{-(-count // 1024)} KiB"


def _synchronize(directory: Path) -> None:
    """Let the rename reach the disk too; Windows opens no directory, and does so by itself."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
