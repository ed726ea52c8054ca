"""Distances and components against networkx and by hand."""

import math

import networkx as nx
import pytest
import torch
from torch import Generator

from margin.geometric.graphs.message_passing import components, steps_to


@pytest.mark.parametrize("seed", range(10))
def test_distances_are_networkx_s_along_the_edges(seed: int) -> None:
    generator = Generator().manual_seed(seed)
    edge_index = torch.randint(9, (2, 12), generator=generator)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(9))
    graph.add_edges_from(edge_index.T.tolist())
    found = steps_to(torch.arange(9), edge_index, 9)
    for i in range(9):
        known = nx.single_target_shortest_path_length(graph, i)
        for j in range(9):
            assert found[i, j] == dict(known).get(j, math.inf)
    labels = components(edge_index, 9)
    parts = {frozenset((labels == k).nonzero()[:, 0].tolist()) for k in range(int(labels.max()) + 1)}
    assert parts == set(map(frozenset, nx.weakly_connected_components(graph)))


def test_an_edge_is_gone_along_not_against() -> None:
    edge = torch.tensor([[0], [1]])
    assert steps_to(torch.tensor([1, 0]), edge, 2).tolist() == [[1.0, 0.0], [0.0, math.inf]]


def test_no_edges_and_doubled_edges() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert steps_to(torch.tensor([1]), none, 2).tolist() == [[math.inf, 0.0]]
    assert components(none, 3).tolist() == [0, 1, 2]
    doubled = torch.tensor([[0, 0, 1], [1, 1, 1]])
    assert steps_to(torch.tensor([1]), doubled, 2).tolist() == [[1.0, 0.0]]
