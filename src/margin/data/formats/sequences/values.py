"""Checked rows of sequences from what a user has: arrays, padded or not, lists of arrays, tensors."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from margin.data.arrays import Array, as_numpy
from margin.data.examples import offsets_of
from margin.data.files.reading import check_unpacked
from margin.data.formats.sequences.rows import Ragged

Missing = Literal["error", "end"]
"""What a NaN is: a mistake, or, after the last number of a sequence, the filling of a rectangular file."""

Given = Array | Ragged
"""What is taken for sequences: (N, T), (N, T, n), a list of (T_i,) or (T_i, n), rows of several lengths."""


def rows_of(x: Given, name: str, *, lengths: Array | None = None, missing: Missing = "error") -> Ragged:
    """Sequences as rows of finite steps (n,), float32 or float64.

    Raises:
        ValueError: There is no sequence, shapes do not fit, a length disagrees, or a number is not finite.
    """
    rows = x if isinstance(x, Ragged) else _from_array(x, name, lengths)
    if len(rows) == 0:
        raise ValueError(f"{name}: there must be at least one sequence: got none")
    if rows.steps.ndim == 1:
        rows = replace(rows, steps=rows.steps[:, None])
    if rows.steps.ndim != 2 or rows.steps.shape[1] == 0:
        shape = ", ".join(str(size) for size in ("T", *rows.steps.shape[1:]))
        raise ValueError(f"{name}: a sequence must have shape (T,) or (T, n): got ({shape})")
    if missing == "end":
        rows = without_filling(rows)
    check_steps(rows, name)
    if rows.steps.dtype != torch.float64:
        rows = replace(rows, steps=rows.steps.float())
    return rows


Whole = Literal["numbers", "tokens"]
"""What whole numbers in sequences are: amounts, or names of which each gets a 0/1 number of its own."""

AS_NUMBERS = (
    "the sequences hold whole numbers alone, {low} .. {high}: they are read as amounts; if they are names, "
    "as tokens are, set --data.whole tokens"
)
"""The note of whole numbers that are read as such."""


def are_whole(rows: Ragged) -> bool:
    """Whether there is one number a step, and every one is whole, of more than two kinds."""
    steps = rows.steps
    return steps.shape[1] == 1 and bool((steps == steps.round()).all()) and len(steps.unique()) > 2


def one_hot(rows: Ragged, tokens: Sequence[int], name: str) -> Ragged:
    """Each whole number as a vector with a 1 at its place in ``tokens``, float32.

    Raises:
        ValueError: A number is not whole, or not among them; or the vectors take implausibly much memory.
    """
    if rows.steps.shape[1] != 1:
        raise ValueError(f"{name}: tokens must be one number a step: got {rows.steps.shape[1]}")
    known = torch.tensor(tokens, dtype=torch.float64)
    steps = rows.steps[:, 0].double()
    check_unpacked(name, steps.nbytes, 4 * len(steps) * len(known), "read them as numbers")
    places = torch.searchsorted(known, steps).clamp_max(len(known) - 1)
    if len(wrong := (known[places] != steps).nonzero()[:, 0]):
        step = int(wrong[0])
        row = int(torch.searchsorted(rows.offsets, step, right=True)) - 1
        time = step - int(rows.offsets[row])
        raise ValueError(
            f"{name}: every token must be one of the training's {len(known)}: got {steps[step].item():g} at "
            f"row {row}, time {time}, counted from 0"
        )
    return replace(rows, steps=torch.nn.functional.one_hot(places, len(known)).float())


def tokens_in(rows: Ragged, name: str) -> list[int]:
    """The whole numbers that occur, ascending.

    Raises:
        ValueError: A number is not whole.
    """
    steps = rows.steps
    if bool((steps != steps.round()).any()) or bool((steps.abs() >= 2**24).any()):
        wrong = steps[(steps != steps.round()) | (steps.abs() >= 2**24)][0].item()
        raise ValueError(f"{name}: tokens must be whole numbers below 2^24: got {wrong:g}")
    return [int(one) for one in steps.unique().tolist()]


def written_tokens(rows: Ragged, name: str) -> list[str]:
    """The whole numbers of each sequence as a text, a blank between two.

    Raises:
        ValueError: A step has several numbers, or a number is not whole, below 0 or too large.
    """
    fit_width(rows, 1, name)
    if (least := min(tokens_in(rows, name), default=0)) < 0:
        raise ValueError(f"{name}: tokens must be whole numbers from 0 on: got {least}")
    written = [str(int(number)) for number in rows.steps[:, 0].tolist()]
    return [" ".join(written[low:high]) for low, high in pairwise(rows.offsets.tolist())]


def without_filling(rows: Ragged) -> Ragged:
    """Each sequence up to its last step that holds a number: what comes after is NaN alone."""
    if not rows.steps.is_floating_point():
        return rows
    row = torch.arange(len(rows)).repeat_interleave(rows.lengths)
    place = torch.arange(len(rows.steps)) - rows.offsets[row]
    filled = torch.where(rows.steps.isnan().all(1), 0, place + 1)
    kept = torch.zeros(len(rows), dtype=torch.int64).scatter_reduce(0, row, filled, "amax")
    return Ragged(rows.steps[place < kept[row]], offsets_of(kept))


def check_steps(rows: Ragged, name: str) -> None:
    """Refuse NaN and infinity, naming the first by its row and time and counting the rest."""
    finite = rows.steps.isfinite()
    if bool(finite.all()):
        return
    step, channel = (int(i) for i in (~finite).nonzero()[0])
    row = int(torch.searchsorted(rows.offsets, step, right=True)) - 1
    time = step - int(rows.offsets[row])
    value, count = rows.steps[step, channel].item(), int((~finite).sum())
    where = f"row {row}, time {time}" + (f", number {channel}" if rows.steps.shape[1] > 1 else "")
    rest = rows.steps[step : int(rows.offsets[row + 1])]
    filling = "; if it is padding, set --data.missing end" if bool(rest.isnan().all()) else ""
    raise ValueError(
        f"{name}: every number of a sequence must be finite: got {value} at {where}, counted from 0 "
        f"({count} in all){filling}"
    )


def fit_width(rows: Ragged, width: int, name: str) -> Ragged:
    """The sequences, refused unless a step has ``width`` numbers."""
    if rows.steps.shape[1] != width:
        raise ValueError(f"{name}: a step must have {width} numbers: got {rows.steps.shape[1]}")
    return rows


def _from_array(x: Array, name: str, lengths: Array | None) -> Ragged:
    if isinstance(x, Sequence) and lengths is None:
        return _from_list(x, name)
    array = as_numpy(x, name, "sequences")
    if array.dtype.kind == "U":
        raise ValueError(f"{name}: sequences must be numbers: got text")
    if array.ndim not in (2, 3):
        raise ValueError(f"{name}: sequences must have shape (N, T) or (N, T, n): got {array.shape}")
    count, time = array.shape[:2]
    kept = np.full(count, time) if lengths is None else checked_lengths(lengths, count, time, name)
    steps = _reals(array)[np.arange(time) < kept[:, None]]
    return Ragged(torch.from_numpy(steps), offsets_of(torch.from_numpy(kept)))


def _reals(array: NDArray[Any]) -> NDArray[Any]:
    """Double precision as it is, all else in single; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return array if array.dtype == np.float64 else array.astype(np.float32)


