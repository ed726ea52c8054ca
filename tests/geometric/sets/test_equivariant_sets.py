"""Equivariant maps of sets: what there is among linear ones, and that ours follow every renumbering."""

from itertools import permutations

import pytest
import torch
from torch import Generator, nn

from margin.geometric.sets.equivariance import (
    EquivariantLinear,
    EquivariantSets,
    check_equivariant,
    commuting,
    segmentation,
)

POOLS = ("sum", "mean", "max")


@pytest.mark.parametrize(("size", "dimension"), [(1, 1), (2, 2), (3, 2), (5, 2), (8, 2)])
def test_the_linear_equivariant_maps_are_a_plane(size: int, dimension: int) -> None:
    basis = commuting(size)
    assert basis.shape == (dimension, size, size)
    flat = basis.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(dimension, dtype=torch.float64))
    for known in (torch.eye(size), torch.ones(size, size)):
        known = known.double().flatten()
        torch.testing.assert_close(flat.T @ (flat @ known), known, rtol=0, atol=1e-10)


def test_they_commute_with_all_permutations_not_only_exchanges() -> None:
    for order in permutations(range(4)):
        P = torch.eye(4, dtype=torch.float64)[list(order)]
        for A in commuting(4):
            torch.testing.assert_close(P @ A, A @ P, rtol=0, atol=1e-12)


def test_brute_force_finds_as_many_dimensions() -> None:
    # The mean of P A P^T over all permutations projects on the commuting matrices: its trace is their number.
    eyes = [torch.eye(4, dtype=torch.float64)[list(order)] for order in permutations(range(4))]
    projection = torch.stack([torch.kron(P, P) for P in eyes]).mean(0)
    assert float(projection.trace()) == pytest.approx(len(commuting(4)))


def test_sizes_out_of_range_are_refused() -> None:
    for size in (0, 13):
        with pytest.raises(ValueError, match=f"1 to 12 elements: got {size}"):
            commuting(size)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_layers_follow_a_renumbering_and_do_not_read_padding(kind: str, pool: str) -> None:
    torch.manual_seed(0)
    layer = EquivariantLinear(3, 2, pool=pool) if kind == "linear" else segmentation(3, 2, pool=pool)
    layer = layer.double().requires_grad_(False)
    x = torch.randn(3, 6, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    assert check_equivariant(layer, x) <= 1e-12
    mask = torch.arange(6) < torch.tensor([6, 0, 2])[:, None]
    x[~mask] = torch.nan
    y = layer(x, mask)
    assert not bool(y[~mask].any())
    torch.testing.assert_close(y[2:, :2], layer(x[2:, :2]), rtol=0, atol=1e-12)


def test_of_numbers_the_layer_is_the_plane() -> None:
    layer = EquivariantLinear(1, 1).double()
    A = torch.func.jacrev(lambda x: layer(x.view(1, 5, 1)).flatten())(torch.zeros(5, dtype=torch.float64))
    own, all_ = layer.own.weight.item(), layer.of_all.weight.item()
    expected = own * torch.eye(5) + all_ * torch.ones(5, 5)
    torch.testing.assert_close(A, expected.double())


def test_a_network_reads_an_element_beside_the_set() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x**2

    x = torch.tensor([[[1.0], [2.0], [3.0]]])
    y = EquivariantSets(Square(), nn.Identity())(x)
    assert y.tolist() == [[[1.0, 14.0], [2.0, 14.0], [3.0, 14.0]]]
