"""Wilson's limits against scipy's, and the limits of means against hand cases."""

import math

import pytest
import torch
from scipy.stats import binomtest

from margin.theory.held_out import Terms
from margin.theory.limits import Limited, mean_of, share_of, wilson


def unit(i, n=3):
    return torch.eye(n, dtype=torch.float64)[i]


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 10), (10, 10), (9, 10), (437, 450), (5, 10_000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_score_interval_is_scipys(k, n, level):
    exact = binomtest(k, n).proportion_ci(confidence_level=level, method="wilson")
    assert wilson(k / n, n, level=level) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize(
    ("share", "n", "level"), [(-0.1, 3, 0.95), (1.1, 3, 0.95), (0, 0, 0.95), (1, 3, 1.0), (1, 3, 0.0)]
)
def test_what_is_out_of_range_is_refused(share, n, level):
    with pytest.raises(ValueError, match=r"lies? in"):
        wilson(share, n, level=level)


def test_limits_of_a_mean_add_in_squares_in_a_line_or_cancel():
    parts = [Limited(0.5, 0.2, 0.7, unit(0)), Limited(0.9, 0.5, 1.0, 3 * unit(1))]
    apart = mean_of(parts)
    assert apart[:3] == pytest.approx((0.7, 0.7 - 0.25, 0.7 + math.sqrt(0.05) / 2))
    along = mean_of([parts[0], parts[1]._replace(direction=unit(0))])
    assert along[:3] == pytest.approx((0.7, 0.7 - 0.35, 0.7 + 0.15))
    against = mean_of([parts[0], parts[1]._replace(direction=-unit(0))])
    assert against[:3] == pytest.approx((0.7, 0.7 - 0.05, 0.7 + 0.05))
    assert mean_of(parts[:1])[:3] == pytest.approx(parts[0][:3])


def test_a_share_without_spread_points_to_what_it_weighs():
    weight = torch.tensor([1.0, 2, 1, 4]).double()
    terms = Terms(weight, weight, torch.tensor([0, 2, 2, 3]))
    right = torch.tensor([True, True, False, True])
    found = share_of(right, terms, 5)
    assert found.value == pytest.approx(7 / 8)
    assert found.direction.tolist() == pytest.approx([1 / 8, 0, 2 / 8 - 7 / 8, 4 / 8, 0])
    assert found[1:3] == pytest.approx(wilson(7 / 8, 64 / 26))  # examples weigh 1, 3 and 4
    for same in (torch.ones(4).bool(), torch.zeros(4).bool()):
        assert share_of(same, terms, 5).direction.tolist() == [1, 0, 3, 4, 0]
