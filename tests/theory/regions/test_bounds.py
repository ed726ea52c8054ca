"""Bounds on regions: hand values, brute force over dimensions, constructions that attain them, refusals."""

import itertools
import math

import pytest
import torch
from torch import nn

from margin.theory.regions.arrangements import (
    folding_network,
    montufar_bound,
    most_regions,
    product_bound,
    sawtooth_network,
    serra_bound,
)
from margin.theory.regions.plane import plane_regions
from margin.theory.regions.segments import breakpoints

HALF = torch.tensor([0.5, 0.5]).double()
AXES = HALF * torch.tensor([1.0, 0.0]).double(), HALF * torch.tensor([0.0, 1.0]).double()


def unit_square(net):
    return plane_regions(net, HALF, *AXES)


def unit_interval(net):
    return breakpoints(net, torch.zeros(1, 1), torch.ones(1, 1))


def test_the_known_values():
    assert montufar_bound(2, 4, 2) == 44
    assert montufar_bound(1, 2, 5) == 3 * 2**4
    assert product_bound(2, [4, 4]) == 121
    assert product_bound(3, [2, 4]) == 4 * 11
    assert product_bound(2, []) == serra_bound(2, []) == 1
    for dim, width in itertools.product((1, 2, 3), (3, 5)):
        assert montufar_bound(dim, width, 1) == product_bound(dim, [width]) == serra_bound(dim, [width])
        assert serra_bound(dim, [width]) == most_regions(width, dim)


@pytest.mark.parametrize(("dim", "widths"), [(1, [3, 2]), (2, [3, 2, 3]), (3, [2, 4, 2]), (2, [1, 5, 4])])
def test_the_sharper_bound_is_the_sum_over_its_index_set(dim, widths):
    total = 0
    for j in itertools.product(*(range(width + 1) for width in widths)):
        rooms = [min([dim, widths[k], *(widths[i] - j[i] for i in range(k))]) for k in range(len(widths))]
        if all(j[k] <= rooms[k] for k in range(len(widths))):
            total += math.prod(math.comb(width, j[k]) for k, width in enumerate(widths))
    assert serra_bound(dim, widths) == total <= product_bound(dim, widths)


def test_the_bound_below_never_exceeds_the_bound_above():
    for dim, width, depth in itertools.product((1, 2, 3), (3, 4, 6, 9), (1, 2, 3, 4)):
        assert montufar_bound(dim, width, depth) <= serra_bound(dim, [width] * depth)


@pytest.mark.parametrize(("width", "depth"), [(2, 1), (2, 3), (3, 4), (5, 3), (1, 2)])
def test_folding_attains_the_bound_in_one_dimension(width, depth):
    found = unit_interval(folding_network(1, width, depth))
    assert int(found.linear_regions) == montufar_bound(1, width, depth)


@pytest.mark.parametrize(("width", "depth"), [(4, 1), (4, 2), (5, 2), (4, 3), (6, 2), (3, 2)])
def test_folding_attains_the_bound_in_two_dimensions(width, depth):
    found = unit_square(folding_network(2, width, depth))
    assert found.flaw() == ""
    assert found.linear_regions == montufar_bound(2, width, depth) <= serra_bound(2, [width] * depth)


def test_the_exponent_that_is_printed_is_refuted_by_the_bound_above():
    # m (L - 1) in place of n (L - 1), for n = 2, m = 4, L = 2: more regions than any such network has.
    printed = (4 // 2) ** (4 * (2 - 1)) * most_regions(4, 2)
    assert printed == 176 > serra_bound(2, [4, 4]) == 121
    assert unit_square(folding_network(2, 4, 2)).linear_regions == 44


@pytest.mark.parametrize("depth", [1, 2, 6, 10])
def test_a_tent_composed_with_itself_has_twice_as_many_pieces_each_time(depth):
    net = sawtooth_network(depth)
    found = unit_interval(net)
    assert int(found.linear_regions) == int(found.activation_regions) == 2**depth
    torch.testing.assert_close(
        found.position, torch.arange(2**depth + 1).double() / 2**depth, rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        found.outputs[:, 0], torch.arange(2**depth + 1).double() % 2, rtol=0, atol=1e-9
    )


def test_a_random_network_lies_below_the_upper_bound_and_may_lie_below_the_other():
    for seed in range(5):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
        found = plane_regions(net, torch.zeros(2).double(), *(20 * axis for axis in AXES))
        assert found.linear_regions <= found.activation_regions <= serra_bound(2, [4, 4])
        assert found.linear_regions < montufar_bound(2, 4, 2)


def test_weights_of_0_leave_one_region():
    net = folding_network(2, 4, 2)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    assert unit_square(net).activation_regions == unit_square(net).linear_regions == 1


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: montufar_bound(3, 2, 1), "width at least dim: got dim=3, width=2, depth=1"),
        (lambda: montufar_bound(1, 2, 0), "depth=0"),
        (lambda: product_bound(0, [3]), "got dim=0"),
        (lambda: serra_bound(2, [3, 0]), r"got dim=2, widths=\[3, 0\]"),
        (lambda: folding_network(3, 4, 2), "dim must be 1 or 2"),
        (lambda: sawtooth_network(0), "at least 1: got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(ask, words):
    with pytest.raises(ValueError, match=words):
        ask()
