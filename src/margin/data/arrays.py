"""What arrays of a user are checked for: types, shapes, finite numbers, labels, what float32 cannot hold.

Inputs are (N, d), (N, H, W) or (N, C, H, W), channels first; targets are (N,).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.files.reading import plain, renamed
from margin.data.splits import TaskName, check_classes

Array = NDArray[Any] | Tensor | Sequence[Any]
"""What is taken for an array: numpy's, a tensor, nested lists of numbers."""

_CHECKED = 2**20
"""Numbers that are checked at a time: a mask of all would be a quarter of them."""

BYTES = (0.0, 255.0)
"""The domain of an image of unsigned bytes."""


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
        sparse = hasattr(array, "toarray")
        way = "; give .toarray()" if sparse else "; give .astype(float)" if found.dtype == object else ""
        kind = type(array).__name__ if sparse else f"type {found.dtype}"
        raise ValueError(f"{name}: the {what} must be numbers or names: got {kind}{way}")
    if found.dtype.kind == "U" and found.size:
        names, places = np.unique(found, return_inverse=True)
        return np.array([plain(str(name)) for name in names])[places].reshape(found.shape)
    usable = found.flags.writeable and found.flags.c_contiguous
    return found.astype(found.dtype.newbyteorder("="), copy=copy or not usable)


def renamed_in(names: Array | None) -> tuple[str, ...]:
    """What is said of an array of names that are read in another form; nothing of numbers, or of no array."""
    array = None if names is None or isinstance(names, Tensor) else np.asarray(names)
    return () if array is None or array.dtype.kind not in "UO" else renamed(map(str, np.unique(array)))


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


# numbers whose spread is small beside their size: milliseconds since 1970, dates written as one number.
# float32 has 24 binary digits (IEEE 754): where a value is 4,096 times the standard deviation and more, fewer
# than twelve of them are left for what tells the values apart.

LARGE = 4096.0
"""Size over standard deviation from which on float32 is not enough."""

LARGE_TARGET = 256.0
"""The same of a target, of which a model may leave a residual much smaller than its deviation."""


def is_wide(values: NDArray[Any], large: float = LARGE) -> bool:
    """Whether a column of finite numbers needs float64: its largest size is LARGE deviations or more.

    A column of one value has no spread that could be lost.
    """
    if not len(values):
        return False
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    # the deviation is at least (high - low) / (2 sqrt n) and at most (high - low) / 2
    if low == high or size < large * (high - low) / (2 * len(values) ** 0.5):
        return False
    return size >= large * float(np.std(values, dtype=np.float64))


def is_wide_target(values: NDArray[Any]) -> bool:
    """Whether targets need float64: large beside their spread, or whole numbers that float32 rounds."""
    whole = bool((values == np.round(values)).all())
    rounded = whole and bool((values.astype(np.float32).astype(np.float64) != values).any())
    return rounded or is_wide(values, LARGE_TARGET)


def wide_columns(x: NDArray[Any]) -> NDArray[np.bool_]:
    """:func:`is_wide` of every feature of inputs (N, ...)."""
    return np.array([is_wide(column) for column in x.reshape(len(x), -1).T], dtype=bool)


def wide_of(inputs: Tensor, targets: Tensor, task: str) -> tuple[bool, list[str]]:
    """Whether vectors or values need float64, and what is said of the features and targets that do."""
    vectors = inputs.dtype == torch.float64 and inputs.ndim == 2
    places = np.flatnonzero(wide_columns(inputs.numpy())).tolist() if vectors else []
    said = [
        f"feature {k} varies little beside its size, less than float32 resolves: it is kept in float64"
        for k in places
    ]
    if task == "values" and is_wide_target(targets.double().numpy()):
        said.append("the targets are large beside their spread: they are kept in float64")
    return bool(said), said
