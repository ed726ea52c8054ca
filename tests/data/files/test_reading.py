"""Broken and hostile files through the command line: one line that names the file, exit 2, bounded memory."""

import gzip
import io
import os
import socket
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import networkx  # noqa: F401  (here, so that no measured test pays for it)
import numpy as np
import pytest
import scipy.signal  # noqa: F401
from PIL import Image

from margin.cli import main
from margin.data.files import reading
from margin.data.files.reading import check_unpacked, guarded, regular, text_of, unpacked
from margin.data.formats.graphs.files import load_npz
from margin.data.formats.images import images
from margin.data.open import open_data

GIB = 2**30
X, Y = np.arange(120.0).reshape(40, 3), np.arange(40) % 2


def npy(shape: str, body: bytes = b"\0" * 64, descr: str = "'<f8'") -> bytes:
    """A file of version 1.0 with any header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + body


def plain(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(x: bytes, *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("x.npy", x)
        archive.writestr("y.npy", plain(Y))
    return file.getvalue()


def changed(content: bytes, old: bytes, at: int, new: bytes) -> bytes:
    """Every record of a zip that begins with ``old``, with ``new`` from its byte ``at`` on."""
    made, start = bytearray(content), 0
    while (start := content.find(old, start)) >= 0:
        made[start + at : start + at + len(new)] = new
        start += 4
    return bytes(made)


def both(content: bytes, local: int, new: bytes) -> bytes:
    """The members' records and the directory's, which holds the same two bytes later."""
    return changed(changed(content, b"PK\3\4", local, new), b"PK\1\2", local + 2, new)


def png(width: int, height: int) -> bytes:
    """A picture whose header states any size; its data are a few bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + start + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


def tiff(width: int, height: int) -> bytes:
    tags = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 200), (277, 1), (278, height)]
    tags.append((279, 64))
    rows = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + b"\0" * 200


def wav(rate: int, samples: bytes = b"\0\0" * 400, stated: int | None = None) -> bytes:
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * 2 % 2**32, 2, 16)
    size = len(samples) if stated is None else stated
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 40, 4, 4) + bytes(640)
LABELS = b"\0\0\x08\x01" + struct.pack(">I", 40) + bytes(k % 2 for k in range(40))
PLY = "ply\nformat {}\nelement vertex 100000000000\n{}end_header\n1 2 3\n"
WHOLE = npz(plain(X))

