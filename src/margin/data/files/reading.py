"""Reading files that may be broken or hostile: no memory on a file's word alone, errors that name the file.

What a file states of its own size is compared with what is there before memory is asked for; what is packed
may not unpack to more than packing plausibly saves; what a library raises on a broken file becomes one line.
"""

import codecs
import os
import struct
import sys
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FREE = 2**28
"""Bytes that any file may unpack to, however small it is: 256 MiB."""

TIMES = 200
"""How many times its size a larger file may unpack to; text of one letter comes to a thousand."""

BROKEN = (
    *(MemoryError, RecursionError, OverflowError, EOFError, UnicodeError),
    *(struct.error, zlib.error, zipfile.BadZipFile),
)
"""What the parts of a reader raise on contents that none of them expected."""

_CHUNK = 2**20


def regular(path: Path, what: str = "file") -> Path:
    """The path of a regular file: reading a pipe, a socket or a device might never end.

    Args:
        path: Where it should be.
        what: What a message calls it where there is none.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: There is something else than a file.
    """
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path}: a file is needed here: it is a folder")
    kinds = {"a pipe": path.is_fifo, "a socket": path.is_socket}
    kinds |= {"a device": lambda: path.is_char_device() or path.is_block_device()}
    for kind, holds in kinds.items():
        if holds():
            raise ValueError(
                f"{path}: data are read from regular files: it is {kind}; save what it gives to a file"
            )
    raise FileNotFoundError(f"no such {what}: {path}")


@contextmanager
def reading(
    path: Any, what: str, remedy: str = "write it anew, or fetch it again", *, parsers: tuple[str, ...] = ()
) -> Iterator[None]:
    """Around a library that parses a file: what says that the file is broken becomes one line that names it.

    That is a ValueError or OSError, an error of :data:`BROKEN`, or any that the library itself stumbled over.

    Args:
        path: The file.
        what: What it should be, as "a WAV file of PCM samples".
        remedy: What is to be done.
        parsers: The packages that parse the file, as "numpy".

    Raises:
        ValueError: In place of what was raised. Messages that begin with the file's name stay, and any other
            error of our own code or of a package that is not named.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        if str(error).startswith((str(path), f"no such file: {path}")):
            raise
        raise ValueError(f"{path}: not {what}: {reason_of(error)}; {remedy}") from None
    except Exception as error:  # parsers of broken files raise nearly anything
        if not isinstance(error, BROKEN) and not raised_in(error, parsers):
            raise
        raise ValueError(f"{path}: not {what}: {reason_of(error)}; {remedy}") from None


def raised_in(error: BaseException, packages: tuple[str, ...]) -> bool:
    """Whether an error passed through a frame of one of these packages."""
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in packages:
            return True
        trace = trace.tb_next
    return False


@contextmanager
def guarded(source: Any) -> Iterator[None]:
    """Around the whole reading of a source: what only broken contents raise becomes one line that names it.

    Mistakes of ours (KeyError, TypeError, AssertionError, ...) are not taken for the file's and pass.

    Args:
        source: What messages call it.

    Raises:
        ValueError: The contents are broken, or need more memory than there is; or what was raised, with the
            source's name before it where it names no file.
    """
    try:
        # Of what overflows or is no number NumPy warns; readers refuse it by its place
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except BROKEN as error:
        raise ValueError(f"{source}: {_sentence(error)}") from None
    except ValueError as error:
        if type(error) is not ValueError or Path(str(source)).name in str(error):
            raise
        raise ValueError(f"{source}: {error}") from None
    except RuntimeError as error:
        if "allocate memory" not in str(error):  # torch's allocator has no class of its own
            raise
        raise ValueError(f"{source}: {_sentence(MemoryError())}") from None


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return (
            "what is in it must fit in memory: it does not; read a part of it, or correct the sizes it states"
        )
    if isinstance(error, RecursionError):
        return "what is in it must not be nested so deeply: it goes beyond the recursion limit"
    return f"the contents are broken: {reason_of(error)}; write it anew, or fetch it again"


def reason_of(error: BaseException) -> str:
    """The first line of what an error says, else its kind in words."""
    kinds = {MemoryError: "it needs more memory than there is", RecursionError: "it is nested too deeply"}
    for kind, words in kinds.items():
        if isinstance(error, kind):
            return words
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


@contextmanager
def panicking(path: Any, what: str) -> Iterator[None]:
    """Around a library in Rust: its panic, which is told on stderr and is no Exception, becomes one line.

    The hook that prints a panic is the library's own, one for the process, and writes to file descriptor 2:
    nothing in Python comes before it, so the descriptor is turned aside for the time of the call. What other
    threads write meanwhile is passed on afterwards, unless there was a panic.

    Args:
        path: The file.
        what: What it should be.

    Raises:
        ValueError: The library panicked.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            aside.truncate(0)
            raise ValueError(
                f"{path}: not {what}: {reason_of(error)}; write it anew, or fetch it again"
            ) from None
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            aside.seek(0)
            if told := aside.read():
                os.write(2, told)


