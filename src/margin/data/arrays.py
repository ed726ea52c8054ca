"""Examples from arrays: numpy arrays and tensors in memory, ``.npz`` and ``.npy`` files.

Inputs are (N, d), (N, H, W) or (N, C, H, W), channels first; targets are (N,). Nothing is unpickled.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.assembly import Raw, TaskName, assemble, cut
from margin.data.examples import Data
from margin.data.files.archives import array_in, arrays_in, names_in
from margin.data.formats.tables.grouping import grouped
from margin.data.formats.tables.wide import wide_of
from margin.data.splits import Split, check_classes

Array = NDArray[Any] | Tensor | Sequence[Any]
"""What is taken for an array: numpy's, a tensor, nested lists of numbers."""

_CHECKED = 2**20
"""Numbers that are checked at a time: a mask of all would be a quarter of them."""

BYTES = (0.0, 255.0)
"""The domain of an image of unsigned bytes."""


def from_arrays(  # more than 7 parameters: they are the options of the source
    x: Array,
    y: Array,
    *,
    name: str = "arrays",
    task: TaskName | None = None,
    domain: tuple[float, float] | None = None,
    test: float = 0.25,
    val: float = 0.15,
    split_seed: int = 0,
    test_arrays: tuple[Array, Array] | None = None,
    groups: Array | None = None,
) -> Data:
    """Examples from inputs and targets in memory.

    Integers, strings and booleans mean classes, floats mean values. Integer labels must be 0 .. K-1,
    each of them present. Images of unsigned bytes have the domain [0, 255].

    Args:
        x: Inputs (N, d), (N, H, W) or (N, C, H, W); float64 stays float64, all else becomes float32.
        y: Targets (N,).
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        test: Share of the test part; without effect where there is an official one.
        val: Share of the validation part.
        split_seed: Seed of the random split.
        test_arrays: Inputs and targets of an official test part, which is kept.
        groups: The group of each example, as a patient, numbers or names (N,): no group lies in two of the
            parts that are cut.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: Shapes do not fit, a number is not finite, or labels are out of range.
    """
    raw = raw_arrays(name, x, y, task=task, domain=domain, test_arrays=test_arrays)
    split = Split(test=test, val=val, seed=split_seed)
    raw, parts = with_groups(raw, groups, split)
    return assemble(raw, split, parts)


def with_groups(raw: Raw, groups: Array | None, split: Split) -> tuple[Raw, dict[str, Tensor] | None]:
    """The examples with their groups, and the parts that these allow; None where there are no groups.

    Raises:
        ValueError: There is not one group for each example, or the groups are neither numbers nor names.
    """
    if groups is None:
        return raw, None
    found = as_numpy(groups, raw.name, "groups")
    if found.shape != (len(raw.targets),) or found.dtype.kind == "f":
        raise ValueError(
            f"{raw.name}: groups must be whole numbers or names, of shape ({len(raw.targets)},): got "
            f"{found.dtype} of shape {found.shape}"
        )
    codes = torch.from_numpy(np.unique(found, return_inverse=True)[1])
    raw = replace(raw, groups=codes)
    parts = cut(raw, split)
    notes = raw.notes
    if raw.official is not None:
        notes = (
            *notes,
            "the groups of the official test part are not known: its examples count as independent",
        )
    return replace(
        raw, encoding={**raw.encoding, "group": grouped("groups", codes, parts)}, notes=notes
    ), parts


