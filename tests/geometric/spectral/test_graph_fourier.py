"""The graph Fourier transform: orthogonal, Fourier's own on a cycle, and what a choice of basis changes."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.spectral import graph_fourier
from margin.geometric.spectral.graph_fourier import (
    convolution,
    eigenspaces,
    fourier_basis,
    inverse,
    spectrum,
    transform,
)
from margin.geometric.spectral.laplacian import Symmetric, adjacency, cycle, laplacian, path, weighted_random


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    return weighted_random(12, 0.4, seed)


def made(edge_index: Tensor, size: int, weight: Tensor | None = None, how: str = "none") -> Symmetric:
    return laplacian(adjacency(edge_index, size, weight, dtype=torch.float64), normalization=how)


def signals(size: int, count: int = 2) -> list[Tensor]:
    generator = Generator().manual_seed(0)
    return [torch.randn(size, dtype=torch.float64, generator=generator) for _ in range(count)]


def test_it_diagonalizes_the_laplacian_and_keeps_lengths() -> None:
    edge_index, weight = drawn()
    L = made(edge_index, 12, weight)
    values, U = spectrum(L)
    torch.testing.assert_close(U @ torch.diag(values) @ U.T, L.dense(), rtol=0, atol=1e-12)
    torch.testing.assert_close(U.T @ U, torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-12)
    assert bool((values.diff() >= 0).all())
    (x, _) = signals(12)
    torch.testing.assert_close(inverse(U, transform(U, x)), x, rtol=0, atol=1e-12)
    torch.testing.assert_close(transform(U, x).norm(), x.norm(), rtol=0, atol=1e-12)
    # the Dirichlet energy is the frequencies' mean, weighted by the squared coefficients
    energy = (values * transform(U, x).square()).sum()
    torch.testing.assert_close(energy, x @ (L @ x[:, None])[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [3, 4, 7, 8])
def test_fouriers_basis_is_one_of_a_cycle(size: int) -> None:
    L, U = made(cycle(size), size).dense().to(torch.complex128), fourier_basis(size)
    k = torch.arange(size, dtype=torch.float64)
    expected = 2 - 2 * torch.cos(2 * torch.pi * k / size)
    torch.testing.assert_close(L @ U, U * expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(U.mH @ U, torch.eye(size).to(U), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        spectrum(made(cycle(size), size)).values, expected.sort().values, rtol=0, atol=1e-12
    )
    x, y = signals(size)
    torch.testing.assert_close(transform(U, x.to(U)), torch.fft.fft(x) / size**0.5, rtol=0, atol=1e-12)
    circular = torch.stack([sum(x[m] * y[(n - m) % size] for m in range(size)) for n in range(size)])
    found = convolution(U, x.to(U), y.to(U))
    torch.testing.assert_close(found, (circular / size**0.5).to(U), rtol=0, atol=1e-12)


def test_the_convolution_commutes_and_what_is_printed_in_its_place_does_not() -> None:
    """U((U' x)(U y')) is printed for U((U' x)(U' y)): of one signal U y is no transform."""
    edge_index, weight = drawn()
    _, U = spectrum(made(edge_index, 12, weight))
    x, y = signals(12)
    torch.testing.assert_close(convolution(U, x, y), convolution(U, y, x), rtol=0, atol=1e-12)
    printed = [U @ ((U.T @ a) * (U @ b)) for a, b in ((x, y), (y, x))]
    assert (printed[0] - printed[1]).abs().max() > 0.1


def test_a_filter_depends_on_no_basis_but_a_convolution_does() -> None:
    """Both for a turned eigenspace of the cycle and for the sign of one eigenvector of a path."""
    x, y = signals(8)
    values, U = spectrum(made(cycle(8), 8))
    turned = U.clone()
    a = torch.tensor(0.7, dtype=torch.float64)
    turn = torch.stack((torch.stack((a.cos(), -a.sin())), torch.stack((a.sin(), a.cos()))))
    turned[:, 1:3] = U[:, 1:3] @ turn  # the first eigenspace of two dimensions
    flipped = U * torch.tensor([1.0, 1, 1, 1, 1, 1, 1, -1], dtype=torch.float64)
    for other in (turned, flipped):
        for basis in (U, other):
            L = basis @ torch.diag(values) @ basis.T
            torch.testing.assert_close(L, made(cycle(8), 8).dense(), rtol=0, atol=1e-12)
        heat = [V @ ((-values).exp() * (V.T @ x)) for V in (U, other)]
        torch.testing.assert_close(heat[0], heat[1], rtol=0, atol=1e-12)
        assert (convolution(U, x, y) - convolution(other, x, y)).abs().max() > 1e-3


def test_the_signs_of_eigenvectors_are_settled() -> None:
    _, U = spectrum(made(path(9), 9))
    for column in U.T:
        large = column[column.abs() >= 0.5 * column.abs().max()]
        assert large[0] > 0


def test_the_dimensions_of_eigenspaces() -> None:
    assert eigenspaces(spectrum(made(cycle(8), 8)).values).tolist() == [1, 2, 2, 2, 1]
    assert eigenspaces(spectrum(made(path(4), 4)).values).tolist() == [1, 1, 1, 1]
    assert eigenspaces(torch.zeros(3)).tolist() == [3]
    assert eigenspaces(torch.zeros(0)).tolist() == []


def test_a_graph_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_fourier, "MOST_NODES", 8)
    assert len(spectrum(made(path(8), 8)).values) == 8
    with pytest.raises(ValueError, match="at most 8 nodes: got 9; a polynomial filter or ChebNet needs none"):
        spectrum(made(path(9), 9))
