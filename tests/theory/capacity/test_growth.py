"""Growth, shattering and VC dimension of classes whose answers are known."""

import math

import pytest
import torch
from torch import Generator

from margin.classic.perceptron.cover import cover_count, dichotomy_counts
from margin.theory.capacity.growth import (
    boxes,
    distinct,
    growth,
    intervals,
    is_shattered,
    log_growth_bound,
    network_dimension_bound,
    sauer,
    thresholds,
    vc_dimension,
)

LINE = torch.tensor([0.3, -1.0, 2.0, 0.9, 5.0])


def test_thresholds_and_intervals_on_a_line() -> None:
    """n + 1 and n (n + 1) / 2 + 1 labelings; dimensions 1 and 2."""
    assert vc_dimension(thresholds(LINE)) == 1
    assert vc_dimension(intervals(LINE)) == 2
    assert [growth(thresholds(LINE), n) for n in range(6)] == [1, 2, 3, 4, 5, 6]
    assert [growth(intervals(LINE), n) for n in range(6)] == [1, 2, 4, 7, 11, 16]


def test_points_that_coincide_are_labeled_alike() -> None:
    assert distinct(thresholds(torch.tensor([1.0, 1.0, 2.0]))) == 3


def test_boxes_shatter_four_points_of_the_plane_and_no_five() -> None:
    diamond = torch.tensor([[0.0, 1], [1, 0], [0, -1], [-1, 0]])
    assert is_shattered(boxes(diamond))
    drawn = torch.rand(6, 2, generator=Generator().manual_seed(0))
    assert vc_dimension(boxes(torch.cat((diamond, drawn)))) == 4
    assert not is_shattered(boxes(torch.tensor([[0.0, 0], [1, 1], [2, 2]])))  # the ends without the middle


def test_boxes_are_those_of_brute_force_over_corners() -> None:
    x = torch.rand(5, 2, generator=Generator().manual_seed(3))
    ends = torch.cat((x, x + 1e-4, x - 1e-4))
    tried = {
        tuple(((x >= torch.stack((a, b))) & (x <= torch.stack((c, d)))).all(1).tolist())
        for a in ends[:, 0] for b in ends[:, 1] for c in ends[:, 0] for d in ends[:, 1]
    }  # fmt: skip
    assert {tuple(row) for row in boxes(x).tolist()} == tried


def test_half_spaces_through_the_origin_grow_as_cover_counts() -> None:
    x = torch.randn(6, 3, generator=Generator().manual_seed(0))
    assert dichotomy_counts(x) == [cover_count(s, 3) for s in range(1, 7)]
    assert cover_count(3, 3) == 2**3  # shattered: the dimension is 3,
    assert cover_count(4, 3) < 2**4  # and no more


def test_a_sine_shatters_any_number_of_points() -> None:
    """One parameter, infinite dimension: sign sin(a x) on x_i = 2^-i labels them by the digits of a."""
    n = 7
    x = 2.0 ** -torch.arange(1, n + 1, dtype=torch.float64)
    rows = []
    for code in range(2**n):
        y = torch.tensor([code >> i & 1 for i in range(n)], dtype=torch.float64)
        a = math.pi * (1 + ((1 - y) * 2.0 ** torch.arange(1, n + 1)).sum())
        rows.append((a * x).sin() > 0)
    assert vc_dimension(torch.stack(rows)) == n


def test_sauer_bounds_every_class_and_is_reached_by_intervals() -> None:
    for n in range(6):
        assert growth(intervals(LINE), n) == sauer(n, 2)
        assert growth(thresholds(LINE), n) == sauer(n, 1)
    table = torch.rand(9, 7, generator=Generator().manual_seed(0)) < 0.5
    d = vc_dimension(table)
    for n in range(8):
        assert growth(table, n) <= sauer(n, d)
    assert log_growth_bound(50, 3) == pytest.approx(3 * math.log(50 * math.e / 3))
    assert log_growth_bound(50, 3) > math.log(sauer(50, 3))
    assert log_growth_bound(3, 5) == pytest.approx(3 * math.log(2))


def test_empty_and_constant_classes() -> None:
    assert vc_dimension(torch.empty(0, 3, dtype=torch.bool)) == -1
    assert vc_dimension(torch.ones(1, 3, dtype=torch.bool)) == 0


def test_the_bound_of_networks_by_hand_and_above_what_is_known_of_a_half_space() -> None:
    """Two hidden units on two inputs: R = 1 * 2 + 2 * 1 = 4; W_1 = 6, W_2 = 9."""
    expected = 2 + 15 * math.log2(4 * math.e * 4 * math.log2(2 * math.e * 4))
    assert network_dimension_bound([2, 1], [6, 3]) == pytest.approx(expected)
    assert network_dimension_bound([1], [4]) >= 4  # an affine half-space of three inputs has 4
    assert network_dimension_bound([2, 1], [6, 3], pieces=3) > expected
    with pytest.raises(ValueError, match="one output"):
        network_dimension_bound([2, 2], [6, 6])


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(ValueError, match=r"n must lie in 0 \.\. 5"):
        growth(thresholds(LINE), 6)
    with pytest.raises(ValueError, match="2,000,000 sets"):
        growth(torch.ones(2, 60, dtype=torch.bool), 20)
