"""The composed tent map: exact pieces, its formula, and what too few pieces miss."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from margin.feedforward.approximation.uniform import best_uniform_fit
from margin.feedforward.piecewise.linear import pwl_basis, relu_network
from margin.feedforward.piecewise.pieces import pieces_of, pieces_on, sup_distance
from margin.feedforward.piecewise.sawtooth import Sawtooth, fewest_pieces, teeth


def tent(x: np.ndarray) -> np.ndarray:
    return 1 - np.abs(2 * x - 1)


@pytest.mark.parametrize("depth", range(1, 11))
def test_it_has_two_to_the_depth_pieces_and_two_units_a_layer(depth: int) -> None:
    model = Sawtooth(depth=depth)
    found = pieces_of(list(model.layers))
    assert pieces_on(found, 0.0, 1.0) == 2**depth
    inside = found.knots[(found.knots > 0) & (found.knots < 1)]
    assert inside.tolist() == [j / 2**depth for j in range(1, 2**depth)]  # exactly
    assert sum(m.out_features for m in list(model.layers)[:-1] if isinstance(m, nn.Linear)) == 2 * depth


@pytest.mark.parametrize("depth", [1, 2, 5, 9])
def test_it_is_the_tent_map_composed(depth: int) -> None:
    x = np.linspace(0, 1, 1025)
    expected = x
    for _ in range(depth):
        expected = tent(expected)
    with torch.no_grad():
        got = Sawtooth(depth=depth).double()(torch.from_numpy(x)[:, None])
    np.testing.assert_array_equal(got.numpy(), expected)
    np.testing.assert_allclose(teeth(depth)(torch.from_numpy(x))[:, 0], expected, atol=1e-12)


def test_teeth_can_be_moved() -> None:
    moved = teeth(3, -2.0, 6.0)
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    torch.testing.assert_close(moved(8 * x - 2), teeth(3)(x))
    for depth, low, high in ((-1, 0.0, 1.0), (21, 0.0, 1.0), (2, 1.0, 1.0)):
        with pytest.raises(ValueError, match=r"depth in 0 \.\. 20 and low < high"):
            teeth(depth, low, high)
    for depth in (0, 51):
        with pytest.raises(ValueError, match=f"depth must be from 1 to 50: got {depth}"):
            Sawtooth(depth=depth)
    with pytest.raises(ValueError, match="at least 1: got 0"):
        fewest_pieces(0)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_net_with_one_unit_too_few_misses_by_one_half(depth: int, seed: int) -> None:
    """The best uniform fit over any 2^L - 2 units, by a linear program: their knots random, or the best ones.

    With one unit more at the sawtooth's own knots the fit is exact.
    """
    x = torch.linspace(0, 1, 16 * 2**depth + 1, dtype=torch.float64)
    own = torch.arange(1, 2**depth, dtype=torch.float64) / 2**depth
    g = torch.Generator().manual_seed(seed)
    for knots in (torch.rand(2**depth - 2, generator=g, dtype=torch.float64), own[:-1], own[1:]):
        ramps = torch.stack([torch.ones_like(x), x, *((x - k).clamp_min(0) for k in knots)], 1)
        assert best_uniform_fit(ramps, teeth(depth)(x)[:, 0]).error >= 0.5 - 1e-9
    ramps = torch.stack([torch.ones_like(x), x, *((x - k).clamp_min(0) for k in own)], 1)
    assert best_uniform_fit(ramps, teeth(depth)(x)[:, 0]).error < 1e-9


def test_random_polygons_of_fewer_pieces_are_half_a_unit_away_somewhere() -> None:
    g = torch.Generator().manual_seed(0)
    for depth in (1, 2, 4, 6):
        for _ in range(20):
            count = fewest_pieces(depth) - 1
            inner = torch.rand(count - 1, generator=g, dtype=torch.float64).sort().values
            ends = inner.new_tensor([0.0, 1.0])
            x = torch.cat((ends[:1], inner, ends[1:]))
            near = teeth(depth)(x)[:, 0] + 0.1 * torch.randn(len(x), generator=g, dtype=torch.float64)
            polygon = pieces_of(list(relu_network(pwl_basis(x, near))))
            assert pieces_on(polygon, 0.0, 1.0) <= count
            assert sup_distance(polygon, teeth(depth), 0.0, 1.0)[0] >= 0.5


def test_the_count_of_pieces_is_not_one_too_few() -> None:
    """2^L pieces suffice: a polygon 0.49 off at the corners has as many, and is nearer than 1/2."""
    depth = 4
    x = torch.arange(2**depth + 1, dtype=torch.float64) / 2**depth
    y = teeth(depth)(x)[:, 0]
    near = pieces_of(list(relu_network(pwl_basis(x, y + 0.49 * (0.5 - y).sign()))))
    assert sup_distance(near, teeth(depth), 0.0, 1.0)[0] == pytest.approx(0.49)
    assert pieces_on(near, 0.0, 1.0) == fewest_pieces(depth)


def test_a_trained_net_of_one_layer_violates_nothing() -> None:
    """7 pieces of 8: descent ends at least 1/2 away; seeds fixed, and no seed could do otherwise."""
    x = torch.linspace(0, 1, 257, dtype=torch.float64)[:, None]
    y = teeth(3)(x[:, 0])
    for seed in range(2):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 1)).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        distance, _ = sup_distance(pieces_of(list(model)), teeth(3), 0.0, 1.0)
        assert 0.5 <= distance < math.inf
