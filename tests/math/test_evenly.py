import pytest
import torch

from margin.math.evenly import evenly


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (0, 5, []),
        (1, 5, [0]),
        (5, 5, [0, 1, 2, 3, 4]),
        (3, 5, [0, 1, 2]),
        (101, 3, [0, 50, 100]),
        (10, 4, [0, 3, 6, 9]),
    ],
)
def test_hand_cases(count, most, expected):
    assert evenly(count, most).tolist() == expected


def test_of_more_things_than_single_precision_can_count_the_last_is_kept():
    count = 2**26 + 3
    assert evenly(count, 3).tolist() == [0, (count - 1) // 2, count - 1]
    assert evenly(count, 3).dtype == torch.int64
