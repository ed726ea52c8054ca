"""Polynomial filters: their spectral form, their reach, and what a polynomial of degree M - 1 can do."""

import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.spectral.laplacian import Symmetric, adjacency, cycle, laplacian, path, weighted_random
from margin.geometric.spectral.polynomial_filter import (
    PolynomialConv,
    interpolating,
    polynomial_filter,
    polynomial_network,
)


def made(edge_index: Tensor, size: int, weight: Tensor | None = None, how: str = "none") -> Symmetric:
    return laplacian(adjacency(edge_index, size, weight, dtype=torch.float64), normalization=how)


def signals(size: int = 12, count: int = 3) -> Tensor:
    return torch.randn(size, count, dtype=torch.float64, generator=Generator().manual_seed(1))


def nothing(edge_index: Tensor) -> Tensor:
    return torch.zeros(edge_index.shape[1], 0, dtype=torch.float64)


@pytest.mark.parametrize("degree", [0, 1, 2, 4])
def test_a_polynomial_of_the_matrix_is_one_of_its_eigenvalues(degree: int) -> None:
    """The power is on Lambda, the sum begins at k = 0: K + 1 coefficients."""
    edge_index, weight = weighted_random(12, 0.4, 0)
    L, x = made(edge_index, 12, weight), signals()
    alpha = torch.randn(degree + 1, dtype=torch.float64, generator=Generator().manual_seed(2))
    values, U = torch.linalg.eigh(L.dense())
    response = sum(alpha[k] * values**k for k in range(degree + 1))
    found = polynomial_filter(L, x, alpha)
    torch.testing.assert_close(found, U @ (response[:, None] * (U.T @ x)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize("how", ["symmetric", "none"])
def test_a_layer_mixes_channels_each_with_its_own_polynomial(degree: int, how: str) -> None:
    """Output m is the sum over n of p_mn(L) x_n, plus b_m: a number an output channel."""
    edge_index, weight = weighted_random(12, 0.4, 0)
    torch.manual_seed(0)
    conv = PolynomialConv(3, 2, degree=degree, normalization=how, edge_weight="first").double()
    with torch.no_grad():
        conv.bias.copy_(torch.tensor([0.5, -2.0]))
    L, x = made(edge_index, 12, weight, how).dense(), signals()
    expected = torch.zeros(12, 2, dtype=torch.float64)
    for m in range(2):
        for n in range(3):
            p = sum(conv.alpha[k, m, n] * torch.linalg.matrix_power(L, k) for k in range(degree + 1))
            expected[:, m] += p @ x[:, n]
        expected[:, m] += conv.bias[m]
    torch.testing.assert_close(conv(x, edge_index, weight[:, None]), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("degree", "layers"), [(0, 1), (1, 1), (3, 1), (2, 2)])
def test_a_node_looks_exactly_so_many_edges_far(degree: int, layers: int) -> None:
    torch.manual_seed(0)
    model = polynomial_network(3, 0, 4, hidden=32, layers=layers, degree=degree).double().eval()
    edge_index, x = path(15), signals(15).requires_grad_()
    logits = model(x, edge_index, nothing(edge_index), torch.tensor([15]))
    (gradient,) = torch.autograd.grad(logits[7].sum(), x)
    far = (torch.arange(15) - 7).abs()
    assert not gradient[far > degree * layers].any()
    assert bool(gradient[far == degree * layers].any(1).all())


def test_degree_m_minus_1_reproduces_any_filter_with_distinct_eigenvalues() -> None:
    L, x = made(path(7), 7), signals(7)
    values, U = torch.linalg.eigh(L.dense())
    response = torch.randn(7, dtype=torch.float64, generator=Generator().manual_seed(3))
    alpha = interpolating(values, response)
    assert len(alpha) == 7
    expected = U @ (response[:, None] * (U.T @ x))
    torch.testing.assert_close(polynomial_filter(L, x, alpha), expected, rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match="eigenvalues that repeat"):
        interpolating(torch.tensor([0.0, 1.0, 1.0]), torch.zeros(3))


def test_the_response_of_a_layer_is_what_it_multiplies_an_eigenvector_by() -> None:
    torch.manual_seed(0)
    conv = PolynomialConv(3, 2, degree=3).double()
    values, U = torch.linalg.eigh(made(cycle(7), 7, None, "symmetric").dense())
    x = torch.zeros(7, 3, dtype=torch.float64)
    x[:, 1] = U[:, 6]
    expected = U[:, 6, None] * conv.response(values)[6, :, 1]
    torch.testing.assert_close(conv(x, cycle(7), nothing(cycle(7))), expected, rtol=0, atol=1e-10)


def test_bad_options_and_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="degree must be at least 0: got -1"):
        PolynomialConv(3, 2, degree=-1)
    one_way = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="an edge 0 -> 1, but none 1 -> 0"):
        PolynomialConv(3, 2)(signals(2).float(), one_way, nothing(one_way).float())
