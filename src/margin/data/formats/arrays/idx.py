"""The IDX format: arrays as LeCun, Cortes & Burges (1998) published MNIST.

Two zero bytes, a byte for the type, a byte for the number of axes, each axis' length as a big-endian
32-bit integer, then the elements, big-endian, the last axis fastest.
"""

import gzip
import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margin.data.assembly import assemble, raw_arrays
from margin.data.data_home import FOUR, either, folder_of, how_to_get, missing
from margin.data.examples import Arrays, Data
from margin.data.files.reading import check_unpacked, reading, regular
from margin.data.formats.arrays.sources import encode_pair
from margin.data.options import option_groups
from margin.data.splits import Split, TargetKind

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The element type that the third byte names, in numpy's words."""

MOST_AXES = 32
"""Axes of an array at most; the format's byte could say 255."""

GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

Pair = tuple[NDArray[Any], NDArray[Any] | None]


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an IDX file, in the machine's byte order; ``.gz`` is unpacked.

    Args:
        path: The file.

    Returns:
        An array of the type and shape that the file states.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The magic number, the type or the length is wrong.
    """
    size = regular(path).stat().st_size
    packed = path.suffix == ".gz"
    with (
        reading(path, "a whole gzip file" if packed else "an IDX file"),
        gzip.open(path) if packed else path.open("rb") as file,
    ):
        start = file.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES:
            shown = start.hex(" ") or "nothing"
            raise ValueError(
                f"{path}: an IDX file starts with 00 00 and a type 08, 09, 0b .. 0e: got {shown}"
            )
        lengths = file.read(4 * start[3])
        if not 0 < start[3] <= MOST_AXES or len(lengths) < 4 * start[3]:
            cut = "has too many axes" if start[3] > MOST_AXES else "is cut short"
            raise ValueError(f"{path}: the IDX header {cut}: {start[3]} axes in {4 + len(lengths)} bytes")
        shape = struct.unpack(f">{start[3]}I", lengths)
        dtype = np.dtype(TYPES[start[2]])
        before, wanted = 4 + len(lengths), math.prod(shape) * dtype.itemsize
        if packed:
            check_unpacked(path, size, wanted, "unpack it with gunzip if it is meant so")
        # One byte more than there should be, so that what is too long is seen without being read
        body = file.read(wanted + 1) if packed or before + wanted == size else b""
        got = before + len(body) if packed else size
        if got != before + wanted:
            more = "at least " * (packed and got > before + wanted)
            raise ValueError(
                f"{path}: an IDX file of shape {shape} and type {dtype.name} has {before + wanted} bytes: "
                f"got {more}{got}"
            )
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


@option_groups("test")
def mnist(*, split: Split = Split(test=0.0)) -> Data:
    """70,000 handwritten digits, 28 x 28 pixels of 256 gray levels, ten classes; 10,000 are its test part.

    The four files lie in ``$MARGIN_DATA/mnist``.

    Args:
        split: Test and validation part, seed.
        val: Share of the validation part among the 60,000 training images.

    Returns:
        Images (N, 1, 28, 28) in the domain [0, 255].

    Raises:
        FileNotFoundError: A file is missing; the message says which and where.

    Reference: LeCun, Bottou, Bengio & Haffner 1998, Gradient-based learning applied to document recognition.
    """
    return _official("mnist", tuple("0123456789"), split)


@option_groups("test")
def fashion_mnist(*, split: Split = Split(test=0.0)) -> Data:
    """70,000 pictures of garments, 28 x 28 pixels of 256 gray levels, ten classes; 10,000 are its test part.

    The four files lie in ``$MARGIN_DATA/fashion-mnist``.

    Args:
        split: Test and validation part, seed.
        val: Share of the validation part among the 60,000 training images.

    Returns:
        Images (N, 1, 28, 28) in the domain [0, 255].

    Raises:
        FileNotFoundError: A file is missing; the message says which and where.

    Reference: Xiao, Rasul & Vollgraf 2017, Fashion-MNIST, arXiv:1708.07747.
    """
    return _official("fashion-mnist", GARMENTS, split)


@option_groups()
def read_images(path: str | os.PathLike[str], *, split: Split = Split()) -> Data:
    """IDX images with their labels: a folder of MNIST's four files, or a file of images.

    Without labels models whose loss reads none train on them. A file ``...images-idx3-ubyte`` has its labels
    beside it in ``...labels-idx1-ubyte``. A folder with the four files keeps its official test part.

    Args:
        path: The folder or the file of images.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.

    Returns:
        Images (N, 1, H, W) or (N, C, H, W); unsigned bytes have the domain [0, 255].

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is no IDX file, or images and labels do not fit.
    """
    path = Path(path)
    pairs = read_pairs(path)
    task: TargetKind = "none" if pairs["train"][1] is None else "classes"
    raw = raw_arrays(str(path), *pairs["train"], task=task, domain=None, test_arrays=pairs.get("test"))
    return replace(assemble(raw, split), name=path.name)


def encode_idx(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays:
    """IDX images, their labels if these lie beside them; of a folder of the four files the test part.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As :func:`encode_pair`.
    """
    path = Path(source)
    pairs = read_pairs(path)
    return encode_pair(pairs.get("test", pairs["train"]), encoding, str(path))


def read_pairs(path: Path) -> dict[str, Pair]:
    """Images and labels of each part: ``train``, and ``test`` where a folder has an official one.

    A file of images without one of labels has none.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is no IDX file.
    """
    if path.is_dir():
        files = {part: tuple(either(path / name) for name in names) for part, names in FOUR.items()}
        if absent := missing(path):
            raise FileNotFoundError(
                f"{path} must hold MNIST's four IDX files (.gz too): missing {', '.join(absent)}"
            )
        return {part: (read_idx(images), read_idx(labels)) for part, (images, labels) in files.items()}
    labels = labels_beside(path)
    return {"train": (read_idx(path), read_idx(labels) if labels.is_file() else None)}


def labels_beside(path: Path) -> Path:
    """The file of labels that belongs to a file of images, whether or not it exists.

    Raises:
        ValueError: The name does not say "images".
    """
    if "images" not in path.name:
        raise ValueError(f"{path}: a file of IDX images must have 'images' in its name, its labels 'labels'")
    plain = path.name.removesuffix(".gz").replace("images", "labels")
    return either(path.with_name(re.sub(r"idx\d", "idx1", plain)))


def _official(name: str, classes: tuple[str, ...], split: Split) -> Data:
    folder = folder_of(name)
    if missing(folder):
        raise FileNotFoundError(how_to_get(name, folder))
    pairs = read_pairs(folder)
    raw = raw_arrays(
        name,
        *pairs["train"],
        task="classes",
        domain=None,
        test_arrays=pairs["test"],
        classes=classes,
    )
    return assemble(raw, split)
