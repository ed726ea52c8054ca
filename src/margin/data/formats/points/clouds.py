"""Sets and point clouds as data: arrays in memory, ``.npz``, class folders of ``.ply``, ``.xyz``, ``.npy``.

An ``.npz`` holds x (N, M, k), or all elements one set behind another (E, k) with ``sizes`` (N,), or x with a
``mask`` (N, M); y (N,), or (N, M) for a class of each element; ``classes``, their names; and ``test``, where
it has an official test part: true or false for each set.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import Array, as_numpy, check_finite, listed
from margin.data.examples import Arrays, Data
from margin.data.files.archives import arrays_in, names_in, unread_in
from margin.data.files.reading import classes_in, classes_of, plain, renamed
from margin.data.formats.points.files import ENDINGS, read_points
from margin.data.formats.points.sets import RawSets, Scale, Sets, SetTask, new_sets, set_data
from margin.data.options import option_groups
from margin.data.splits import Split


@option_groups()
def from_clouds(  # more than 7 parameters: they are the options of the source
    x: Array | Sequence[Array],
    y: Array,
    *,
    name: str = "sets",
    mask: Array | None = None,
    task: SetTask | None = None,
    scale: Scale = "none",
    points: int | None = None,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Sets in memory with a target each.

    Args:
        x: One array (N, M, k) of sets of one size, or a list of arrays (M_i, k); (0, k) is a set without
            elements.
        y: Targets (N,); with task point_classes (N, M), a class for each element.
        name: What messages and records call the data.
        mask: Which elements are there (N, M), where x is one array.
        task: Whether targets are classes, values, or classes of elements.
        scale: sphere centers each set and divides it by its largest radius; only the first three numbers of
            an element are coordinates.
        points: Elements drawn of each set by the split's seed; None keeps all.
        domain: Least and largest value that a coordinate may take, in its own unit; for sets of one size.
        split: Test and validation part, seed.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: Widths differ, a number is not finite, or targets do not fit.
    """
    raw = RawSets(
        name=name,
        sets=sets_from(x, mask, name),
        targets=y,
        task=task,
        scale=scale,
        points=points,
        domain=domain,
    )
    return set_data(raw, split)


@option_groups()
def read_clouds(
    path: str | os.PathLike[str],
    *,
    task: SetTask | None = None,
    scale: Scale | None = None,
    points: int | None = None,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
) -> Data:
    """Point clouds in class folders, ``FOLDER/<class>/<cloud>``, or sets in an ``.npz``.

    With ``FOLDER/train/<class>`` and ``FOLDER/test/<class>`` or ``FOLDER/val/<class>`` the parts are the
    folder's own and are kept.

    Args:
        path: The folder or the file.
        task: Whether targets are classes, values, or classes of elements; a folder has classes.
        scale: Whether each cloud is centered and scaled to the unit ball; by default a folder's are.
        points: Elements drawn of each set by the split's seed; None keeps all.
        domain: Least and largest value that a coordinate may take, in its own unit; for sets of one size.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        val: Share of the validation part; without effect where there is an official one.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: A file cannot be read, or the widths of two differ; the message names file and point.
    """
    path = Path(path)
    given: dict[str, Any] = {"task": task, "points": points, "domain": domain}
    if path.is_dir():
        return set_data(_folder(path, scale or "sphere", given), split)
    if path.suffix in ENDINGS and path.is_file():
        raise ValueError(f"{path}: training needs a folder with class folders of clouds: got one file")
    found = _load(path)
    if "y" not in found:
        raise ValueError(f"{path}: training needs an array y of targets: got {', '.join(found)}")
    raw = RawSets(
        name=path.name,
        sets=_sets_of(found, str(path)),
        targets=found["y"],
        classes=classes_of(found.get("classes", ()), path),
        official=_marked(found, str(path)),
        scale=scale or "none",
        notes=unread_in(path, ARRAYS, SAME),
        **given,
    )
    return set_data(raw, split)


def encode_clouds(source: Any, encoding: Mapping[str, Any]) -> Arrays | Sets:
    """New sets by the record of a finished run: a file of points, a folder, an ``.npz``, ``(x, y)``, ``x``.

    A folder holds clouds, or class folders of them; with a folder ``test`` in it that part is taken. Of an
    ``.npz`` with an official test part, that part.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The width differs from the run's, or a class is unknown.
    """
    if not isinstance(source, str | os.PathLike):
        x, y = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        return new_sets(sets_from(x, None, "sets"), y, encoding, "sets")
    path = Path(source)
    if path.is_dir():
        files, classes = _files(path / "test" if (path / "test").is_dir() else path)
        strange = [one for one in classes if one not in encoding["classes"]]
        if strange:
            known = listed(encoding["classes"])
            raise ValueError(f"{path}: every class must be one of {known}: got the folder {strange[0]!r}")
        words = np.array([plain(file.parent.name) for file in files]) if classes else None
        return new_sets(_read_all(files), words, encoding, str(path))
    if path.suffix != ".npz":
        return new_sets(_read_all([path]), None, encoding, str(path))
    found = _load(path)
    sets, targets = _sets_of(found, str(path)), found.get("y")
    chosen = _marked(found, str(path)).get("test")
    if chosen is not None:
        sets, targets = sets.chosen(chosen), None if targets is None else targets[chosen.numpy()]
    return new_sets(sets, targets, encoding, str(path))