HOSTILE: dict[str, tuple[dict[str, bytes], list[str], str]] = {
    "93 GiB": ({"a.npz": npz(npy("(12500000000,)"))}, ["a.npz"], "states shape (12500000000,)"),
    "373 GiB": ({"a.npy": npy("(50000000000,)"), "a_y.npy": plain(Y)}, ["a.npy"], "the file holds 64"),
    "negative": ({"a.npy": npy("(-4, 2)")}, ["a.npy"], "shape"),
    "no literal": ({"a.npy": npy("(1, x())")}, ["a.npy"], "header"),
    "not closed": ({"a.npy": npy("((((1,")}, ["a.npy"], "header"),
    "no header": ({"a.npy": b"\x93NUMPY\1\0\xff\xff{"}, ["a.npy"], "header"),
    "format 9": ({"a.npy": b"\x93NUMPY\x09\0\x10\0" + b" " * 16}, ["a.npy"], "format 9.0 is unknown"),
    "no elements": ({"a.npy": npy("(3,)", descr="'|V0'")}, ["a.npy"], "states no array"),
    "deflate": ({"a.npz": changed(WHOLE, b"PK\3\4", 40, b"\xff" * 40)}, ["a.npz"], "invalid"),
    "encrypted": ({"a.npz": both(WHOLE, 6, b"\1\0")}, ["a.npz"], "must not be encrypted"),
    "unknown method": ({"a.npz": both(WHOLE, 8, b"\x63\0")}, ["a.npz"], "compression method"),
    "archive bomb": ({"a.npz": npz(npy("(125000, 8)", bytes(8_000_000)))}, ["a.npz"], "numpy.savez"),
    "lying directory": ({"a.npz": changed(WHOLE, b"PK\1\2", 24, b"\xff\xff\xff\x7f")}, ["a.npz"], "bytes"),
    "labels of 2^40": ({"a.npy": plain(X), "a_y.npy": plain(Y * 2**40)}, ["a.npy"], "1099511627777 classes"),
    "packed idx": (
        {"a-images-idx3-ubyte.gz": gzip.compress(bytes(9_000_000)), "a-labels-idx1-ubyte": LABELS},
        ["a-images-idx3-ubyte.gz"],
        "starts with 00 00",
    ),
    "idx bomb": (
        {
            "a-images-idx3-ubyte.gz": gzip.compress(
                IDX[:4] + struct.pack(">3I", 9000, 40, 40) + bytes(2**24)
            ),
            "a-labels-idx1-ubyte": LABELS,
        },
        ["a-images-idx3-ubyte.gz"],
        "gunzip",
    ),
    "idx of 10^28": (
        {"a-images-idx3-ubyte": IDX[:4] + b"\xff" * 12 + IDX[16:], "a-labels-idx1-ubyte": LABELS},
        ["a-images-idx3-ubyte"],
        "bytes: got 656",
    ),
    "idx of 255 axes": (
        {"a-images-idx3-ubyte": b"\0\0\x08\xff" + bytes(1100), "a-labels-idx1-ubyte": LABELS},
        ["a-images-idx3-ubyte"],
        "too many axes",
    ),
    "text bomb": ({"a.txt.gz": gzip.compress(b"a b\n" * 2**21)}, ["text:a.txt.gz"], "gunzip"),
    "cut gzip": (
        {"a.txt.gz": gzip.compress(os.urandom(999))[:500]},
        ["text:a.txt.gz"],
        "not a whole gzip file",
    ),
    "zero byte": ({"a.txt": b"line\nab\0c" * 99}, ["text:a.txt"], "line 2: text must hold no zero byte"),
    "latin-1": ({"a.xyz": b"1 2 3\n\xe9 2 3\n"}, ["points:c"], "line 2: text must be UTF-8: got byte 0xe9"),
    "rate of 2 GHz": ({"a_1.wav": wav(1_999_999_993)}, ["audio:.", "--data.resample=8000"], "a_1.wav"),
    "rate of 1 Hz": ({"a_1.wav": wav(1, b"\0\0" * 9999)}, ["audio:.", "--data.resample=8000"], "a_1.wav"),
    "cut wav": ({"a_1.wav": wav(8000, stated=2**31)}, ["audio:."], "states 1073741824 samples"),
    "png": ({"k/a.png": png(20000, 20000), "m/b.png": png(2, 2)}, ["."], "a.png"),
    "png of 2^31": ({"k/a.png": png(2**31 - 1, 2**31 - 1), "m/b.png": png(2, 2)}, ["."], "a.png"),
    "tiff": ({"k/a.tif": tiff(30000, 30000), "m/b.png": png(2, 2)}, ["."], "a.tif"),
    "ply": ({"c/k/a.ply": PLY.format("ascii 1.0", "property float x\n").encode()}, ["points:c"], "a.ply"),
    "ply, binary": (
        {"c/k/a.ply": PLY.format("binary_little_endian 1.0", "property float x\n").encode()},
        ["points:c"],
        "400000000000 bytes",
    ),
    "ply, empty": ({"c/k/a.ply": PLY.format("binary_little_endian 1.0", "").encode()}, ["points:c"], "a.ply"),
    "pajek": ({"a.net": b'*Vertices 100000000000\n1 "a"\n*Arcs\n1 2\n'}, ["a.net"], "a.net"),
    "gml": ({"a.gml": b"graph [ node [ id 0 " + b"a [ " * 20000 + b"]" * 20002}, ["a.gml"], "a.gml"),
    "entities": (
        {
            "a.graphml": b'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a0 "aaaaaaaaaa">'
            + b"".join(b'<!ENTITY a%d "%s">' % (k, b"&a%d;" % (k - 1) * 10) for k in range(1, 10))
            + b"]><graphml>&a9;</graphml>"
        },
        ["a.graphml"],
        "a.graphml",
    ),
    "number of graphs": ({"g.txt": b"100000000000\n1 0\n0 0\n"}, ["graphs:g.txt"], "line 4"),
    "number of nodes": ({"g.txt": b"1\n100000000000 0\n0 0\n"}, ["graphs:g.txt"], "line 4"),
    "graph indicator": (
        {"g/g_graph_indicator.txt": b"1\n100000000000\n", "g/g_A.txt": b"1, 1\n"},
        ["graphs:g"],
        "g_graph_indicator.txt",
    ),
    "parquet": ({"a.parquet": b"PAR1" + bytes(64) + b"\xff\xff\xff\x7fPAR1"}, ["a.parquet"], "not a Parquet"),
}


