"""Places of rows of several lengths against Python's own ranges."""

import pytest
import torch

from margin.data.formats.ragged import offsets_of, ranges


@pytest.mark.parametrize(
    ("starts", "counts"),
    [([], []), ([5], [0]), ([5], [3]), ([7, 0, 7], [2, 0, 3]), ([0, 10, 20], [0, 0, 1]), ([3, 1], [1, 4])],
)
def test_ranges_are_pythons(starts: list[int], counts: list[int]) -> None:
    expected = [place for s, n in zip(starts, counts, strict=True) for place in range(s, s + n)]
    got = ranges(torch.tensor(starts, dtype=torch.int64), torch.tensor(counts, dtype=torch.int64))
    assert got.tolist() == expected
    assert got.dtype == torch.int64


def test_offsets_begin_with_nought_and_end_with_the_total() -> None:
    assert offsets_of(torch.tensor([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert offsets_of(torch.zeros(0, dtype=torch.int64)).tolist() == [0]