def read_arrays(
    path: str | os.PathLike[str],
    *,
    task: TaskName | None = None,
    domain: tuple[float, float] | None = None,
    memory: Literal["auto", "always", "never"] = "auto",
    test: float = 0.25,
    val: float = 0.15,
    split_seed: int = 0,
) -> Data:
    """Examples from a file of arrays: ``.npz`` with x and y, or ``NAME.npy`` with ``NAME_y.npy`` beside it.

    An ``.npz`` may hold x_test and y_test, an official test part, which is kept, and classes, the
    names of the classes. Where an array groups, or ``NAME_groups.npy``, says the group of each example, no
    group lies in two of the parts that are cut.

    Args:
        path: The file.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        domain: Least and largest value that a coordinate of an input may take, in its own unit.
        memory: Whether the inputs of an ``.npy`` are kept in memory (where they take at most 1 GiB, always,
            never), or stay in the file and are read when they are taken; an ``.npz`` is always in memory.
        test: Share of the test part; without effect where there is an official one.
        val: Share of the validation part.
        split_seed: Seed of the random split.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no file of arrays, or as :func:`from_arrays`.
    """
    path = Path(path)
    found = load_arrays(path, mapped=True)
    if "y" not in found:
        where = f"{path.stem}_y.npy beside it" if path.suffix == ".npy" else "an array 'y' in it"
        raise FileNotFoundError(f"{path}: training needs targets, {where}: got {', '.join(found)}")
    if ("x_test" in found) != ("y_test" in found):
        raise ValueError(f"{path}: a test part needs both x_test and y_test: got {', '.join(found)}")
    official = (found["x_test"], found["y_test"]) if "x_test" in found else None
    classes = tuple(str(name) for name in found.get("classes", ()))
    split = Split(test=test, val=val, seed=split_seed)
    if _stays(found["x"], path, memory):
        from margin.data.files.mapped import mapped_data, raw_of_first

        raw = raw_of_first(str(path), found["x"], found["y"], task=task, domain=domain)
        raw, _ = with_groups(raw, found.get("groups"), split)
        return replace(mapped_data(str(path), found["x"], raw, split), name=path.name)
    if path.suffix == ".npy":
        found["x"] = array_in(path)  # pages of a mapped file would stay beside what is copied from them
    raw = raw_arrays(
        str(path), found["x"], found["y"], task=task, domain=domain, test_arrays=official, classes=classes
    )
    raw, parts = with_groups(raw, found.get("groups"), split)
    return replace(assemble(raw, split, parts), name=path.name)


def raw_arrays(
    name: str,
    x: Array,
    y: Array,
    *,
    task: TaskName | None,
    domain: tuple[float, float] | None,
    test_arrays: tuple[Array, Array] | None,
    classes: Sequence[str] = (),
) -> Raw:
    """The checked examples of arrays, before they are cut; ``classes`` names them where names are known."""
    seen = seen_as(inputs_of(x, name, copy=False))  # what is cut into parts is copied then
    inputs, notes = seen.inputs, list(seen.notes)
    targets, task, classes = targets_of(y, len(inputs), name, task, classes)
    wide, said = wide_of(inputs, targets, task)
    official = None
    if test_arrays is not None:
        test_name = f"{name}, test part"
        test_inputs = fit_shape(inputs_of(test_arrays[0], test_name), inputs.shape[1:], test_name)
        official = (test_inputs, known_targets(test_arrays[1], len(test_inputs), test_name, task, classes))
        notes.append("the official test part is kept")
    return Raw(
        name=name,
        inputs=inputs,
        targets=targets,
        task=task,
        classes=tuple(classes),
        dtype=torch.float64 if wide or inputs.dtype == torch.float64 else torch.float32,
        wide=wide,
        domain=seen.domain if domain is None else domain,
        official=official,
        encoding=seen.encoding if domain is None else {},
        notes=(*notes, *said),
    )


MOST_BYTES = 2**30
"""Inputs that take no more than this are kept in memory."""


def _stays(x: NDArray[Any], path: Path, memory: str) -> bool:
    """Whether the inputs of a file stay there."""
    if path.suffix != ".npy" or memory == "always":
        return False
    return memory == "never" or x.nbytes > MOST_BYTES


class Seen(NamedTuple):
    """What inputs are taken for: images of one channel get its axis, bytes a domain."""

    inputs: Tensor
    domain: tuple[float, float] | None
    encoding: dict[str, Any]
    notes: tuple[str, ...]


def seen_as(inputs: Tensor) -> Seen:
    """Checked inputs (N, d), (N, H, W) or (N, C, H, W) as what their shape and type say."""
    notes: tuple[str, ...] = ()
    if inputs.ndim == 3:
        inputs = inputs[:, None]
        notes = ("inputs of shape (N, {}, {}) are images of one channel".format(*inputs.shape[2:]),)
    if inputs.dtype != torch.uint8 or inputs.ndim != 4:
        return Seen(inputs, None, {}, notes)
    return Seen(inputs, BYTES, {"pixels": "bytes"}, (*notes, "images of unsigned bytes lie in [0, 255]"))


