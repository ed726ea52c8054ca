"""Arrays as data: numpy arrays and tensors in memory, ``.npz`` and ``.npy`` files. Nothing is unpickled.

New ones must have the shape, the classes and the task of the run's own.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import NDArray

from margin.data.arrays import Array, fit_shape, inputs_of
from margin.data.assembly import Schema, assemble, raw_arrays, raw_of_first, with_groups
from margin.data.examples import Arrays, Data
from margin.data.files.archives import GROUPS, array_in, arrays_in, names_in, unread_in
from margin.data.files.reading import classes_of
from margin.data.formats.arrays.mapped import Mapped, checked, mapped_data
from margin.data.formats.arrays.mask_arrays import TASK as MASKED
from margin.data.formats.arrays.mask_arrays import are_masks, labeled_as, masked_images
from margin.data.options import option_groups
from margin.data.splits import Split, TargetKind

MOST_BYTES = 2**30
"""Inputs that take no more than this are kept in memory."""


@option_groups()
def from_arrays(  # more than 7 parameters: they are the options of the source
    x: Array,
    y: Array,
    *,
    name: str = "arrays",
    task: TargetKind | None = None,
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
    test_arrays: tuple[Array, Array] | None = None,
    groups: Array | None = None,
) -> Data:
    """Examples from inputs and targets in memory.

    Integers, strings and booleans mean classes, floats mean values. Integer labels must be 0 .. K-1,
    each of them present. Images of unsigned bytes have the domain [0, 255].

    Args:
        x: Inputs (N, d), (N, H, W) or (N, C, H, W); float64 stays float64, all else becomes float32.
        y: Targets (N,); or masks (N, H, W) of images, whole numbers: a class for every pixel.
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted; none leaves
            them out.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        test_arrays: Inputs and targets of an official test part, which is kept.
        groups: The group of each example, as a patient, numbers or names (N,): no group lies in two of the
            parts that are cut.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: Shapes do not fit, a number is not finite, or labels are out of range.
    """
    if task is None and are_masks(x, y):
        return masked_images(name, x, y, domain=domain, split=split, test_arrays=test_arrays, groups=groups)
    raw = raw_arrays(name, x, y, task=task, domain=domain, test_arrays=test_arrays)
    raw, parts = with_groups(raw, groups, split)
    return assemble(raw, split, parts)


@option_groups()
def from_inputs(
    x: Array | tuple[Array, None],
    *,
    name: str = "arrays",
    domain: tuple[float, float] | None = None,
    split: Split = Split(),
    test_array: Array | None = None,
    groups: Array | None = None,
) -> Data:
    """Examples from inputs alone in memory: models whose loss reads no target train on them.

    Args:
        x: Inputs (N, d), (N, H, W) or (N, C, H, W), or a pair of them and None; float64 stays float64, all
            else becomes float32.
        name: What messages and records call the data.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.
        test_array: Inputs of an official test part, which is kept.
        groups: The group of each example, as a patient, numbers or names (N,): no group lies in two of the
            parts that are cut.

    Raises:
        ValueError: As :func:`from_arrays`.
    """
    inputs: Array = x[0] if isinstance(x, tuple) else x
    official = None if test_array is None else (test_array, None)
    raw = raw_arrays(name, inputs, None, task=None, domain=domain, test_arrays=official)
    raw, parts = with_groups(raw, groups, split)
    return assemble(raw, split, parts)


@option_groups()
def read_arrays(
    path: str | os.PathLike[str],
    *,
    task: TargetKind | None = None,
    domain: tuple[float, float] | None = None,
    memory: Literal["auto", "always", "never"] = "auto",
    group: str = GROUPS,
    split: Split = Split(),
) -> Data:
    """Examples from a file of arrays: ``.npz`` with x and y, or ``NAME.npy`` with ``NAME_y.npy`` beside it.

    Without y there are no targets, and models whose loss reads none train on the inputs. An ``.npz`` may hold
    x_test and y_test, an official test part, which is kept, and classes, the names of the classes. Where an
    array groups, or ``NAME_groups.npy``, says the group of each example, no group lies in two of the parts
    that are cut. An array of another name is not read, which is said.

    Args:
        path: The file.
        task: Whether targets are classes or values, where their type does not say what is wanted; none leaves
            them out.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        memory: Whether the inputs of an ``.npy`` are kept in memory (where they take at most 1 GiB, always,
            never), or stay in the file and are read when they are taken; an ``.npz`` is always in memory.
        group: The array that says the group of each example, as a patient; groups by default.
        split: Test and validation part, seed.
        test: Share of the test part; without effect where there is an official one.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no file of arrays, or as :func:`from_arrays`.
    """
    path = Path(path)
    found = load_arrays(path, mapped=True, group=group)
    if task == "none":
        found = {key: array for key, array in found.items() if key not in ("y", "y_test")}
    official, classes = official_of(found, path), classes_of(found.get("classes", ()), path)
    if _stays(found["x"], path, memory):
        raw = raw_of_first(str(path), found["x"][:1], found.get("y"), len(found["x"]), task, domain)
        raw, _ = with_groups(raw, found.get(group), split, group)
        return replace(mapped_data(str(path), found["x"], raw, split), name=path.name)
    if path.suffix == ".npy":
        found["x"] = array_in(path)  # pages of a mapped file would stay beside what is copied from them
    if task is None and are_masks(found["x"], found.get("y")):
        data = masked_images(
            str(path),
            found["x"],
            found["y"],
            domain=domain,
            split=split,
            test_arrays=official,
            groups=found.get(group),
            classes=classes,
        )
        return replace(data, name=path.name)
    raw = raw_arrays(
        str(path),
        found["x"],
        found.get("y"),
        task=task,
        domain=domain,
        test_arrays=official,
        classes=classes,
    )
    alone = names_in(path) if path.suffix == ".npz" else []  # one array alone is the inputs
    if len(alone) != 1:
        raw = replace(raw, notes=(*raw.notes, *unread_in(path, (*ARRAYS, group), SAME)))
    raw, parts = with_groups(raw, found.get(group), split, group)
    return replace(assemble(raw, split, parts), name=path.name)


ARRAYS = ("x", "y", "x_test", "y_test", "classes")
SAME = {"X": "x", "X_test": "x_test"}


def official_of(found: Mapping[str, NDArray[Any]], path: Path) -> tuple[NDArray[Any], Any] | None:
    """Inputs and targets of the official test part of a file; no targets where the file has none at all.

    Raises:
        ValueError: It has one of them alone.
    """
    if ("y_test" in found) != ("x_test" in found and "y" in found):
        raise ValueError(f"{path}: a test part needs both x_test and y_test: got {', '.join(found)}")
    return (found["x_test"], found.get("y_test")) if "x_test" in found else None


def _stays(x: NDArray[Any], path: Path, memory: str) -> bool:
    """Whether the inputs of a file stay there."""
    if path.suffix != ".npy" or memory == "always":
        return False
    return memory == "never" or x.nbytes > MOST_BYTES


def load_arrays(
    path: Path, *, mapped: bool = False, group: str = GROUPS, more: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` or ``.npy`` file by the names x, y, x_test, y_test, classes, groups.

    Args:
        path: The file.
        mapped: Whether the inputs of an ``.npy`` stay in the file until they are read.
        group: The array of groups.
        more: Other arrays that an ``.npz`` may hold.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no file of arrays, or holds pickled objects, which are never read; an array has
            a name that is a known one mistyped, or the one of groups is not there.
    """
    if path.suffix == ".npy":
        found = {"x": array_in(path, mapped=mapped)}
        beside = {name: path.with_name(f"{path.stem}_{name}.npy") for name in ("y", group)}
        found |= {name: array_in(file) for name, file in beside.items() if file.is_file()}
    else:
        found = arrays_in(path, {*ARRAYS, GROUPS, group, *more}, SAME)
    if "x" not in found and path.suffix != ".npy" and len(names := names_in(path)) == 1 and not found:
        found = {"x": arrays_in(path, names)[names[0]]}  # one array alone can be nothing else
    if "x" not in found:
        raise ValueError(f"{path}: the inputs must be an array 'x' or 'X': got {', '.join(names_in(path))}")
    if group != GROUPS and group not in found:
        raise ValueError(
            f"{path}: --data.group must name the array that says the group of each example, as {GROUPS}: "
            f"got {group!r}, and the arrays {', '.join(found)}"
        )
    return found