def check_unpacked(path: Any, there: int, wanted: int, remedy: str) -> None:
    """Refuse contents that would take implausibly more memory than their file has bytes.

    Args:
        path: What messages call the file.
        there: Bytes that are there.
        wanted: Bytes that they would become.
        remedy: What is to be done where they are meant so.

    Raises:
        ValueError: They are more than :data:`FREE` and more than :data:`TIMES` times what is there.
    """
    if wanted > max(FREE, TIMES * there):
        raise ValueError(
            f"{path}: {there:,} bytes must not become more than {max(FREE, TIMES * there):,} in memory: "
            f"they would be {wanted:,}; {remedy}"
        )


def unpacked(path: Path) -> bytes:
    """The bytes of a regular file; of ``.gz`` what is packed in it, in memory that its size bounds.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no regular file, no whole gzip file, or one that unpacks to implausibly much.
    """
    regular(path)
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    size, pieces, total = path.stat().st_size, list[bytes](), 0
    import gzip

    with reading(path, "a whole gzip file", parsers=("gzip",)), gzip.open(path) as packed:
        while piece := packed.read(_CHUNK):
            total += len(piece)
            check_unpacked(path, size, total, "unpack it with gunzip if it is meant so")
            pieces.append(piece)
    return b"".join(pieces)


def text_of(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 with its byte order mark; ``.gz`` is unpacked.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is neither, or holds a zero byte; the message names the line.
    """
    raw = unpacked(path)
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + raw.count(b"\n", 0, error.start)
        raise ValueError(
            f"{path}, line {line}: text must be {'UTF-16 to its end' if wide else 'UTF-8'}: got byte "
            f"{raw[error.start]:#04x} at byte {error.start}; {'save it anew' if wide else recoded(path)}"
        ) from None
    if "\0" in text:
        line = 1 + text.count("\n", 0, text.index("\0"))
        raise ValueError(f"{path}, line {line}: text must hold no zero byte: got one; save it as UTF-8")
    return text


def recoded(path: Path) -> str:
    """How a file that is not UTF-8 becomes so, as the end of a message."""
    return f"save it so, or run: iconv -f CP1252 -t UTF-8 {path.name} > new-{path.name}"


# names: of classes, categories, groups, columns


COMPOSED = "the text is read in Unicode's normal form C, where a letter and its accent are one character"
"""What is said of a text that is written in another form."""


def plain(name: str) -> str:
    """A name as it is compared: in Unicode's normal form C (UAX 15), without blanks around.

    In that form a letter and its accent are one character, however they were typed.
    """
    return unicodedata.normalize("NFC", name.strip())


def renamed(names: Iterable[str]) -> tuple[str, ...]:
    """What is said of names that :func:`plain` changes, the first of them by its characters."""
    changed = next((str(name) for name in names if plain(str(name)) != name), None)
    if changed is None:
        return ()
    return (
        "names are read in Unicode's normal form C and without blanks around: "
        f"{changed!a} is {plain(changed)!a}",
    )


def classes_of(names: Iterable[object], where: object) -> tuple[str, ...]:
    """The names of classes, each once.

    Raises:
        ValueError: Two are one name.
    """
    given = [str(name) for name in names]
    found = tuple(map(plain, given))
    for k, name in enumerate(found):
        if name in found[:k]:
            first = given[found.index(name)]
            raise ValueError(
                f"{where}: every class must have a name of its own: {first!a} and {given[k]!a} "
                "are one; rename one, or make them one class"
            )
    return found


def classes_in(folders: Sequence[Path]) -> dict[Path, str]:
    """The class of each class folder.

    Raises:
        ValueError: The names of two are one.
    """
    names = classes_of([folder.name for folder in folders], folders[0].parent) if folders else ()
    return dict(zip(folders, names, strict=True))
