"""Positions: the paper's formula, its rotation, and turned queries and keys that know distances alone."""

import math

import pytest
import torch

from margin.nn.positions import LearnedPositions, SinusoidalPositions, rotated, sinusoidal


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("width", [1, 5, 8])
def test_it_is_the_papers_formula_at_any_width(width: int) -> None:
    found = sinusoidal(torch.arange(4), width)
    for t in range(4):
        for j in range(width):
            angle = t / 10_000 ** (2 * (j // 2) / width)
            wanted = math.cos(angle) if j % 2 else math.sin(angle)
            assert float(found[t, j]) == pytest.approx(wanted, abs=1e-14)


def turned(table: torch.Tensor, by: int) -> torch.Tensor:
    """The least-squares map of each pair of columns that brings every row to the one ``by`` behind it."""
    pairs = table.unflatten(1, (-1, 2))
    before, after = pairs[:-by].transpose(0, 1), pairs[by:].transpose(0, 1)
    return before @ torch.linalg.lstsq(before, after).solution - after


def test_a_shift_is_a_rotation_and_the_printed_formula_has_none() -> None:
    table = sinusoidal(torch.arange(40), 8)
    assert float(turned(table, 3).abs().max()) < 1e-12
    # a frequency for each column, not for each pair: no map of a pair shifts it
    angles = torch.arange(40).double()[:, None] * 10_000.0 ** (-torch.arange(8).double() / 8)
    printed = torch.where(torch.arange(8) % 2 == 0, angles.sin(), angles.cos())
    assert float(turned(printed, 3).abs().max()) > 0.1


def test_products_know_the_distance_alone_and_rows_have_the_norm_of_half_the_width() -> None:
    table = sinusoidal(torch.arange(30), 6)
    products = table @ table.T
    for distance in range(5):
        row = products.diagonal(distance)
        torch.testing.assert_close(row, row[:1].expand_as(row))
    torch.testing.assert_close(table.square().sum(1), torch.full((30,), 3.0, dtype=torch.float64))


def test_rotary_positions_multiply_by_a_complex_number() -> None:
    x = draw(2, 5, 6)
    pairs = torch.view_as_complex(x.unflatten(2, (3, 2)))
    angles = torch.arange(5)[:, None] * 10_000.0 ** (-torch.arange(3).double() / 3)
    wanted = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)
    torch.testing.assert_close(rotated(x), wanted)
    torch.testing.assert_close(rotated(x[:, 2:], 2), wanted[:, 2:])


def test_rotary_products_know_the_distance_alone() -> None:
    q, k = draw(1, 6).expand(9, 6), draw(1, 6, seed=1).expand(9, 6)
    products = rotated(q) @ rotated(k).T
    for distance in range(-4, 5):
        row = products.diagonal(distance)
        torch.testing.assert_close(row, row[:1].expand_as(row))
    assert not torch.allclose(products[0, 1], products[1, 0])


def test_layers_add_them_from_any_place_on() -> None:
    x = draw(2, 7, 5).float()
    fixed, learned = SinusoidalPositions(5), LearnedPositions(7, 5)
    for layer in (fixed, learned):
        torch.testing.assert_close(layer(x[:, 3:], 3), layer(x)[:, 3:])
    torch.testing.assert_close(fixed(x)[0] - x[0], sinusoidal(torch.arange(7), 5).float())
    torch.testing.assert_close(learned(x) - x, learned.weight.expand(2, -1, -1))


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="no longer than the 7 positions: got 8 tokens"):
        LearnedPositions(7, 5)(torch.zeros(1, 3, 5), 5)
    with pytest.raises(ValueError, match="even width: got 5"):
        rotated(draw(1, 3, 5))
    with pytest.raises(ValueError, match="longest must be at least 1"):
        LearnedPositions(0, 5)
    with pytest.raises(ValueError, match="width must be at least 1"):
        sinusoidal(torch.arange(2), 0)