def cloud_files(source: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files of the clouds that :func:`encode_clouds` reads of a file or folder, in its order."""
    path = Path(source)
    if not path.is_dir():
        return (path,)
    return tuple(_files(path / "test" if (path / "test").is_dir() else path)[0])


def sets_from(x: Array | Sequence[Array], mask: Array | None, name: str) -> Sets:
    """Sets of one array (N, M, k), with or without a mask, or of a list of arrays (M_i, k).

    Raises:
        ValueError: There are none, a set's elements have another width, or a number is not finite; the
            message names the set and the element, counted from 0.
    """
    if isinstance(x, Tensor | np.ndarray):
        array = as_numpy(x, name, "sets")
        if array.ndim != 3 or array.dtype.kind not in "iuf" or len(array) == 0:
            raise ValueError(
                f"{name}: sets must be numbers of shape (sets, elements, numbers): got {array.shape}; "
                "sets of several sizes are a list of arrays (elements, numbers)"
            )
        if mask is None:
            return _joined([*array], name)
        there = as_numpy(mask, name, "mask")
        if there.shape != array.shape[:2] or there.dtype != np.bool_:
            raise ValueError(
                f"{name}: a mask must be true or false of shape {array.shape[:2]}: "
                f"got {there.shape} {there.dtype}"
            )
        return _joined([one[here] for one, here in zip(array, there, strict=True)], name)
    if mask is not None:
        raise ValueError(f"{name}: a mask belongs to one array of sets: the list has sizes of its own")
    return _joined([as_numpy(one, f"{name}, set {k}", "elements") for k, one in enumerate(x)], name)


def _joined(sets: Sequence[NDArray[Any]], name: str) -> Sets:
    if len(sets) == 0:
        raise ValueError(f"{name}: there must be at least one set: got none")
    first = sets[0]
    for k, one in enumerate(sets):
        if one.ndim != 2 or one.dtype.kind not in "iuf" or one.shape[1] == 0:
            raise ValueError(
                f"{name}, set {k}: a set must be numbers of shape (elements, numbers): got {one.shape}"
            )
        if one.shape[1] != first.shape[1]:
            raise ValueError(
                f"{name}, set {k}: every element must have {first.shape[1]} numbers, as in set 0: "
                f"got {one.shape[1]}"
            )
        check_finite(one, f"{name}, set {k}", "number")
    double = any(one.dtype == np.float64 for one in sets)
    elements = np.concatenate(sets).astype(np.float64 if double else np.float32)
    return Sets(torch.from_numpy(elements), torch.tensor([len(one) for one in sets]))


# files


ARRAYS = ("x", "y", "sizes", "mask", "test", "classes")
SAME = {"X": "x", "points": "x"}


def _load(path: Path) -> dict[str, NDArray[Any]]:
    found = arrays_in(path, ARRAYS, SAME)
    if "x" not in found:
        raise ValueError(f"{path}: sets must be an array 'x': got {', '.join(names_in(path))}")
    return found


def _sets_of(found: Mapping[str, NDArray[Any]], name: str) -> Sets:
    if "sizes" not in found:
        x = found["x"].astype(np.float32) if found["x"].dtype == np.float16 else found["x"]
        return sets_from(x, found.get("mask"), name)
    sizes = found["sizes"]
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 0).any() or sizes.sum() != len(found["x"]):
        raise ValueError(f"{name}: sizes must be whole numbers that add up to {len(found['x'])} elements")
    return _joined(np.split(found["x"], np.cumsum(sizes)[:-1]), name)


def _marked(found: Mapping[str, NDArray[Any]], name: str) -> dict[str, Tensor]:
    """The parts that an array ``test`` of true and false says."""
    if "test" not in found:
        return {}
    mask = found["test"]
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise ValueError(f"{name}: test must be true or false for each set: got {mask.shape} of {mask.dtype}")
    chosen = torch.from_numpy(mask)
    return {"train": (~chosen).nonzero()[:, 0], "test": chosen.nonzero()[:, 0]}


def _folder(folder: Path, scale: Scale, given: Mapping[str, Any]) -> RawSets:
    own = {part: folder / part for part in ("train", "val", "test") if (folder / part).is_dir()}
    places = own if "train" in own else {"": folder}
    files: list[Path] = []
    classes: tuple[str, ...] = ()
    official: dict[str, Tensor] = {}
    for part, place in places.items():
        listed_files, found = _files(place)
        if not found:
            raise ValueError(f"{place}: training needs class folders, FOLDER/<class>/<cloud>: got none")
        classes = tuple(sorted({*classes, *found}))
        if part:
            official[part] = torch.arange(len(files), len(files) + len(listed_files))
        files += listed_files
    return RawSets(
        name=folder.name,
        sets=_read_all(files),
        targets=np.array([plain(file.parent.name) for file in files]),
        classes=classes,
        notes=renamed(file.parent.name for file in files),
        official=official,
        scale=scale,
        **given,
    )


def _files(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The files of clouds in a folder and their classes: those of class folders, else its own and ()."""
    classes = [one for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    places = classes or [folder]
    files = [f for place in places for f in sorted(place.iterdir()) if f.suffix.lower() in ENDINGS]
    if not files:
        raise ValueError(f"{folder}: a folder of clouds must hold files {', '.join(ENDINGS)}: got none")
    return files, tuple(classes_in(classes).values())


def _read_all(files: Sequence[Path]) -> Sets:
    clouds = [read_points(file) for file in files]
    for file, cloud in zip(files, clouds, strict=True):
        if cloud.shape[1] != clouds[0].shape[1]:
            raise ValueError(
                f"{file}: every point must have {clouds[0].shape[1]} numbers, as in {files[0].name}: "
                f"got {cloud.shape[1]}"
            )
    elements = torch.from_numpy(np.concatenate(clouds)).float()
    return Sets(elements, torch.tensor([len(cloud) for cloud in clouds]))
