import pytest
import torch

from margin.math.evenly import evenly, in_order


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


def test_a_sample_is_thinned_in_order_with_its_least_and_largest():
    assert in_order(torch.tensor([3.0, -1.0, 7.0, 2.0, 5.0]), 3).tolist() == [-1.0, 3.0, 7.0]
    assert in_order(torch.tensor([2.0, 1.0]), 5).tolist() == [1.0, 2.0]