def encode_pair(pair: Any, encoding: Mapping[str, Any], name: str = "arrays", *, copy: bool = True) -> Arrays:
    """Inputs and targets ``(x, y)``, or ``(x, None)``; without ``copy`` perhaps the very inputs.

    Raises:
        ValueError: The shape differs, a label is out of range or unknown, or a number is not finite.
    """
    x, y = pair
    schema = Schema.from_json(encoding)
    inputs = fit_shape(inputs_of(x, name, copy=copy), schema.shape, name).to(schema.dtype)
    if schema.task == MASKED:
        return labeled_as(Arrays((inputs,)), y, encoding, name)
    return Arrays((inputs,), schema.targets_if(y, len(inputs), name))


def encode_file(source: str | os.PathLike[str], encoding: Mapping[str, Any]) -> Arrays | Mapped:
    """A file of arrays; where there is an official test part, that part.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As :func:`encode_pair`.
    """
    path = Path(source)
    found = load_arrays(path, mapped=True)
    if path.suffix == ".npy":
        if found["x"].nbytes > MOST_BYTES:
            return _mapped(found["x"], found.get("y"), encoding, str(source))
        found["x"] = array_in(path)
    part = "_test" if "x_test" in found else ""
    return encode_pair((found[f"x{part}"], found.get(f"y{part}")), encoding, str(source), copy=False)


def _mapped(x: NDArray[Any], y: Any, encoding: Mapping[str, Any], name: str) -> Mapped:
    """Inputs that are read when they are taken, each checked once before."""
    schema = Schema.from_json(encoding)
    fit_shape(checked(x, name)[0], schema.shape, name)
    return Mapped(x, torch.arange(len(x)), schema.targets_if(y, len(x), name), schema.dtype)
