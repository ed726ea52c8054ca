"""What is taken for sequences, and what is refused, with its row and time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from margin.data.formats.sequences.rows import Ragged
from margin.data.formats.sequences.values import rows_of


@pytest.mark.parametrize(
    ("given", "width", "lengths"),
    [
        (np.ones((2, 3)), 1, [3, 3]),
        (np.ones((2, 3, 4), np.int64), 4, [3, 3]),
        (torch.ones(2, 3, 4), 4, [3, 3]),
        ([np.ones(3), np.ones(1)], 1, [3, 1]),
        ([[1, 2, 3], [], [4]], 1, [3, 0, 1]),
        ([[], [[1, 2], [3, 4]]], 2, [0, 2]),
        ([torch.ones(2, 4), torch.ones(0, 4)], 4, [2, 0]),
        (Ragged(torch.ones(3), torch.tensor([0, 1, 3])), 1, [1, 2]),
    ],
    ids=["plane", "cube", "tensor", "list", "numbers", "empty first", "tensors", "rows"],
)
def test_sequences_come_in_many_forms(given: Any, width: int, lengths: list[int]) -> None:
    rows = rows_of(given, "x")
    assert rows.lengths.tolist() == lengths
    assert rows.steps.shape == (sum(lengths), width)
    assert rows.steps.dtype in (torch.float32, torch.float64)


def test_double_precision_is_kept_and_all_else_is_single() -> None:
    assert rows_of(np.ones((2, 3)), "x").steps.dtype == torch.float64
    assert rows_of(np.ones((2, 3), np.float16), "x").steps.dtype == torch.float32
    assert rows_of(np.ones((2, 3), np.uint8), "x").steps.dtype == torch.float32


def test_a_nan_is_named_by_row_and_time(refused: Callable) -> None:
    x = np.ones((3, 4, 2))
    x[1, 2, 1] = np.nan
    x[2, 3, 0] = np.inf
    with refused("x: every number", "got nan at row 1, time 2, number 1, counted from 0 (2 in all)"):
        rows_of(x, "x")
    with refused("got inf at row 2, time 1"):
        rows_of([np.ones(3), np.ones(0), np.array([1, np.inf])], "x")
    with refused("got inf at row 0, time 0"):  # too large for single precision
        rows_of(np.full((1, 1), 1e300).astype(np.longdouble), "x")


def test_filling_at_the_end_is_told_from_a_gap(refused: Callable) -> None:
    x = np.array([[1, 2, np.nan, np.nan], [1, np.nan, 3, np.nan], [np.nan] * 4, [1, 2, 3, 4.0]])
    with refused("row 0, time 2", "if it is padding, set --data.missing end"):
        rows_of(x, "x")
    with pytest.raises(ValueError, match=r"row 1, time 1, .*\(1 in all\)") as caught:
        rows_of(x[[0, 1, 3]], "x", missing="end")
    assert "padding" not in str(caught.value)  # a gap is no padding
    assert rows_of(x[[0, 2, 3]], "x", missing="end").lengths.tolist() == [2, 0, 4]
    two = np.stack((x, np.zeros_like(x)), -1)
    two[0, 3] = np.nan  # only where all numbers of a step are missing is there no step
    with refused("row 0, time 2, number 0"):
        rows_of(two[:1], "x", missing="end")


def test_lengths_cut_what_comes_after(refused: Callable) -> None:
    x = np.arange(12.0).reshape(3, 4)
    x[1, 2:] = np.nan
    rows = rows_of(x, "x", lengths=[4, 2, 0])
    assert rows.steps[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    with refused("row 1, time 2"):
        rows_of(x, "x", lengths=[4, 3, 0])


@pytest.mark.parametrize(
    ("lengths", "texts"),
    [
        ([4, 5, 0], ("lengths must be in 0 .. 4", "got 5 in row 1 (1 in all)")),
        ([4, -1, -2], ("got -1 in row 1 (2 in all)",)),
        ([4, 4], ("one a sequence", "3 sequences")),
        ([4.0, 4.0, 4.0], ("whole numbers", "float64")),
    ],
    ids=str,
)
def test_lengths_that_disagree_are_refused(lengths: list, texts: tuple, refused: Callable) -> None:
    with refused(*texts):
        rows_of(np.ones((3, 4)), "x", lengths=lengths)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "at least one sequence"),
        (np.ones((0, 4)), "at least one sequence"),
        (np.ones(4), "(N, T) or (N, T, n): got (4,)"),
        (np.ones((2, 3, 0)), "got (T, 0)"),
        (np.ones((2, 3, 4, 5)), "got (2, 3, 4, 5)"),
        ([np.ones((2, 3)), np.ones((2, 4))], "got (2, 4) in row 1, (2, 3) in row 0"),
        (np.array([["a", "b"]]), "got text"),
        ([["a", "b"]], "row 0: a sequence must be numbers: got text"),
    ],
    ids=str,
)
def test_what_is_no_sequence_is_refused(given: Any, text: str, refused: Callable) -> None:
    with refused(text):
        rows_of(given, "x")
