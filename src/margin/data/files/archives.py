"""Arrays in ``.npy`` and ``.npz`` files: plain ones alone, none larger than what the file holds.

A header may state any shape, and a member of an archive any size; both are compared with the bytes that are
there before an array is made. Nothing is unpickled.
"""

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from margin.data.files.reading import check_unpacked, reading, regular

_PLAIN = "save numbers or text with numpy.save or numpy.savez"
_PARSERS = ("numpy", "zipfile")
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def array_in(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array in a ``.npy`` file.

    Args:
        path: The file.
        mapped: Whether the numbers stay in the file until they are read: then they cannot be written to.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no file of one plain array, or holds fewer bytes than its header states.
    """
    regular(path)
    with reading(path, "a file of plain arrays", _PLAIN, parsers=_PARSERS):
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                raise ValueError(f"{path}: .npz is an archive, .npy one array: the ending is the wrong one")
            file.seek(0)
            _check_header(file, path, path.stat().st_size)
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)


def arrays_in(path: Path, wanted: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays in an ``.npz`` archive by their names.

    Args:
        path: The file.
        wanted: The names that are read, where they are there; None reads all.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no archive of plain arrays; a member is packed in a way that is not read, or is
            larger than what is there can be.
    """
    regular(path)
    with reading(path, "a file of plain arrays", _PLAIN, parsers=_PARSERS):
        with path.open("rb") as file:
            if file.read(6) == npy.MAGIC_PREFIX:
                raise ValueError(f"{path}: .npz is an archive, .npy one array: the ending is the wrong one")
        with zipfile.ZipFile(path) as archive:
            members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
            kept = [name for name in members if wanted is None or name in wanted]
            return {name: _member(archive, members[name], path, name) for name in kept}


def names_in(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz`` archive.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no archive.
    """
    with (
        reading(regular(path), "a file of plain arrays", _PLAIN, parsers=_PARSERS),
        zipfile.ZipFile(path) as archive,
    ):
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, name: str) -> NDArray[Any]:
    where = f"{path}, array {name!r}"
    if info.flag_bits & 1:
        raise ValueError(f"{where}: an archive must not be encrypted: it is; {_PLAIN}")
    there = min(info.compress_size, path.stat().st_size)
    check_unpacked(where, there, info.file_size, "save it with numpy.savez, which does not compress")
    with reading(where, "a plain array", _PLAIN, parsers=_PARSERS):
        with archive.open(info) as file:
            _check_header(file, where, info.file_size)
        with archive.open(info) as file:
            return npy.read_array(file, allow_pickle=False)


def _check_header(file: Any, where: Any, size: int) -> None:
    """Refuse a header whose array is not what follows it.

    Raises:
        ValueError: The file begins otherwise, the header cannot be read, objects would have to be unpickled,
            or fewer bytes follow.
    """
    start = file.read(8)
    if start[:6] != npy.MAGIC_PREFIX or len(start) < 8:
        raise ValueError(f"{where}: not a file of plain arrays: it begins as no .npy does; {_PLAIN}")
    version = (start[6], start[7])
    if version not in _HEADERS and version != (3, 0):
        raise ValueError(
            f"{where}: not a file of plain arrays: format {start[6]}.{start[7]} is unknown; {_PLAIN}"
        )
    # Version 3 is version 2 in UTF-8, which only names of fields need
    with reading(
        where, "a file of plain arrays with a header that says what is in it", _PLAIN, parsers=_PARSERS
    ):
        shape, _, dtype = _HEADERS.get(version, npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise ValueError(
            f"{where}: not a file of plain arrays: it holds Python objects, which are never read; {_PLAIN}"
        )
    if any(length < 0 for length in shape) or dtype.itemsize == 0:
        raise ValueError(f"{where}: the header states no array: shape {shape} of {dtype}; {_PLAIN}")
    wanted, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if wanted > held:
        raise ValueError(
            f"{where}: the header states shape {shape} of {dtype}, {wanted:,} bytes: "
            f"the file holds {held:,}; write it anew, or fetch it again"
        )
