"""The graph Laplacian against its definition, scipy's, and graphs whose spectrum is known."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import laplacian as scipy_laplacian
from torch import Generator, Tensor

from margin.geometric.spectral.laplacian import (
    DENSE,
    Symmetric,
    adjacency,
    cycle,
    dirichlet_energy,
    laplacian,
    largest_bound,
    largest_eigenvalue,
    path,
    rescaled,
    undirected,
    weighted_random,
)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    return weighted_random(12, 0.4, seed)


def made(edge_index: Tensor, size: int, weight: Tensor | None = None, how: str = "none") -> Symmetric:
    return laplacian(adjacency(edge_index, size, weight, dtype=torch.float64), normalization=how)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_each_node_lacks_of_its_neighbors(seed: int) -> None:
    edge_index, weight = drawn(seed)
    x = torch.randn(12, 3, dtype=torch.float64, generator=Generator().manual_seed(seed))
    expected, energy = torch.zeros_like(x), torch.zeros(3, dtype=torch.float64)
    for (m, n), a in zip(edge_index.T.tolist(), weight.tolist(), strict=True):
        expected[n] += a * (x[n] - x[m])
        energy += 0.5 * a * (x[n] - x[m]) ** 2
    L = made(edge_index, 12, weight)
    torch.testing.assert_close(L @ x, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close((x * (L @ x)).sum(0), energy, rtol=0, atol=1e-12)
    own = dirichlet_energy(adjacency(edge_index, 12, weight), x)
    torch.testing.assert_close(own, energy, rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", ["none", "symmetric"])
@pytest.mark.parametrize("loops", [False, True])
def test_it_is_scipys(how: str, loops: bool) -> None:
    """A loop is in neither: counted in the degree, it would change the normalized one."""
    edge_index, weight = drawn()
    if loops:
        edge_index = torch.cat((edge_index, torch.tensor([[0, 3, 11], [0, 3, 11]])), 1)
        weight = torch.cat((weight, torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64)))
    matrix = coo_array((weight.numpy(), edge_index.numpy()), shape=(12, 12))
    expected = scipy_laplacian(matrix.tocsr(), normed=how == "symmetric").toarray()
    np.testing.assert_allclose(made(edge_index, 12, weight, how).dense().numpy(), expected, atol=1e-12)
    assert not expected[11].any()  # an isolated node's row is 0 in both


def test_its_sign_is_opposite_to_that_of_calculus() -> None:
    """On a line with spacing h, -L f / h^2 approaches f''."""
    h = 1e-3
    t = h * torch.arange(1000, dtype=torch.float64)
    f = torch.sin(3 * t)
    second = -(made(path(1000), 1000) @ f[:, None])[1:-1, 0] / h**2
    torch.testing.assert_close(second, -9 * f[1:-1], rtol=0, atol=1e-4)


def test_no_eigenvalue_is_negative_and_as_many_are_0_as_there_are_components() -> None:
    edge_index = torch.cat((cycle(5), path(4) + 5, undirected([(9, 10)])), 1)  # and 11, 12 alone
    for how in ("none", "symmetric"):
        values = torch.linalg.eigvalsh(made(edge_index, 13, None, how).dense())
        assert values[0] > -1e-12
        assert int((values < 1e-10).sum()) == 5


def test_the_normalized_spectrum_ends_at_2_exactly_where_a_component_is_bipartite() -> None:
    for edge_index, size, ends in ((cycle(6), 6, True), (cycle(7), 7, False), (path(5), 5, True)):
        values = torch.linalg.eigvalsh(made(edge_index, size, None, "symmetric").dense())
        assert values[-1] <= 2 + 1e-12
        assert (abs(float(values[-1]) - 2) < 1e-10) == ends
    mixed = torch.cat((cycle(7), cycle(6) + 7), 1)
    assert abs(float(torch.linalg.eigvalsh(made(mixed, 13, None, "symmetric").dense())[-1]) - 2) < 1e-10


def test_edges_between_the_same_nodes_add_up_and_an_edge_of_weight_0_is_none() -> None:
    twice = made(torch.cat((path(3), path(3)), 1), 3).dense()
    torch.testing.assert_close(twice, 2 * made(path(3), 3).dense())
    weight = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    L = made(path(3), 3, weight, "symmetric")
    assert bool(L.values.isfinite().all())
    torch.testing.assert_close(
        L.dense(), torch.tensor([[1.0, -1, 0], [-1, 1, 0], [0, 0, 0]], dtype=torch.float64)
    )


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_graph_without_edges_has_the_laplacian_0(size: int) -> None:
    for how in ("none", "symmetric"):
        L = made(torch.zeros(2, 0, dtype=torch.int64), size, None, how)
        assert len(L.values) == 0
        assert (L @ torch.ones(size, 2, dtype=torch.float64)).shape == (size, 2)
        assert largest_bound(L) == 0
        assert largest_eigenvalue(L) == (0.0, 0.0)
        torch.testing.assert_close(rescaled(L, 0.0).dense(), -torch.eye(size, dtype=torch.float64))


def test_what_is_no_undirected_graph_is_refused() -> None:
    with pytest.raises(ValueError, match=r"an edge 1 -> 2, but none 2 -> 1"):
        adjacency(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3)
    with pytest.raises(ValueError, match=r"an edge 2 -> 0, but none 0 -> 2"):
        adjacency(torch.tensor([[0, 2, 1], [1, 0, 0]]), 3)
    with pytest.raises(ValueError, match=r"1 -> 0 weighs 1\.5, 0 -> 1 weighs 1"):
        adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([1.0, 1.5]))
    with pytest.raises(ValueError, match="edge 1 has -1"):
        adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="edge 0 has nan"):
        adjacency(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([math.nan, 1.0]))
    with pytest.raises(ValueError, match=r"nodes 0 \.\. 1: got 0 \.\. 2"):
        adjacency(torch.tensor([[0, 2], [2, 0]]), 2)


@pytest.mark.parametrize("how", ["none", "symmetric"])
def test_rescaling_brings_the_spectrum_into_its_interval(how: str) -> None:
    edge_index, weight = drawn()
    L = made(edge_index, 12, weight, how)
    exact, error = largest_eigenvalue(L)
    values = torch.linalg.eigvalsh(L.dense())
    assert abs(exact - float(values[-1])) < 1e-12
    assert error < 1e-12
    assert largest_bound(L) >= exact
    for largest in (exact, largest_bound(L)):
        expected = 2 * L.dense() / largest - torch.eye(12, dtype=torch.float64)
        torch.testing.assert_close(rescaled(L, largest).dense(), expected, rtol=0, atol=1e-12)
        assert torch.linalg.eigvalsh(expected).abs().max() < 1 + 1e-12
    with pytest.raises(ValueError, match="finite and positive: got 0"):
        rescaled(L, 0.0)


def test_the_bound_of_the_largest_eigenvalue_is_attained() -> None:
    """2 by any bipartite graph, twice the degree by a regular one."""
    for how, bound in (("symmetric", 2.0), ("none", 4.0)):
        L = made(cycle(8), 8, None, how)
        assert largest_bound(L) == bound
        assert abs(largest_eigenvalue(L)[0] - bound) < 1e-12


@pytest.mark.parametrize("size", [DENSE, DENSE + 101])
def test_the_largest_eigenvalue_of_a_small_graph_and_of_a_large_one(size: int) -> None:
    """A cycle, whose eigenvalues are at most 4, and apart an edge of weight 5, whose eigenvalue is 10."""
    edge_index = torch.cat((cycle(size - 2), undirected([(size - 2, size - 1)])), 1)
    weight = torch.ones(edge_index.shape[1], dtype=torch.float64)
    weight[-2:] = 5.0  # alone at the end of the spectrum: 10
    value, error = largest_eigenvalue(made(edge_index, size, weight))
    assert value - 1e-9 <= 10 <= value + error + 1e-9
    assert error < 1e-3


def test_derivatives_flow_into_signals_and_weights() -> None:
    edge_index, weight = drawn()
    half = len(weight) // 2
    x = torch.randn(12, 2, dtype=torch.float64, generator=Generator().manual_seed(1), requires_grad=True)
    w = weight[:half].clone().requires_grad_()

    def applied(x: Tensor, w: Tensor) -> Tensor:
        return made(edge_index, 12, torch.cat((w, w)), "symmetric") @ x

    assert torch.autograd.gradcheck(applied, (x, w))
