"""Arrays in ``.npy`` and ``.npz`` files: plain ones alone, none larger than what the file holds.

A header may state any shape, and a member of an archive any size; both are compared with the bytes that are
there before an array is made. Nothing is unpickled.
"""

import math
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from margin.core.catalog import nearest
from margin.data.files.reading import check_unpacked, reading, regular

GROUPS = "groups"
"""The array that says the group of each example."""

TYPO = 0.75
"""From this likeness on an unknown name is a known one mistyped."""

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


def arrays_in(
    path: Path,
    known: Collection[str] | None = None,
    same: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, NDArray[Any]]:
    """The arrays in an ``.npz`` archive by their names.

    Args:
        path: The file.
        known: The names that are read, where they are there; None reads all.
        same: Other names of some of them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no archive of plain arrays; a member is packed in a way that is not read, or is
            larger than what is there can be; a name comes twice, or is a known one mistyped.
    """
    members, strange = _members(path, known, same)
    for name in strange:
        if near := nearest(name, (*(known or ()), *same, GROUPS), 1, alike=TYPO):
            there = near[0] in (*(known or ()), *same)
            remedy = "rename it, or" if there else "examples of this format are not split by groups:"
            raise ValueError(
                f"{path}: arrays must be called {', '.join(sorted(known or ()))}: got {name!r}, which is "
                f"like {near[0]!r}; {remedy} save the file without it"
            )
    with (
        reading(path, "a file of plain arrays", _PLAIN, parsers=_PARSERS),
        zipfile.ZipFile(path) as archive,
    ):
        return {name: _member(archive, info, path, name) for name, info in members.items()}


def names_in(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz``, whatever they are."""
    return [*_members(path, None, {})[0]]


def unread_in(
    path: Path, known: Collection[str], same: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """What is said of the arrays in an ``.npz`` that are not read; none of another file."""
    strange = _members(path, known, same)[1] if path.suffix == ".npz" else []
    if not strange:
        return ()
    return (f"arrays not read: {', '.join(strange)}; those that are: {', '.join(sorted(known))}",)


def _members(
    path: Path, known: Collection[str] | None, same: Mapping[str, str]
) -> tuple[dict[str, zipfile.ZipInfo], list[str]]:
    """The known members of an archive by their names, each of which comes once, and the names of others."""
    regular(path)
    members: dict[str, zipfile.ZipInfo] = {}
    strange: list[str] = []
    with reading(path, "a file of plain arrays", _PLAIN, parsers=_PARSERS):
        with path.open("rb") as file:
            if file.read(6) == npy.MAGIC_PREFIX:
                raise ValueError(f"{path}: .npz is an archive, .npy one array: the ending is the wrong one")
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                given = info.filename.removesuffix(".npy")
                name = same.get(given, given)
                if name in members or name in strange:
                    raise ValueError(
                        f"{path}: every array must come once: {name!r} comes twice"
                        f"{f', the second time as {given!r}' if given != name else ''}; "
                        "save it anew with numpy.savez"
                    )
                if known is None or name in known:
                    members[name] = info
                else:
                    strange.append(name)
    return members, strange


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