@pytest.fixture
def typed(tmp_path: Path, monkeypatch, capfd):
    """Types ``margin data show``; returns exit status, the lines on stderr, and the peak of memory."""
    monkeypatch.chdir(tmp_path)
    main(["data", "show", "iris"])
    capfd.readouterr()

    def show(*words: str) -> tuple[int, list[str], int]:
        tracemalloc.start()
        try:
            status = main(["data", "show", *words])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        return status, capfd.readouterr().err.splitlines(), peak

    return show


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_and_little_memory(case, typed, tmp_path, monkeypatch) -> None:
    files, words, text = HOSTILE[case]
    for name, content in files.items():
        place = tmp_path / ("c/k" if name.endswith(".xyz") else ".") / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    monkeypatch.setattr(reading, "FREE", 2**22)
    status, lines, peak = typed(*words)
    assert status == 2, lines
    assert len(lines) == 1, lines
    assert text in lines[0], lines
    assert any(Path(name).name in lines[0] for name in files), lines
    assert peak < 2**26, f"{peak / 2**20:.0f} MiB"


@pytest.mark.parametrize("place", ["k/b.png", "a.csv", "s.wav", "a.npy"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_regular_file_is_named_and_not_read(kind, place, typed, tmp_path) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        place_of_socket = f"{os.getpid()}.s"  # the path of a socket is 107 bytes at most
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(place_of_socket)
        Path(place_of_socket).rename(path)
    source = "." if place.startswith("k") else place
    status, lines, _ = typed(source)
    assert (status, len(lines)) == (2, 1), lines
    assert Path(place).name in lines[0] and f"it is a {kind}" in lines[0]


def test_packed_text_is_unpacked_up_to_the_bound(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"z" * 100_000))
    size = path.stat().st_size
    assert unpacked(path) == b"z" * 100_000
    monkeypatch.setattr(reading, "FREE", 99_999)
    monkeypatch.setattr(reading, "TIMES", 100_000 // size)  # one less than what is there
    with pytest.raises(ValueError, match="gunzip"):
        unpacked(path)
    monkeypatch.setattr(reading, "FREE", 100_000)
    assert len(unpacked(path)) == 100_000


def test_the_bound_is_the_larger_of_both() -> None:
    check_unpacked("a", 1, reading.FREE, "b")
    check_unpacked("a", reading.FREE, reading.TIMES * reading.FREE, "b")
    for there, wanted in ((1, reading.FREE + 1), (reading.FREE, reading.TIMES * reading.FREE + 1)):
        with pytest.raises(ValueError, match=f"a: {there:,} bytes"):
            check_unpacked("a", there, wanted, "b")


def test_only_what_broken_contents_raise_is_taken_for_the_files_fault() -> None:
    for error in (MemoryError(), RecursionError(), OverflowError("x"), EOFError(), zlib.error("x")):
        with pytest.raises(ValueError, match=r"^f\.csv: "), guarded("f.csv"):
            raise error
    for error in (KeyError("x"), TypeError("x"), AssertionError(), RuntimeError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), guarded("f.csv"):
            raise error


def test_text_may_have_a_byte_order_mark_and_the_line_of_a_bad_byte_is_named(tmp_path) -> None:
    (tmp_path / "a").write_bytes("\ufeffé\n".encode())
    assert text_of(tmp_path / "a") == "é\n"
    for order in ("le", "be"):
        (tmp_path / order).write_bytes("\ufeffé\n".encode(f"utf-16-{order}"))
        assert text_of(tmp_path / order) == "é\n"
    (tmp_path / "odd").write_bytes("é\n".encode("utf-16") + b"x")
    with pytest.raises(ValueError, match=r"line 2: text must be UTF-16 to its end: .*; save it anew"):
        text_of(tmp_path / "odd")
    (tmp_path / "b").write_bytes(b"a\nb\n\xff")
    with pytest.raises(
        ValueError, match=r"line 3: text must be UTF-8: got byte 0xff .*; save it so, or run: iconv"
    ):
        text_of(tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="no such file"):
        regular(tmp_path / "c")
    with pytest.raises(ValueError, match="it is a folder"):
        regular(tmp_path)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["tif", "jpg", "png", "webp"])
def test_a_turned_picture_is_read_as_it_is_shown(orientation, ending, tmp_path) -> None:
    from PIL import ImageOps

    from margin.data.formats.images.images import Fit, header_of, pixels_of

    picture = Image.fromarray(np.arange(6 * 4, dtype=np.uint8).reshape(6, 4) * 10)
    picture = picture.convert("RGB") if ending == "webp" else picture
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{ending}"
    picture.save(path, exif=exif, **({"lossless": True} if ending == "webp" else {}))
    # Pillow maps a plain TIFF into memory by the size as shown, and then mixes up its rows: not so of bytes
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        shown = np.asarray(ImageOps.exif_transpose(image).convert("L"))
    expected = (
        shown if ending == "jpg" else np.asarray(ImageOps.exif_transpose(_with(picture, exif)).convert("L"))
    )
    found = pixels_of(path.read_bytes(), path, channels=1, fit=Fit())[0].numpy()
    assert np.array_equal(found, shown)
    assert np.array_equal(found, expected)
    assert header_of(path).size == expected.shape == ((4, 6) if orientation >= 5 else (6, 4))


def _with(picture: Image.Image, exif: Image.Exif) -> Image.Image:
    """The picture with its orientation, never written to a file: what a decoder has to show."""
    made = picture.copy()
    made.getexif()[0x0112] = exif[0x0112]
    return made


def test_a_large_picture_is_refused_without_a_warning(tmp_path, monkeypatch) -> None:
    from margin.data.formats.images.images import header_of

    (tmp_path / "a.png").write_bytes(png(10_000, 10_000))  # Pillow warns from 89 million pixels on
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"a\.png: .* they would be 400,000,000; make it smaller"):
            header_of(tmp_path / "a.png")


