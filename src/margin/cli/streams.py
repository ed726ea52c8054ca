"""The three standard streams: closed ones are opened on nothing, and progress that cannot be told is not.

Standard error carries progress, so a terminal that went away or a full disk behind it ends no training;
standard output carries the result, so what cannot be written there is a mistake, told in one line.
"""

import errno
import os
import shutil
import sys
import textwrap


def open_closed() -> None:
    """Open the null device in place of each standard stream that is closed, lest a file takes its number.

    Raises:
        OSError: Standard output is closed: the result could not be told.
    """
    closed = [number for number in (0, 1, 2) if not _is_open(number)]
    for number in closed:  # the least free number is taken first
        found = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if found != number:
            os.dup2(found, number)
            os.close(found)
        os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (a stream of the process)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        raise OSError("standard output must be open for the result: it is closed; send it to a file")


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def say(text: str, end: str = "\n") -> None:
    """Tell on stderr how it goes; nothing, from then on, where stderr takes no more."""
    if sys.stderr is None:  # closed before Python began: print would turn to stdout
        return
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr.fileno())


def discard(number: int) -> None:
    """Let what a stream still holds, and all that follows, go nowhere: Python would fail on it at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)


def tell_result(text: str) -> None:
    """Print the result on stdout.

    Raises:
        BrokenPipeError: Whoever read it has gone.
        OSError: It cannot be written; the message says why.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard(sys.stdout.fileno())
        reason = error.strerror or errno.errorcode.get(error.errno or 0, "")
        raise OSError(f"standard output cannot be written: {reason}; the command itself is done") from None


def fitted(text: str) -> str:
    """Help whose lines are as wide as the terminal at most; what is folded is indented."""
    columns = max(20, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for line in text.splitlines():
        lead = " " * (len(line) - len(line.lstrip()) + 4)
        lines += textwrap.wrap(line, columns, subsequent_indent=lead) if len(line) > columns else [line]
    return "\n".join(lines)


def width() -> int | None:
    """Columns of the terminal that reads, or that ``COLUMNS`` says; None where a file or a pipe does."""
    if not (os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty()):
        return None
    return max(20, shutil.get_terminal_size().columns)
