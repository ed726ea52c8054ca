"""The norm of the coupling matrix: 1 where the graph is undirected, refused where it is not."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from margin.core.findings import Verdict
from margin.geometric.graphs import claims as c
from margin.geometric.graphs.gcn import GCN
from margin.geometric.graphs.layers import captured_layers
from margin.geometric.graphs.sparsity import coupling_matrix
from margin.geometric.graphs.weisfeiler_leman import both_ways

SMALL = c.small_gcn()


def on(edges: torch.Tensor, attr: torch.Tensor | None = None, nodes: int = 12, weighted: bool = False):
    batch = SMALL.test[0]
    model = GCN(4, 3, hidden=5, edge_weight="first" if weighted else "none")
    attr = torch.zeros(edges.shape[1], 0) if attr is None else attr
    inputs = (batch.inputs[0][:nodes], edges, attr, torch.tensor([nodes]))
    return replace(SMALL, model=model, test=[batch._replace(inputs=inputs, targets=batch.targets[:nodes])])


@pytest.mark.parametrize("seed", range(6))
def test_the_norm_is_one_on_random_weighted_graphs(seed: int) -> None:
    generator = Generator().manual_seed(seed)
    pairs = torch.randint(12, (2, 9), generator=generator)  # loops and doubles, too
    weights = torch.rand(9, 1, generator=generator)
    edges, attr = torch.cat((pairs, pairs.flip(0)), 1), torch.cat((weights, weights))
    found = c.norm(on(edges, attr, weighted=True))
    assert found.verdict is Verdict.HOLDS
    assert {premise.status for premise in found.premises} == {"proved"}
    matrix = coupling_matrix(edges, 12, attr[:, 0].double()).to_dense()
    values = torch.linalg.eigvalsh(matrix)
    assert float(values[-1]) == pytest.approx(1, abs=1e-12)
    assert float(values[0]) > -1
    root = matrix.new_ones(12).index_add_(0, edges[1], attr[:, 0].double()).sqrt()
    torch.testing.assert_close(matrix @ root, root)


def test_a_directed_graph_has_no_such_promise() -> None:
    """Five edges to one node: its row has norm above .9, and the others' ones add to it."""
    star = torch.stack((torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)))
    found = c.norm(on(star, nodes=6))
    assert found.verdict is Verdict.UNFOUNDED
    A = torch.eye(6, dtype=torch.float64)
    A[0, 1:], A[0, 0] = 6**-0.5, 1 / 6
    assert float(found.value[0]) == pytest.approx(float(torch.linalg.matrix_norm(A, 2)), abs=1e-12)
    assert float(found.value[0]) > 1.1


def test_weights_of_two_directions_that_differ_are_directed() -> None:
    edges = both_ways([(0, 1)])
    found = c.norm(on(edges, torch.tensor([[1.0], [2.0]]), weighted=True))
    assert found.verdict is Verdict.UNFOUNDED
    assert any("other direction" in premise.evidence for premise in found.premises)


def test_large_graphs_go_by_lanczos_and_agree(monkeypatch) -> None:
    matrix = c.matrix_of(captured_layers(SMALL).calls[0].layer, captured_layers(SMALL))
    exact = c.spectral_norm(matrix)[0]
    monkeypatch.setattr(c, "DENSE", 3)
    value, error = c.spectral_norm(matrix)
    assert value == pytest.approx(exact, abs=1e-9)
    assert error < 1e-7
    assert c.norm(SMALL).verdict is Verdict.HOLDS
    star = torch.stack((torch.arange(1, 6), torch.zeros(5, dtype=torch.int64)))
    found = captured_layers(on(star, nodes=6))
    matrix = c.matrix_of(found.calls[0].layer, found)
    known = float(torch.linalg.matrix_norm(matrix.to_dense(), 2))
    assert known > 1.1  # the root of the square's eigenvalue, not a power of 1
    assert c.spectral_norm(matrix)[0] == pytest.approx(known, abs=1e-9)


def test_no_edges_leave_the_identity() -> None:
    found = c.norm(on(torch.zeros(2, 0, dtype=torch.int64)))
    assert found.verdict is Verdict.HOLDS


def test_it_is_asked_of_gcn_alone() -> None:
    assert c.is_gcn(SMALL)
    assert not c.is_gcn(replace(SMALL, model=torch.nn.Linear(4, 3)))


def test_cora_has_norm_one() -> None:
    root = os.environ.get("MARGIN_DATA", "")
    path = Path(root) / "planetoid" / "cora.npz"
    if not root or not path.exists():
        pytest.skip("MARGIN_DATA has no Cora")
    with np.load(path) as held:
        edges = torch.from_numpy(held["edge_index"].astype(np.int64))
    matrix = coupling_matrix(edges, 2708, torch.ones(edges.shape[1], dtype=torch.float64))
    assert c.is_symmetric(matrix)
    value, error = c.spectral_norm(matrix)
    assert abs(value - 1) <= 1e-12 + error
    assert error < 1e-7
