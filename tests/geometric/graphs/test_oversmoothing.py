"""Rates, limits and energies against dense eigenvalues, sums over edges, and graphs solved by hand."""

import math
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs import oversmoothing as o
from margin.geometric.graphs.weisfeiler_leman import both_ways, ring


def drawn_graph(seed: int, nodes: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Edges both ways with weights, a dense A, of a graph with several components, loops and lone nodes."""
    generator = Generator().manual_seed(seed)
    A = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64)
    A = torch.where(torch.rand(nodes, nodes, generator=generator) < 0.12, A, 0.0)
    A = A.triu()
    A = A + A.T.tril(-1)
    edge_index = A.nonzero().T.contiguous()
    return edge_index, A[edge_index[0], edge_index[1]], A


def dense(A: Tensor) -> tuple[Tensor, Tensor]:
    B = A + torch.eye(len(A), dtype=torch.float64)
    d = B.sum(1)
    return B / (d[:, None] * d[None, :]).sqrt(), d


@pytest.mark.parametrize("seed", range(8))
def test_matrix_limit_rate_and_energy_against_dense_ones(seed: int) -> None:
    edge_index, weight, A = drawn_graph(seed)
    A_hat, d = dense(A)
    found = o.smoothing_of(edge_index, 12, weight)
    torch.testing.assert_close(found.matrix.to_dense(), A_hat, rtol=0, atol=1e-14)
    values, vectors = torch.linalg.eigh(A_hat)
    ones = (values - 1).abs() < 1e-9
    x = torch.randn(12, 3, generator=Generator().manual_seed(seed), dtype=torch.float64)
    graph = nx.from_numpy_array(A.numpy())
    assert int(ones.sum()) == nx.number_connected_components(graph)
    U = vectors[:, ones]
    torch.testing.assert_close(o.limit(found, x), U @ U.T @ x, rtol=0, atol=1e-12)
    assert o.rate(found).value == pytest.approx(float(values[~ones].abs().max()), abs=1e-12)
    by_edges = sum(
        0.5 * float(A[m, n]) * float((x[m] / d[m].sqrt() - x[n] / d[n].sqrt()).square().sum())
        for m in range(12)
        for n in range(12)
    )
    assert o.dirichlet_energy(found, x) == pytest.approx(by_edges, abs=1e-12)


def test_features_end_at_the_root_of_the_degree_not_at_one_value() -> None:
    edges = both_ways([(0, 1), (1, 2), (3, 4)])
    found = o.smoothing_of(edges, 6)
    x = torch.randn(6, 1, generator=Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(300):
        x = found.matrix @ x
    shares = x[:, 0] / torch.tensor([2, 3, 2, 2, 2, 1], dtype=torch.float64).sqrt()
    torch.testing.assert_close(shares[:3], shares[:1].expand(3), rtol=1e-9, atol=0)
    torch.testing.assert_close(shares[3:5], shares[3:4].expand(2), rtol=1e-9, atol=0)
    assert abs(float(shares[0] - shares[3])) > 1e-3  # each component has its own
    assert abs(float(x[0] - x[1])) > 1e-3  # not one value


@pytest.mark.parametrize("size", [5, 8, 600])
def test_the_rate_of_a_ring_is_known(size: int) -> None:
    """Eigenvalues (1 + 2 cos(2 pi k / n)) / 3: the largest is 1, the next the one of k = 1."""
    found = o.rate(o.smoothing_of(both_ways(ring(size)), size))
    known = (1 + 2 * math.cos(2 * math.pi / size)) / 3
    assert found.converged
    assert found.value == pytest.approx(known, abs=1e-9)
    assert found.signed > 0


def test_the_rate_may_be_that_of_a_negative_eigenvalue() -> None:
    """K_{3,3} has -1/2 (d = 4, adjacency -3: (-3 + 1) / 4) and 1/4 besides 1."""
    edges = both_ways([(i, 3 + j) for i in range(3) for j in range(3)])
    found = o.rate(o.smoothing_of(edges, 6))
    assert found.value == pytest.approx(0.5, abs=1e-12)
    assert found.signed == pytest.approx(-0.5, abs=1e-12)


def test_lone_nodes_stay_and_have_no_rate() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    found = o.smoothing_of(none, 3)
    x = torch.randn(3, 2, dtype=torch.float64)
    torch.testing.assert_close(o.limit(found, x), x)
    assert o.rate(found).value == pytest.approx(0, abs=1e-15)
    assert o.dirichlet_energy(found, x) == pytest.approx(0, abs=1e-15)


def test_distances_fall_as_the_powers_and_stay_right_far_below_rounding() -> None:
    found = o.smoothing_of(both_ways(ring(5)), 5)
    x = torch.randn(5, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    gaps = o.distances(found, x, 200)
    torch.testing.assert_close(gaps[0], (x - x.mean(0)).norm())
    rate = (1 + 2 * math.cos(2 * math.pi / 5)) / 3
    assert float(gaps[200] / gaps[199]) == pytest.approx(rate, rel=1e-6)
    assert bool((gaps[1:] <= rate * gaps[:-1] * (1 + 1e-9)).all())


def test_energy_falls_by_the_square_of_the_rate_at_least() -> None:
    for seed in range(5):
        edge_index, weight, _ = drawn_graph(seed)
        found = o.smoothing_of(edge_index, 12, weight)
        x = torch.randn(12, 3, generator=Generator().manual_seed(seed), dtype=torch.float64)
        assert o.dirichlet_energy(found, found.matrix @ x) <= o.rate(found).value ** 2 * o.dirichlet_energy(
            found, x
        ) * (1 + 1e-9)


def test_a_directed_graph_and_negative_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="must be undirected"):
        o.smoothing_of(torch.tensor([[0], [1]]), 2)
    with pytest.raises(ValueError, match="must be undirected"):
        o.smoothing_of(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="at least 0"):
        o.smoothing_of(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([-1.0, -1.0]))
    with pytest.raises(ValueError, match="at least 0"):
        o.smoothing_of(torch.tensor([[0, 1], [1, 0]]), 2, torch.tensor([math.nan, math.nan]))


def test_cora_has_78_components_and_the_rate_of_the_literature() -> None:
    root = os.environ.get("MARGIN_DATA", "")
    path = Path(root) / "planetoid" / "cora.npz"
    if not root or not path.exists():
        pytest.skip("MARGIN_DATA has no Cora")
    with np.load(path) as held:
        edge_index = torch.from_numpy(held["edge_index"].astype(np.int64))
        nodes = len(held["labels"] if "labels" in held else held["y"])
    found = o.smoothing_of(both_ways(map(tuple, edge_index.T.tolist())), nodes)
    assert int(found.component.max()) + 1 == 78
    assert o.rate(found).value == pytest.approx(0.99638, abs=5e-6)