def inside(code: str, module: str):
    """A function of that code which counts as one of a module."""
    space = {"__name__": module}
    exec(f"def fault():\n    {code}", space)
    return space["fault"]


@pytest.mark.parametrize(
    "around",
    [
        lambda path, what: reading.reading(path, what, parsers=("PIL",)),
        lambda path, what: images._reading(path),
    ],
    ids=["reading", "images"],
)
@pytest.mark.parametrize(
    "code", ["None + 1", "None.size", "undefined", "{}['x']", "[][3]", "assert not 'so'"]
)
def test_a_fault_of_ours_is_not_told_as_the_files(tmp_path, around, code) -> None:
    (path := tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(Exception) as kept, around(path, "a picture"):
        inside(code, "margin.data.formats.images.images")()
    assert not isinstance(kept.value, ValueError)
    with pytest.raises(type(kept.value)), around(path, "a picture"):
        inside(code, "torch.library")()  # a library that parses no pictures
    with pytest.raises(ValueError, match=r"a\.png: "), around(path, "a picture"):
        inside(code, "PIL.Image")()  # a parser that stumbles over the file
    with pytest.raises(ValueError, match=r"a\.png: "), around(path, "a picture"):
        inside("raise OverflowError", "margin.data.formats.images.images")()


class PanicException(BaseException):
    """Called as that of Rust's libraries."""


def test_what_others_tell_during_a_parser_in_rust_is_passed_on(tmp_path, capfd) -> None:
    with reading.panicking(tmp_path / "a.parquet", "a Parquet file"):
        os.write(2, b"of another thread\n")
    assert capfd.readouterr().err == "of another thread\n"

    def panic() -> None:
        os.write(2, b"thread panicked at src/parquet.rs\n")
        raise PanicException("it broke")

    parquet = reading.panicking(tmp_path / "a.parquet", "a Parquet file")
    with pytest.raises(ValueError, match=r"a\.parquet: not a Parquet file: it broke; "), parquet:
        panic()
    assert capfd.readouterr().err == ""


def ring(**other: np.ndarray) -> dict[str, np.ndarray]:
    return {"edge_index": np.stack((np.arange(6), (np.arange(6) + 1) % 6)), "y": np.arange(6) % 2, **other}


SPARSE = {"x_data": np.ones(6), "x_indices": np.zeros(6, int), "x_indptr": np.arange(7)}


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({**SPARSE, "x_shape": np.array([6, 10**11])}, "correct x_shape, which states 6 x 100,000,000,000"),
        (
            {**SPARSE, "x_shape": np.array([6, -1])},
            "x_shape must hold 2 whole numbers of at least 0: got [6, -1]",
        ),
        ({**SPARSE, "x_shape": np.array([6])}, "x_shape must hold 2 whole numbers of at least 0: got [6]"),
        ({**SPARSE, "x_shape": np.array([6.0, 2])}, "x_shape must hold 2 whole numbers"),
        ({**SPARSE, "x_indices": np.zeros(6), "x_shape": np.array([6, 2])}, "the last two of whole numbers"),
        ({"num_nodes": np.array(10**11)}, "correct num_nodes"),
        ({"num_nodes": np.array(-1)}, "num_nodes must hold a whole number of at least 0: got -1"),
        ({"num_nodes": np.array([6, 6])}, "num_nodes must hold a whole number of at least 0: got [6, 6]"),
        ({"num_nodes": np.array("six")}, "num_nodes must hold a whole number of at least 0: got six"),
    ],
)
def test_sizes_that_a_graph_states_are_checked_before_memory_is_asked_for(
    tmp_path, refused, arrays, told
) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, **ring(**arrays))
    tracemalloc.start()
    with refused("g.npz", told):
        load_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_sizes_that_a_graph_states_rightly_are_taken(tmp_path) -> None:
    np.savez(tmp_path / "g.npz", **ring(**SPARSE, x_shape=np.array([6, 2])))
    assert load_npz(tmp_path / "g.npz").x.tolist() == [[1.0, 0.0]] * 6
    np.savez(tmp_path / "n.npz", **ring(num_nodes=np.array(6)))
    assert load_npz(tmp_path / "n.npz").num_nodes == 6


