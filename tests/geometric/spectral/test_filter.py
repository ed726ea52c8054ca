"""Spectral filters against the matrix exponential, scipy's splines, and what must not matter to them."""

import numpy as np
import pytest
import scipy.interpolate
import scipy.linalg
import torch
from torch import Generator, Tensor

from margin.geometric.spectral import graph_fourier
from margin.geometric.spectral.filters import SpectralConv, spectral_filter, spectral_network, splines
from margin.geometric.spectral.graph_fourier import spectrum
from margin.geometric.spectral.laplacian import Symmetric, adjacency, cycle, laplacian, path, weighted_random


def made(edge_index: Tensor, size: int, weight: Tensor | None = None, how: str = "none") -> Symmetric:
    return laplacian(adjacency(edge_index, size, weight, dtype=torch.float64), normalization=how)


def signals(size: int = 12, count: int = 3) -> Tensor:
    return torch.randn(size, count, dtype=torch.float64, generator=Generator().manual_seed(1))


def nothing(edge_index: Tensor) -> Tensor:
    return torch.zeros(edge_index.shape[1], 0, dtype=torch.float64)


@pytest.mark.parametrize("t", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("how", ["none", "symmetric"])
def test_heat_diffuses_as_the_exponential_of_the_laplacian_says(t: float, how: str) -> None:
    edge_index, weight = weighted_random(12, 0.4, 0)
    L, x = made(edge_index, 12, weight, how), signals()
    expected = scipy.linalg.expm(-t * L.dense().numpy()) @ x.numpy()
    found = spectral_filter(spectrum(L), x, lambda values: (-t * values).exp())
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [4, 5, 9])
def test_the_splines_are_scipys(count: int) -> None:
    x = torch.linspace(0, 2, 41, dtype=torch.float64)
    knots = np.concatenate((np.zeros(3), np.linspace(0, 2, count - 2), np.full(3, 2.0)))
    expected = scipy.interpolate.BSpline.design_matrix(x.numpy(), knots, 3).toarray()
    found = splines(x, count)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.sum(1), torch.ones(41, dtype=torch.float64))
    beyond = splines(torch.tensor([-1e-9, 2 + 1e-9], dtype=torch.float64), count)
    torch.testing.assert_close(beyond, found[[0, -1]])


def test_a_layer_is_its_formula_with_dense_matrices() -> None:
    edge_index, weight = weighted_random(12, 0.4, 0)
    torch.manual_seed(0)
    conv, x = SpectralConv(3, 2, knots=5, edge_weight="first").double(), signals()
    values, U = torch.linalg.eigh(made(edge_index, 12, weight, "symmetric").dense())
    knots = np.concatenate((np.zeros(3), np.linspace(0, 2, 3), np.full(3, 2.0)))
    B = scipy.interpolate.BSpline.design_matrix(values.clamp(0, 2).numpy(), knots, 3).toarray()
    expected = conv.bias + sum(
        U @ torch.diag(torch.from_numpy(B[:, j])) @ U.T @ x @ conv.theta[j].T for j in range(5)
    )
    torch.testing.assert_close(conv(x, edge_index, weight[:, None]), expected, rtol=0, atol=1e-10)


def test_neither_the_order_of_nodes_nor_the_basis_of_an_eigenspace_matters() -> None:
    """On a cycle every eigenspace but two has two dimensions: renumbered, LAPACK returns another basis."""
    torch.manual_seed(0)
    model, x = spectral_network(3, 0, 4).double().eval(), signals(12)
    edges = torch.cat((cycle(8), path(4) + 8), 1)
    found = model(x, edges, nothing(edges), torch.tensor([8, 4]))
    order = torch.randperm(12, generator=Generator().manual_seed(3))
    moved = model(x[order], order.argsort()[edges], nothing(edges), torch.tensor([12]))
    torch.testing.assert_close(moved, found[order], rtol=0, atol=1e-10)
    alone = model(x[8:], path(4), nothing(path(4)), torch.tensor([4]))
    torch.testing.assert_close(found[8:], alone, rtol=0, atol=1e-10)  # graphs do not mix


def test_a_node_looks_at_its_whole_component() -> None:
    torch.manual_seed(0)
    conv, x = SpectralConv(3, 2).double(), signals(12).requires_grad_()
    edges = torch.cat((path(9), path(3) + 9), 1)
    (gradient,) = torch.autograd.grad(conv(x, edges, nothing(edges))[0].sum(), x)
    assert gradient[:9].any(1).all()
    assert gradient[9:].abs().max() < 1e-12


def test_the_response_of_a_layer_is_what_it_multiplies_an_eigenvector_by() -> None:
    torch.manual_seed(0)
    conv = SpectralConv(3, 2).double()
    values, U = torch.linalg.eigh(made(path(7), 7, None, "symmetric").dense())
    x = torch.zeros(7, 3, dtype=torch.float64)
    x[:, 1] = U[:, 4]
    expected = U[:, 4, None] * conv.response(values)[4, :, 1]
    torch.testing.assert_close(conv(x, path(7), nothing(path(7))), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_nodes_without_edges_get_numbers(size: int) -> None:
    torch.manual_seed(0)
    conv, x = SpectralConv(3, 2).double(), signals(size)
    none = torch.zeros(2, 0, dtype=torch.int64)
    torch.testing.assert_close(conv(x, none, nothing(none)), x @ conv.theta[0].T, rtol=0, atol=1e-12)


def test_bad_options_and_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="knots must be at least 4: got 3"):
        SpectralConv(3, 2, knots=3)
    conv = SpectralConv(3, 2).double()
    one_way = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="an edge 0 -> 1, but none 1 -> 0"):
        conv(signals(2), one_way, nothing(one_way))
    monkeypatch.setattr(graph_fourier, "MOST_NODES", 8)
    with pytest.raises(ValueError, match="at most 8 nodes: got 9"):
        conv(signals(9), path(9), nothing(path(9)))
