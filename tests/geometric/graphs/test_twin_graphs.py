"""The pairs are refined alike and not isomorphic, by networkx and by invariants counted by hand."""

import json
import os
from pathlib import Path

import networkx as nx
import pytest
import torch

from margin.geometric.graphs.weisfeiler_leman import (
    both_ways,
    path_and_star,
    told_apart,
    told_apart_by_pairs,
    twins,
)


def graph_of(edges: torch.Tensor, nodes: int) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.T.tolist())
    return graph


@pytest.mark.parametrize("pair", twins(), ids=lambda pair: pair.name)
def test_refinement_tells_none_apart_and_none_is_isomorphic(pair) -> None:
    one, other = graph_of(pair.one, pair.nodes), graph_of(pair.other, pair.nodes)
    assert sorted(dict(one.degree).values()) == sorted(dict(other.degree).values())
    for graph in (one, other):
        nx.set_node_attributes(graph, "0", "color")
    hashes = {nx.weisfeiler_lehman_graph_hash(graph, node_attr="color") for graph in (one, other)}
    assert len(hashes) == 1
    assert not told_apart(pair.one, pair.other, (pair.nodes, pair.nodes))
    if pair.nodes < 41:
        assert not nx.is_isomorphic(one, other)
    by_pairs = told_apart_by_pairs(pair.one, pair.other, (pair.nodes, pair.nodes))
    assert by_pairs == (pair.name != "rook, Shrikhande")


def test_the_circular_skips_differ_in_closed_walks() -> None:
    pair = next(pair for pair in twins() if pair.nodes == 41)
    counts = []
    for edges in (pair.one, pair.other):
        A = torch.zeros(41, 41, dtype=torch.float64)
        A[edges[0], edges[1]] = 1
        counts.append([float(torch.linalg.matrix_power(A, k).trace()) for k in (2, 3, 4)])
    assert counts[0][0] == counts[1][0] == 164
    assert counts[0][1] == 6 * 41  # i, i+1, i+2: a triangle at every place
    assert counts[1][1] == 0


def test_path_and_star_are_told_apart_and_the_union_keeps_both() -> None:
    pair = path_and_star()
    assert told_apart(pair.one, pair.other, (4, 4))
    whole = graph_of(pair.union, 8)
    assert sorted(map(len, nx.connected_components(whole))) == [4, 4]
    assert sorted(dict(whole.degree).values()) == [1, 1, 1, 1, 1, 2, 2, 3]


def test_edges_are_held_once_in_each_direction() -> None:
    assert both_ways([(0, 1), (1, 0), (1, 2)]).T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_they_are_those_of_the_given_file() -> None:
    root = os.environ.get("MARGIN_DATA", "")
    path = Path(root) / "wl-pairs" / "wl_pairs.json"
    if not root or not path.exists():
        pytest.skip("MARGIN_DATA has no wl-pairs")
    given = json.loads(path.read_text())
    for pair in (*twins(), path_and_star()):
        hits = [
            row
            for row in given
            if row["n"] == pair.nodes
            and nx.could_be_isomorphic(
                graph_of(both_ways(map(tuple, row["edges_a"])), row["n"]), graph_of(pair.one, row["n"])
            )
            and nx.is_isomorphic(
                graph_of(both_ways(map(tuple, row["edges_b"])), row["n"]), graph_of(pair.other, row["n"])
            )
        ]
        assert len(hits) == 1, pair.name
