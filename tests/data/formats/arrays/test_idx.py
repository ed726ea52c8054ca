"""IDX files against bytes written by hand; MNIST's four files; every way in which a file can be wrong."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from margin.data.formats.arrays.idx import fashion_mnist, mnist, read_idx, read_images

FOUR = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def images(count: int, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3, 2), dtype=np.uint8)
    return bytes([0, 0, 8, 3]) + struct.pack(">III", count, 3, 2) + pixels.tobytes()


def labels(values: list[int]) -> bytes:
    return bytes([0, 0, 8, 1]) + struct.pack(">I", len(values)) + bytes(values)


def four(folder: Path, *, packed: bool = False) -> Path:
    folder.mkdir(parents=True)
    contents = (images(40), labels([k % 10 for k in range(40)]), images(10, 1), labels(list(range(10))))
    for name, content in zip(FOUR, contents, strict=True):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


CASES = [
    (0x08, "B", [0, 7, 255, 1, 2, 3], np.uint8),
    (0x09, "b", [-128, 127, 0, 1, 2, 3], np.int8),
    (0x0B, "h", [-32768, 32767, 0, 1, 2, 258], np.int16),
    (0x0C, "i", [-(2**31), 2**31 - 1, 0, 1, 2, 66051], np.int32),
    (0x0D, "f", [0.5, -1.25, 0.0, 1.0, 2.0, 3.0], np.float32),
    (0x0E, "d", [0.1, -1e300, 0.0, 1.0, 2.0, 3.0], np.float64),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("code", "letter", "values", "dtype"), CASES)
def test_every_type_is_read_from_its_bytes(code, letter, values, dtype, packed, tmp_path: Path) -> None:
    raw = bytes([0, 0, code, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + struct.pack(f">6{letter}", *values)
    path = tmp_path / ("a.idx.gz" if packed else "a.idx")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    array = read_idx(path)
    assert array.dtype == dtype
    assert array.dtype.isnative
    assert array.tolist() == [values[:3], values[3:]]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "got nothing"),
        (b"\x89PNG", "got 89 50 4e 47"),
        (bytes([0, 0, 7, 1, 0, 0, 0, 0]), "got 00 00 07 01"),
        (bytes([0, 0, 8, 3, 0, 0, 0, 2]), "the IDX header is cut short: 3 axes in 8 bytes"),
        (labels([1, 2, 3])[:-1], "has 11 bytes: got 10"),
        (labels([1, 2, 3]) + b"\0", "has 11 bytes: got 12"),
    ],
)
def test_a_wrong_file_is_refused(raw: bytes, text: str, tmp_path: Path, refused) -> None:
    path = tmp_path / "a.idx"
    path.write_bytes(raw)
    with refused(str(path), text):
        read_idx(path)


def test_a_damaged_archive_is_refused(tmp_path: Path, refused) -> None:
    path = tmp_path / "a-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(images(4))[:-9])
    with refused(str(path), "not a whole gzip file"):
        read_idx(path)
    path.write_bytes(images(4))
    with refused(str(path), "not a whole gzip file"):
        read_idx(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_keeps_its_official_test_part(packed: bool, tmp_path: Path) -> None:
    data = read_images(four(tmp_path / "set", packed=packed), val=0.25)
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 30, "val": 10, "test": 10}
    raw = np.frombuffer(images(10, 1)[16:], np.uint8).reshape(10, 1, 3, 2)
    assert data.splits["test"].inputs[0].tolist() == raw.tolist()
    assert data.splits["test"].targets.tolist() == list(range(10))
    assert data.splits["test"].inputs[0].dtype == torch.float32
    assert (data.domain.low, data.domain.high) == (0, 255)
    assert data.spec["image_size"] == (3, 2)
    assert data.encoding["split"] == {"test": None, "val": 0.25, "seed": 0, "official": True}
    assert any("official test part is kept" in note for note in data.notes)


def test_a_file_of_images_finds_its_labels(tmp_path: Path) -> None:
    (tmp_path / "mine-images-idx3-ubyte").write_bytes(images(40))
    (tmp_path / "mine-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels([k % 2 for k in range(40)])))
    data = read_images(tmp_path / "mine-images-idx3-ubyte")
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 24, "val": 6, "test": 10}
    assert data.encoding["split"]["official"] is False


def test_missing_files_are_named(tmp_path: Path, refused) -> None:
    path = tmp_path / "mine-images-idx3-ubyte"
    path.write_bytes(images(4))
    assert read_images(path, val=0.0).encoding["task"] == "none"  # no labels beside it
    with refused("no such file", error=FileNotFoundError):
        read_idx(tmp_path / "none.idx")
    folder = four(tmp_path / "set")
    (folder / FOUR[2]).unlink()
    with refused(str(folder), f"missing {FOUR[2]}", error=FileNotFoundError):
        read_images(folder)


def test_images_and_labels_must_fit(tmp_path: Path, refused) -> None:
    (tmp_path / "a-images-idx3-ubyte").write_bytes(images(4))
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(labels([0, 1, 0]))
    with refused("one length: got 4 inputs, 3 targets"):
        read_images(tmp_path / "a-images-idx3-ubyte")


@pytest.mark.parametrize(("source", "name"), [(mnist, "mnist"), (fashion_mnist, "fashion-mnist")])
def test_a_set_by_name_says_what_it_needs(source, name, tmp_path: Path, monkeypatch, refused) -> None:
    monkeypatch.delenv("MARGIN_DATA", raising=False)
    with refused(name, "MARGIN_DATA", "not set", *FOUR, error=FileNotFoundError):
        source()
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    with refused(str(tmp_path / name), *FOUR, error=FileNotFoundError):
        source()
    folder = four(tmp_path / name)
    (folder / FOUR[1]).unlink()
    with refused(str(folder), f"missing {FOUR[1]}", error=FileNotFoundError):
        source()


def test_a_label_beyond_the_ten_classes_is_refused(tmp_path: Path, monkeypatch, refused) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    folder = four(tmp_path / "fashion-mnist")
    (folder / FOUR[3]).write_bytes(labels([0, 1, 2, 3, 4, 5, 6, 7, 8, 10]))
    with refused("labels must be 0 .. 9: got 10 at index 9"):
        fashion_mnist()


def test_names_of_garments(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MARGIN_DATA", str(tmp_path))
    four(tmp_path / "fashion-mnist")
    data = fashion_mnist(val=0.25)
    assert data.encoding["classes"][0] == "T-shirt/top"
    assert data.encoding["classes"][9] == "Ankle boot"


def test_mnist_is_mnist(shared: Path, monkeypatch) -> None:
    # First labels 5 0 4 1 9 and 7 2 1 0 4, mean .1307 and deviation .3081 of x / 255 are well known.
    monkeypatch.setenv("MARGIN_DATA", str(shared))
    data = mnist(val=0.0)
    assert {name: len(part) for name, part in data.splits.items()} == {"train": 60000, "test": 10000}
    assert data.splits["train"].targets[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.splits["test"].targets[:5].tolist() == [7, 2, 1, 0, 4]
    assert data.preprocess.mean.item() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert data.preprocess.std.item() / 255 == pytest.approx(0.3081, abs=5e-5)
    assert data.splits["train"].inputs[0].shape == (60000, 1, 28, 28)
