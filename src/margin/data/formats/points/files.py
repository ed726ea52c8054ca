"""Files of one point cloud each: ``.ply`` (Turk 1994), ``.xyz`` and ``.npy``.

A ``.xyz`` file has a point a line, its numbers with spaces or commas between; a line that begins with # is
left out. Of a ``.ply`` file the element ``vertex`` is read, in text or in binary, little or big endian, all
its numbers in order; faces and colors of lists are passed over.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from margin.data.files.archives import array_in
from margin.data.files.reading import regular, text_of

ENDINGS = (".ply", ".xyz", ".npy")

TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
"""The types of a property, in numpy's words."""

ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


def read_points(path: Path) -> NDArray[np.float64]:
    """The points of a file, (M, k); a file without points gives (0, k).

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not of the format that its ending says, or a number is not finite; the message names
            the point, counted from 0, or the line.
    """
    regular(path)
    readers = {".ply": _ply, ".xyz": _xyz, ".npy": _npy}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: a file of points must end in {', '.join(ENDINGS)}: got {path.suffix!r}")
    points = readers[path.suffix.lower()](path)
    fits = np.abs(points) <= np.finfo(np.float32).max  # False of NaN too
    if not fits.all():
        row, column = np.argwhere(~fits)[0]
        raise ValueError(
            f"{path}: every number must be finite in single precision: point {row} (from 0) "
            f"has {points[row, column]} "
            f"in column {column}"
        )
    return points


def _npy(path: Path) -> NDArray[np.float64]:
    points = array_in(path)
    if points.ndim != 2 or points.dtype.kind not in "iuf":
        raise ValueError(
            f"{path}: points must be numbers of shape (points, coordinates): got {points.shape} of "
            f"{points.dtype}"
        )
    return points.astype(np.float64)


def _xyz(path: Path) -> NDArray[np.float64]:
    rows: list[list[float]] = []
    for number, line in enumerate(text_of(path).splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            row = [float(word) for word in words]
        except ValueError:
            raise ValueError(
                f"{path}, line {number}: a point must be numbers: got {line.strip()!r}"
            ) from None
        if rows and len(row) != len(rows[0]):
            raise ValueError(
                f"{path}, line {number}: every point must have {len(rows[0])} numbers: got {len(row)}"
            )
        rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 3)


def _ply(path: Path) -> NDArray[np.float64]:
    raw = path.read_bytes()
    end = raw.find(b"end_header")
    if not raw.startswith(b"ply") or end < 0:
        raise ValueError(f"{path}: a PLY file must begin with 'ply' and a header that ends with 'end_header'")
    begin = raw.index(b"\n", end) + 1 if b"\n" in raw[end:] else len(raw)
    order, count, fields = _header(path, raw[:end].decode("ascii", "replace").splitlines())
    if order == "":
        return _ply_text(path, raw[begin:].decode("ascii", "replace"), count, len(fields))
    try:
        dtype = np.dtype([(name, order + kind) for name, kind in fields])
    except ValueError as error:
        raise ValueError(f"{path}: the numbers of a point must have names of their own: {error}") from None
    if len(raw) - begin < count * dtype.itemsize:
        raise ValueError(
            f"{path}: {count} points take {count * dtype.itemsize} bytes: "
            f"got {len(raw) - begin} after the header"
        )
    table = np.frombuffer(raw, dtype, count, begin)
    columns = [table[name].astype(np.float64) for name, _ in fields]
    return np.stack(columns, 1) if columns else np.zeros((count, 0))


def _header(path: Path, lines: list[str]) -> tuple[str, int, list[tuple[str, str]]]:
    """Byte order ("" for text), number of points, and name and type of each number of a point."""
    order: str | None = None
    elements: list[str] = []
    count, fields = 0, []
    for number, line in enumerate(lines, 1):
        match line.split():
            case ["format", word, *_] if word in ORDERS:
                order = ORDERS[word]
            case ["element", name, size] if size.isdigit():
                elements.append(name)
                count = int(size) if name == "vertex" else count
            case ["property", "list", *_] if elements and elements[-1] == "vertex":
                raise ValueError(f"{path}, line {number}: a point must not hold a list: got {line!r}")
            case ["property", kind, name] if elements and elements[-1] == "vertex" and kind in TYPES:
                fields.append((name, TYPES[kind]))
            case ["property", kind, _] if elements and elements[-1] == "vertex":
                raise ValueError(f"{path}, line {number}: a type must be {', '.join(TYPES)}: got {kind!r}")
    if order is None:
        raise ValueError(f"{path}: the header must name a format: {', '.join(ORDERS)}")
    if not fields and count:
        raise ValueError(f"{path}: a point must have numbers: the header names {count} points without any")
    if not elements or elements[0] != "vertex":
        first = elements[0] if elements else "none"
        raise ValueError(f"{path}: the first element must be 'vertex', the points: got {first!r}")
    return order, count, fields


def _ply_text(path: Path, text: str, count: int, width: int) -> NDArray[np.float64]:
    lines = [line for line in text.splitlines() if line.strip()][:count]
    if len(lines) < count:
        raise ValueError(f"{path}: the header promises {count} points: got {len(lines)} lines")
    points = np.zeros((count, width))
    for row, line in enumerate(lines):
        words = line.split()
        try:
            points[row] = [float(word) for word in words]
        except ValueError:
            raise ValueError(
                f"{path}: a point must be {width} numbers: point {row} (from 0) is {line.strip()!r}"
            ) from None
    return points