def load_arrays(path: Path, *, mapped: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` or ``.npy`` file by the names x, y, x_test, y_test, classes, groups.

    Args:
        path: The file.
        mapped: Whether the inputs of an ``.npy`` stay in the file until they are read.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no file of arrays, or holds pickled objects, which are never read.
    """
    if path.suffix == ".npy":
        found = {"x": array_in(path, mapped=mapped)}
        beside = {name: path.with_name(f"{path.stem}_{name}.npy") for name in ("y", "groups")}
        return found | {name: array_in(file) for name, file in beside.items() if file.is_file()}
    names = {"X": "x", "X_test": "x_test"}
    found = arrays_in(path, {"x", "y", "x_test", "y_test", "classes", "groups", *names})
    if not {"x", "X"} & set(found):
        shown = ", ".join(names_in(path))
        raise ValueError(f"{path}: the inputs must be an array 'x' or 'X': got {shown}")
    return {names.get(key, key): array for key, array in found.items()}


def as_numpy(array: Any, name: str, what: str, *, copy: bool = True) -> NDArray[Any]:
    """A copy in the machine's byte order: what the user changes later does not reach the data.

    Without ``copy`` it may be the array itself, where that is as torch wants it: writable and contiguous.
    """
    if isinstance(array, Tensor):
        found = array.detach().cpu().numpy()
        return found.copy() if copy else found
    try:
        found = np.asarray(array)
    except ValueError:
        raise ValueError(f"{name}: the {what} must be one array: got rows of different lengths") from None
    if found.dtype == object and all(isinstance(item, str) for item in found.flat):
        found = found.astype(str)
    if found.dtype.kind not in "buifU":
        raise ValueError(f"{name}: the {what} must be numbers or names: got type {found.dtype}")
    plain = found.flags.writeable and found.flags.c_contiguous
    return found.astype(found.dtype.newbyteorder("="), copy=copy or not plain)


def inputs_of(x: Array, name: str, *, copy: bool = True) -> Tensor:
    """Inputs as a tensor of uint8, float32 or float64, checked; without ``copy`` perhaps those given.

    Raises:
        ValueError: There are none, the shape is not (N, d), (N, H, W) or (N, C, H, W), or a number is
            not finite.
    """
    array = as_numpy(x, name, "inputs", copy=copy)
    if array.dtype.kind == "U":
        raise ValueError(f"{name}: the inputs must be numbers: got text")
    if array.ndim not in (2, 3, 4):
        remedy = "; pass x[:, None]" if array.ndim == 1 else ""
        raise ValueError(
            f"{name}: inputs must have shape (N, d), (N, H, W) or (N, C, H, W): got {array.shape}{remedy}"
        )
    if array.size == 0:
        raise ValueError(f"{name}: there must be at least one example and one feature: got {array.shape}")
    if array.ndim == 4 and array.shape[3] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
        raise ValueError(
            f"{name}: images must have their channels first, (N, C, H, W): got {array.shape}; "
            "pass x.transpose(0, 3, 1, 2)"
        )
    check_finite(array, name, "input")
    if array.dtype in (np.uint8, np.float32, np.float64):
        return torch.from_numpy(array)
    exact = array.dtype.kind in "iu" and bool((array.astype(np.float32).astype(np.float64) != array).any())
    with np.errstate(over="ignore"):  # what overflows is refused, with its index
        tensor = torch.from_numpy(array.astype(np.float64 if exact else np.float32))
    check_finite(tensor.numpy(), name, "float32 input")
    return tensor


def check_finite(array: NDArray[Any], name: str, what: str) -> None:
    """Refuse NaN and infinity, naming the first by its index and counting the rest."""
    rows = max(1, _CHECKED // max(1, array[:1].size))
    pieces = (array[start : start + rows] for start in range(0, len(array), rows))
    if array.dtype.kind != "f" or all(np.isfinite(piece).all() for piece in pieces):
        return
    finite = np.isfinite(array)
    index = tuple(int(i) for i in np.argwhere(~finite)[0])
    where = index[0] if len(index) == 1 else index
    raise ValueError(
        f"{name}: every {what} must be finite: got {array[index]} at index {where} "
        f"({int((~finite).sum())} in all)"
    )


def fit_shape(inputs: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """The inputs in the shape that the model was made for; images of one channel may lack its axis.

    Raises:
        ValueError: The shapes differ.
    """
    fitted = inputs[:, None] if inputs.ndim == 3 and len(shape) == 3 and shape[0] == 1 else inputs
    if tuple(fitted.shape[1:]) != tuple(shape):
        wanted = ", ".join(str(size) for size in ("N", *shape))
        raise ValueError(f"{name}: inputs must have shape ({wanted}): got {tuple(inputs.shape)}")
    return fitted


def targets_of(
    y: Array, count: int, name: str, task: TaskName | None, classes: Sequence[str] = ()
) -> tuple[Tensor, TaskName, Sequence[str]]:
    """Targets, what they are, and the classes' names, from an array whose classes are not yet known.

    Raises:
        ValueError: The shape is not (N,), labels are out of range, or the type does not fit the task.
    """
    array = _target_array(y, count, name)
    kind = array.dtype.kind
    task = task or ("values" if kind == "f" else "classes")
    if task == "values":
        return known_targets(array, count, name, task, ()), task, ()
    if kind in "Ub":
        classes = [str(value) for value in np.unique(array)]
        return known_targets(array, count, name, task, classes), task, classes
    labels = _integers(array, name)
    remedy = "renumber them, or set --task values"
    if len(negative := np.flatnonzero(labels < 0)):
        first = f"{labels[negative[0]]} at index {negative[0]} ({len(negative)} in all)"
        raise ValueError(f"{name}: labels must be 0 .. K-1: got {first}; {remedy}")
    check_classes_of(labels, name)
    absent = np.setdiff1d(np.arange(labels.max() + 1), labels)
    if len(absent):
        raise ValueError(
            f"{name}: labels must be 0 .. K-1, each of them present: got none of {absent[0]}, "
            f"largest {labels.max()}; {remedy}"
        )
    classes = classes or [str(k) for k in range(int(labels.max()) + 1)]
    return known_targets(labels, count, name, task, classes), task, classes


def check_classes_of(labels: NDArray[Any], name: str) -> None:
    """Refuse labels that cannot be learned, as :func:`margin.data.splits.check_classes`."""
    try:
        check_classes(torch.from_numpy(labels))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def known_targets(y: Array, count: int, name: str, task: TaskName, classes: Sequence[str]) -> Tensor:
    """Targets of examples whose task and classes are known: int64 labels, or float64 values.

    Raises:
        ValueError: The shape is not (N,), a label is out of range or unknown, a value is not finite.
    """
    array = _target_array(y, count, name)
    if task == "values":
        if array.dtype.kind == "U":
            raise ValueError(f"{name}: values must be numbers: got text {str(array[0])!r}")
        return torch.from_numpy(array.astype(np.float64))
    if array.dtype.kind in "Ub":
        index = {str(known): k for k, known in enumerate(classes)}
        for row, value in enumerate(array):
            if str(value) not in index:
                raise ValueError(
                    f"{name}: every class must be one of {listed(classes)}: got {str(value)!r} at index {row}"
                )
        return torch.tensor([index[str(value)] for value in array])
    labels = _integers(array, name)
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise ValueError(
            f"{name}: labels must be 0 .. {len(classes) - 1}: got {labels[wrong[0]]} at index {wrong[0]} "
            f"({len(wrong)} in all)"
        )
    return torch.from_numpy(labels)


def listed(names: Sequence[str], most: int = 10) -> str:
    """The names in one line, the first few of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def _target_array(y: Array, count: int, name: str) -> NDArray[Any]:
    array = as_numpy(y, name, "targets")
    if array.ndim != 1:
        remedy = "; pass y[:, 0]" if array.ndim == 2 and array.shape[1] == 1 else ""
        raise ValueError(f"{name}: targets must have shape (N,): got {array.shape}{remedy}")
    if len(array) != count:
        raise ValueError(
            f"{name}: inputs and targets must have one length: got {count} inputs, {len(array)} targets"
        )
    check_finite(array, name, "target")
    return array


def _integers(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind == "f" and (wrong := np.flatnonzero(array != np.round(array))).size:
        raise ValueError(f"{name}: labels must be whole numbers: got {array[wrong[0]]} at index {wrong[0]}")
    if array.dtype.kind == "u" and len(large := np.flatnonzero(array >= 2**63)):
        raise ValueError(f"{name}: labels must be 0 .. K-1: got {array[large[0]]} at index {large[0]}")
    return array.astype(np.int64)
