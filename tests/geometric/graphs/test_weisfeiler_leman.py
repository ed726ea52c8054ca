"""Color refinement against nested tuples, networkx's hashes, and pairs of graphs known by hand."""

import json
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from margin.geometric.graphs import weisfeiler_leman as wl


def edges_of(graph: nx.Graph) -> Tensor:
    pairs = [pair for a, b in graph.edges for pair in {(a, b), (b, a)}]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def by_tuples(edges: list, colors: list, labels: list, rounds: int) -> list:
    """The same by nested tuples, which forget nothing and grow exponentially."""
    for _ in range(rounds):
        seen = [[] for _ in colors]
        for (source, target), label in zip(edges, labels, strict=True):
            seen[target].append((colors[source], label))
        colors = [(own, tuple(sorted(near))) for own, near in zip(colors, seen, strict=True)]
        names = {color: k for k, color in enumerate(sorted(set(colors)))}
        colors = [names[color] for color in colors]
    return colors


def classes(colors) -> set[frozenset[int]]:
    found: dict = {}
    for node, color in enumerate(colors):
        found.setdefault(color, set()).add(node)
    return {frozenset(nodes) for nodes in found.values()}


@pytest.fixture(params=["numbers", "collisions"], autouse=True)
def sums(request, monkeypatch) -> None:
    """Everything holds where all sums of colors collide, and multisets have to be named."""
    if request.param == "collisions":
        monkeypatch.setattr(wl, "scattered", lambda names: np.zeros(len(names), np.uint64))


@pytest.mark.parametrize("seed", range(30))
def test_the_classes_are_those_of_nested_tuples(seed: int) -> None:
    generator = Generator().manual_seed(seed)
    nodes = int(torch.randint(1, 14, (), generator=generator))
    count = int(torch.randint(0, 3 * nodes, (), generator=generator))
    edge_index = torch.randint(nodes, (2, count), generator=generator)  # directed, with loops and doubles
    colors = torch.randint(2, (nodes,), generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    for rounds in (0, 1, 2, nodes):
        found = wl.refined(edge_index, nodes, colors=colors, labels=labels, rounds=rounds)
        expected = by_tuples(edge_index.T.tolist(), colors.tolist(), labels.tolist(), rounds)
        assert classes(found.colors.tolist()) == classes(expected)
        assert found.rounds <= rounds
    stable = wl.refined(edge_index, nodes, colors=colors, labels=labels)
    assert torch.equal(found.colors, stable.colors)
    assert found.rounds == stable.rounds


@pytest.mark.parametrize("seed", range(5))
def test_a_relabeled_node_keeps_its_color(seed: int) -> None:
    graph = nx.gnm_random_graph(40, 60, seed=seed)
    edges, perm = edges_of(graph), torch.randperm(40, generator=Generator().manual_seed(seed))
    one, two = wl.refined(edges, 40), wl.refined(perm[edges], 40)
    assert torch.equal(one.colors, two.colors[perm])
    assert one.rounds == two.rounds >= 2
    assert not wl.told_apart(edges, perm[edges], (40, 40))
    assert not wl.told_apart_by_pairs(edges, perm[edges], (40, 40))


def test_a_sequence_is_not_confused_with_its_pairs() -> None:
    """Degrees around the powers of two, where a node is paired with nothing: each has a color of its own."""
    degrees = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17]
    target = torch.repeat_interleave(torch.arange(len(degrees)), torch.tensor(degrees))
    source = torch.full_like(target, len(degrees))
    found = wl.refined(torch.stack((source, target)), len(degrees) + 1, rounds=1)
    assert len(set(found.colors.tolist()[:-1])) == len(degrees)


def test_a_star_sees_how_many_of_each_color() -> None:
    """Centers whose neighbors have colors 0011 and 0111 differ; 0011 and 1100, in another order, do not."""
    leaves = [[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0]]
    source = torch.arange(12)
    target = 12 + torch.repeat_interleave(torch.arange(3), 4)
    colors = torch.tensor([c for group in leaves for c in group] + [2, 2, 2])
    centers = wl.refined(torch.stack((source, target)), 15, colors=colors).colors[12:].tolist()
    assert centers[0] == centers[2] != centers[1]