def _from_list(x: Sequence[Any], name: str) -> Ragged:
    arrays = [as_numpy(row, f"{name}, row {i}", "sequence") for i, row in enumerate(x)]
    if not arrays:
        raise ValueError(f"{name}: there must be at least one sequence: got none")
    # An empty list says nothing of its width
    known = next((a.shape[1:] for a in arrays if a.ndim != 1 or a.size), arrays[0].shape[1:])
    for i, array in enumerate(arrays):
        if array.dtype.kind == "U":
            raise ValueError(f"{name}, row {i}: a sequence must be numbers: got text")
        if array.ndim == 1 and array.size == 0:
            arrays[i] = array.reshape(0, *known)
        elif array.ndim not in (1, 2) or array.shape[1:] != known:
            raise ValueError(
                f"{name}: every sequence must be (T,) or (T, n) with one n: got {array.shape} in row {i}, "
                f"{arrays[0].shape} in row 0"
            )
    reals = [torch.from_numpy(_reals(array)) for array in arrays]
    double = any(row.dtype == torch.float64 and len(row) for row in reals)
    return Ragged.of([row.double() if double else row.float() for row in reals])


def checked_lengths(lengths: Array, count: int, time: int, name: str) -> NDArray[Any]:
    """Lengths of a padded array as int64, refused unless each is in 0 .. T."""
    given = as_numpy(lengths, name, "lengths")
    if given.shape != (count,) or given.dtype.kind not in "ui":
        raise ValueError(
            f"{name}: lengths must be whole numbers, one a sequence: got {given.dtype} of shape "
            f"{given.shape} for {count} sequences"
        )
    if len(wrong := np.flatnonzero((given < 0) | (given > time))):
        raise ValueError(
            f"{name}: lengths must be in 0 .. {time}, the length of the array: got {given[wrong[0]]} "
            f"in row {wrong[0]} ({len(wrong)} in all)"
        )
    return given.astype(np.int64)