def test_a_broken_archive_of_a_named_set_is_one_line(tmp_path, monkeypatch, refused) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    (tmp_path / "fsdd").mkdir()
    (path := tmp_path / "fsdd" / "fsdd.npz").write_bytes(npz(npy("(12500000000,)")))
    with refused("fsdd.npz", "states shape (12500000000,)"):
        open_data("fsdd", {})
    np.savez(path, audio=np.zeros(3, np.int16))
    with refused("fsdd.npz must hold audio, offsets", "missing offsets, digit"):
        open_data("fsdd", {})


ARCHIVES = {
    "arrays": ("{}", {"x": np.zeros((8, 2)), "y": np.arange(8) % 2}),
    "sequences": ("sequences:{}", {"x": np.zeros((8, 3, 2)), "y": np.arange(8) % 2}),
    "points": ("points:{}", {"x": np.zeros((8, 3, 2)), "y": np.arange(8) % 2}),
    "graph": ("graph:{}", ring(y=np.arange(6) % 2)),
}


@pytest.mark.parametrize("form", ARCHIVES)
def test_an_archive_with_a_name_twice_or_mistyped_is_refused(form: str, tmp_path: Path, refused) -> None:
    """Of a member that comes twice a reader takes the last; a mistyped one would be left out."""
    path = tmp_path / "a.npz"
    source, held = ARCHIVES[form][0].format(path), ARCHIVES[form][1]
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, array in (*held.items(), ("y", 1 - held["y"])):
            archive.writestr(f"{name}.npy", saved(array))
    with refused("a.npz: every array must come once: 'y' comes twice; save it anew"):
        open_data(source, {})
    np.savez(path, **held, clases=np.array(["a", "b"]))
    with refused("a.npz: arrays must be called", "got 'clases', which is like 'classes'; rename it, or save"):
        open_data(source, {})
    mistyped = "group" if form in ("arrays", "sequences") else "groups"
    remedy = "rename it" if form in ("arrays", "sequences") else "examples of this format are not split by"
    np.savez(path, **held, **{mistyped: np.arange(8)})
    with refused(f"got {mistyped!r}, which is like 'groups'; {remedy}"):
        open_data(source, {})


def test_an_archive_with_two_names_for_one_array_is_refused(tmp_path: Path, refused) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((8, 2)), X=np.ones((8, 2)), y=np.arange(8) % 2)
    with refused("a.npz: every array must come once: 'x' comes twice, the second time as 'X'"):
        open_data(tmp_path / "a.npz", {})