def test_what_a_round_cannot_see_and_what_it_can() -> None:
    hexagon, triangles = nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    assert not wl.told_apart(edges_of(hexagon), edges_of(triangles), (6, 6))
    assert wl.told_apart_by_pairs(edges_of(hexagon), edges_of(triangles), (6, 6))
    path, star = nx.path_graph(4), nx.star_graph(3)
    assert wl.told_apart(edges_of(path), edges_of(star), (4, 4))
    assert wl.told_apart(edges_of(path), edges_of(nx.path_graph(5)), (4, 5))
    # two strongly regular graphs with the same parameters: neither 1-WL nor pairs tell them apart
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    rook = nx.convert_node_labels_to_integers(rook)
    steps = {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)}
    cells = [(a, b) for a in range(4) for b in range(4)]
    shrikhande = nx.Graph()
    shrikhande.add_nodes_from(range(16))
    for i, (a, b) in enumerate(cells):
        for j, (c, d) in enumerate(cells):
            if ((c - a) % 4, (d - b) % 4) in steps:
                shrikhande.add_edge(i, j)
    assert not nx.is_isomorphic(rook, shrikhande)
    assert not wl.told_apart(edges_of(rook), edges_of(shrikhande), (16, 16))
    assert not wl.told_apart_by_pairs(edges_of(rook), edges_of(shrikhande), (16, 16))


def test_pairs_never_see_less_than_nodes() -> None:
    graphs = [nx.gnm_random_graph(7, 8, seed=seed) for seed in range(12)]
    for i, one in enumerate(graphs):
        for other in graphs[:i]:
            given = edges_of(one), edges_of(other), (7, 7)
            assert wl.told_apart_by_pairs(*given) >= wl.told_apart(*given)
            assert wl.told_apart_by_pairs(*given) == (
                not nx.is_isomorphic(one, other)
            )  # at 7 nodes it is all


def test_the_given_pairs_are_as_their_list_says() -> None:
    file = Path(os.environ.get("MARGIN_DATA", "")) / "wl-pairs" / "wl_pairs.json"
    if not file.is_file():
        pytest.skip("MARGIN_DATA names no folder with wl-pairs")
    pairs = json.loads(file.read_text())
    for pair in pairs:
        both = [torch.tensor(pair[key]).reshape(-1, 2).T for key in ("edges_a", "edges_b")]
        edges = [torch.cat((one, one.flip(0)), 1) for one in both]
        apart = wl.told_apart(*edges, (pair["n"], pair["n"]))
        assert apart == pair.get("wl_distinguishes", "control" in pair["name"]), pair["name"]


def test_rounds_agree_with_networkx() -> None:
    graph = nx.gnm_random_graph(200, 320, seed=3)
    nx.set_node_attributes(graph, "0", "color")
    hashes = nx.weisfeiler_lehman_subgraph_hashes(graph, node_attr="color", iterations=3)
    for rounds in (1, 2, 3):
        ours = wl.refined(edges_of(graph), 200, rounds=rounds).colors.tolist()
        assert classes(ours) == classes([hashes[node][rounds - 1] for node in range(200)])


def test_colors_are_counted_graph_by_graph() -> None:
    triangle, path = nx.cycle_graph(3), nx.path_graph(3)
    both = edges_of(nx.disjoint_union(triangle, path))
    counts = wl.counts_of(wl.refined(both, 6), torch.tensor([3, 0, 3]))
    assert sorted(map(sorted, counts.tolist())) == [[0, 0, 0], [0, 0, 3], [0, 1, 2]]


def test_what_is_empty_is_defined() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert wl.refined(none, 0).colors.tolist() == []
    assert wl.refined(none, 3)[0].tolist() == [0, 0, 0]
    assert not wl.told_apart(none, none, (2, 2))
    assert wl.told_apart(none, none, (2, 3))


def test_what_does_not_fit_is_refused() -> None:
    edges = torch.tensor([[0], [3]])
    with pytest.raises(ValueError, match=r"nodes 0 .. 2: got 0 .. 3"):
        wl.refined(edges, 3)
    with pytest.raises(ValueError, match="colors must be 4 whole numbers"):
        wl.refined(edges, 4, colors=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="at most 128 nodes: got 129"):
        wl.told_apart_by_pairs(edges, edges, (129, 4))
