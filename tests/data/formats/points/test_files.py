"""Files of points against bytes written by hand, in every format; every way in which a file can be wrong."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from margin.data.formats.points.files import read_points

POINTS = [[0.5, -1.0, 2.0], [3.0, 4.5, 5.0]]


def ply(form: str, fields: str, body: bytes, *, count: int = 2, after: str = "") -> bytes:
    head = (
        f"ply\nformat {form} 1.0\ncomment made by hand\nelement vertex {count}\n{fields}{after}end_header\n"
    )
    return head.encode() + body


XYZ = "property float x\nproperty float y\nproperty float z\n"


@pytest.mark.parametrize(("form", "order"), [("binary_little_endian", "<"), ("binary_big_endian", ">")])
def test_a_binary_ply_in_either_byte_order(form: str, order: str, tmp_path: Path) -> None:
    body = struct.pack(f"{order}6f", *POINTS[0], *POINTS[1])
    faces = "element face 1\nproperty list uchar int vertex_indices\n"
    path = tmp_path / "a.ply"
    path.write_bytes(ply(form, XYZ, body + struct.pack(f"{order}B3i", 3, 0, 1, 0), after=faces))
    assert read_points(path).tolist() == POINTS


def test_a_binary_ply_with_mixed_types(tmp_path: Path) -> None:
    fields = "property double x\nproperty short y\nproperty uchar z\nproperty int8 w\n"
    path = tmp_path / "a.ply"
    path.write_bytes(
        ply("binary_little_endian", fields, struct.pack("<dhBb", 0.25, -300, 255, -128), count=1)
    )
    assert read_points(path).tolist() == [[0.25, -300, 255, -128]]


def test_a_ply_in_text_with_windows_lines(tmp_path: Path) -> None:
    text = ply(
        "ascii", XYZ, b"0.5 -1 2\n3 4.5 5\n3 0 1 0\n", after="element face 1\nproperty list uchar int i\n"
    )
    path = tmp_path / "A.PLY"
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    assert read_points(path).tolist() == POINTS


def test_a_ply_without_points(tmp_path: Path) -> None:
    path = tmp_path / "a.ply"
    for form in ("ascii", "binary_little_endian"):
        path.write_bytes(ply(form, XYZ, b"", count=0))
        assert read_points(path).shape == (0, 3)


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        (b"plx\n", ("must begin with 'ply'",)),
        (b"ply\nformat ascii 1.0\n", ("end_header",)),
        (b"ply\nelement vertex 1\nend_header\n", ("must name a format",)),
        (ply("ascii", XYZ, b"1 2\n1 2 3\n"), ("a point must be 3 numbers: point 0",)),
        (ply("ascii", XYZ, b"1 2 3\n1 b 3\n"), ("point 1",)),
        (ply("ascii", XYZ, b"1 2 3\n1 2 3 4\n"), ("a point must be 3 numbers: point 1",)),
        (ply("ascii", XYZ, b"1 2 3\n"), ("promises 2 points: got 1 lines",)),
        (ply("binary_little_endian", XYZ, b"\0" * 23), ("2 points take 24 bytes: got 23",)),
        (ply("ascii", "property half x\n", b""), ("a type must be", "got 'half'")),
        (ply("ascii", "property list uchar int x\n", b""), ("line 5", "must not hold a list")),
        (ply("ascii", XYZ, b"1 nan 3\n1 2 3\n"), ("point 0 (from 0) has nan in column 1",)),
        (
            b"ply\nformat ascii 1.0\nelement face 1\nelement vertex 1\nproperty float x\nend_header\n1\n",
            ("the first element must be 'vertex'", "got 'face'"),
        ),
    ],
)
def test_a_wrong_ply_is_refused(
    raw: bytes, texts: tuple[str, ...], tmp_path: Path, refused: Callable
) -> None:
    path = tmp_path / "a.ply"
    path.write_bytes(raw)
    with refused(str(path), *texts):
        read_points(path)


def test_lines_of_numbers(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.xyz"
    path.write_text("# a cloud\n0.5 -1 2\n\n3,4.5, 5\n")
    assert read_points(path).tolist() == POINTS
    path.write_text("# nothing\n")
    assert read_points(path).shape == (0, 3)
    path.write_text("1 2 3\n\n1 2\n")
    with refused("line 3: every point must have 3 numbers: got 2"):
        read_points(path)
    path.write_text("1 2 x\n")
    with refused("line 1: a point must be numbers: got '1 2 x'"):
        read_points(path)
    path.write_text("1 2 3\n1 inf 3\n")
    with refused("point 1 (from 0) has inf in column 1"):
        read_points(path)


def test_arrays(tmp_path: Path, refused: Callable) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array(POINTS, dtype=np.float16))
    assert read_points(path).tolist() == POINTS
    np.save(path, np.zeros(3))
    with refused("shape (points, coordinates): got (3,)"):
        read_points(path)
    np.save(path, np.array([{}], dtype=object))
    with refused("not a file of plain arrays"):
        read_points(path)


def test_other_files_are_refused(tmp_path: Path, refused: Callable) -> None:
    (tmp_path / "a.obj").write_text("")
    with refused("must end in .ply, .xyz, .npy: got '.obj'"):
        read_points(tmp_path / "a.obj")
    with refused("no such file", error=FileNotFoundError):
        read_points(tmp_path / "b.ply")
