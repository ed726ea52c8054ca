"""Sets that no package ships: their files, and the folder ``$MARGIN_DATA/NAME`` where they lie."""

import os
from collections.abc import Sequence
from pathlib import Path

FOUR = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""The names of MNIST's four files; each may end in ``.gz``."""

PLACED = ("mnist", "fashion-mnist")
"""The sets of four such files each."""

LYING = {
    "fsdd": ("fsdd/fsdd.npz",),
    "tinyshakespeare": ("tinyshakespeare/input.txt",),
    "multi30k": tuple(
        f"multi30k/{part}.{language}"
        for part in ("train", "val", "test_2016_flickr")
        for language in ("de", "en")
    ),
    "cora": ("planetoid/cora.npz",),
    "citeseer": ("planetoid/citeseer.npz",),
    "amazon-photo": ("amazon-photo/amazon_photo.npz",),
    **{name: (f"graphclass/{name.upper()}",) for name in ("mutag", "proteins", "ptc", "enzymes")},
    "modelnet2": ("modelnet2/points.npz",),
    "shapenet10": ("shapenet10/points.npz",),
}
"""Where the files of further sets lie in the folder that MARGIN_DATA names."""

FETCHED = ("fashion-mnist",)
"""Those that ``margin data get`` fetches."""


def folder_of(name: str) -> Path:
    """The folder of a set, whether or not it exists.

    Raises:
        FileNotFoundError: The environment variable MARGIN_DATA is not set.
    """
    root = os.environ.get("MARGIN_DATA", "")
    if not root:
        files = ", ".join(file for pair in FOUR.values() for file in pair)
        raise FileNotFoundError(
            f"{name} needs its IDX files (.gz too) in a folder {name!r} of the folder that the environment "
            f"variable MARGIN_DATA names, which is not set: {files}"
        )
    return Path(root) / name


def either(path: Path) -> Path:
    """The path, or the same with ``.gz`` where only that exists."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def placed(name: str, files: Sequence[str] = ()) -> list[Path]:
    """The files of a set in the folder that MARGIN_DATA names, each possibly packed as ``.gz``.

    Args:
        name: The set.
        files: Where they lie in that folder; as :data:`LYING` says if not given.

    Raises:
        FileNotFoundError: MARGIN_DATA is not set, or a file is missing.
    """
    files = files or LYING[name]
    root = os.environ.get("MARGIN_DATA", "")
    if not root:
        raise FileNotFoundError(
            f"{name} needs {', '.join(files)} (.gz too) in the folder that the environment variable "
            "MARGIN_DATA names, which is not set"
        )
    paths = [Path(root) / file for file in files]
    if absent := [path.name for path in paths if not either(path).exists()]:
        shown = ", ".join(map(str, paths))
        raise FileNotFoundError(
            f"{name} needs {shown} (.gz too; in $MARGIN_DATA): missing {', '.join(absent)}"
        )
    return [either(path) for path in paths]


def lies_there(name: str) -> bool:
    """Whether every file of a set of :data:`LYING` is in the folder that MARGIN_DATA names."""
    try:
        return bool(placed(name))
    except FileNotFoundError:
        return False


def missing(folder: Path) -> list[str]:
    """Which of the four files a folder lacks."""
    return [file for pair in FOUR.values() for file in pair if not either(folder / file).is_file()]


def how_to_get(name: str, folder: Path) -> str:
    """What a message says of a set whose files are not there."""
    files = ", ".join(missing(folder))
    fetch = f"; margin data get {name} fetches them" if name in FETCHED else ""
    return f"{name} needs its IDX files (.gz too) in {folder} ($MARGIN_DATA/{name}): missing {files}{fetch}"
