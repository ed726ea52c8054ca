"""Graphs in memory as data, of objects and of networkx; new ones by a run's record."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import torch

from margin.data.formats.graphs.graphs import graph_of
from margin.data.formats.graphs.objects import encode_graph_objects, from_graph, from_graphs
from margin.data.formats.graphs.parts import Graphs, Nodes
from margin.data.open import encode, open_data


def ring(count: int = 40, *, masks: bool = False) -> SimpleNamespace:
    at = torch.arange(count)
    found = SimpleNamespace(
        x=at.float()[:, None] % 7, edge_index=torch.stack((at, (at + 1) % count)), y=at % 2
    )
    if masks:
        found.train_mask, found.val_mask, found.test_mask = at < 20, (at >= 20) & (at < 30), at >= 30
    return found


def test_an_object_of_nodes_becomes_data() -> None:
    data = open_data(ring(masks=True), {})
    assert {part: len(nodes) for part, nodes in data.splits.items()} == {"train": 20, "val": 10, "test": 10}
    assert data.encoding["format"] == "graph"
    drawn = from_graph(ring(masks=True), split="random", test=0.5, val=0.0)
    assert {part: len(nodes) for part, nodes in drawn.splits.items()} == {"train": 20, "test": 20}


def test_new_nodes_of_an_object_by_the_record() -> None:
    record = from_graph(ring()).encoding
    new = encode(ring(10), record)
    assert isinstance(new, Nodes)
    assert len(new) == 10
    assert new.targets.tolist() == [0, 1] * 5
    assert len(encode(ring(masks=True), record)) == 10  # its own test part


def village(count: int = 30) -> nx.Graph:
    graph = nx.cycle_graph(count)
    for k in graph.nodes:
        graph.nodes[k].update(size=float(k), kind="ab"[k % 2], label="xy"[k % 2])
    return graph


def test_a_networkx_graph_becomes_data_and_new_ones_are_read_by_its_columns(refused: Callable) -> None:
    data = open_data(village(), {"ignore": ("kind",)})
    train = data.splits["train"]
    assert train.graph.x.shape == (30, 1)
    assert train.graph.num_edges == 60
    assert data.encoding["classes"] == ["x", "y"]
    new = encode(village(8), data.encoding)
    assert new.graph.x.flatten().tolist() == list(range(8))
    assert new.targets.tolist() == [0, 1] * 4
    with refused("trained on arrays of features: got a networkx graph"):
        encode(village(8), from_graph(ring()).encoding)


def test_the_direction_is_networkxs_word_unless_it_is_said() -> None:
    directed = village().to_directed()
    directed.remove_edge(0, 1)
    assert from_graph(directed).splits["train"].graph.num_edges == 59
    assert from_graph(directed, directed="undirected").splits["train"].graph.num_edges == 60
    assert from_graph(village(), directed="directed").splits["train"].graph.num_edges == 30


def many(count: int = 20) -> list[Any]:
    """Rings of 3 and 4 nodes, each with its number of nodes as the target."""
    found = []
    for k in range(count):
        graph = ring(3 + k % 2)
        graph.y = torch.tensor([k % 2])
        graph.edge_attr = torch.ones(3 + k % 2, 1) * k
        found.append(graph)
    return found


def test_a_list_of_objects_becomes_graphs_with_a_target_each() -> None:
    data = open_data(many(), {})
    assert data.encoding["format"] == "graphs"
    train = data.splits["train"]
    assert isinstance(train, Graphs)
    assert train.targets.tolist() == [int(size) - 3 for size in train.graph.sizes]
    assert data.spec["edge_features"] == 1
    values = from_graphs(many(), y=np.arange(20.0))
    assert values.encoding["task"] == "values"


def test_new_graphs_by_the_record() -> None:
    record = open_data(many(), {}).encoding
    new = encode(many(3), record)
    assert new.targets.tolist() == [0, 1, 0]
    assert new.graph.sizes.tolist() == [3, 4, 3]
    blank = many(2)
    del blank[0].y
    assert encode_graph_objects(blank, record).targets is None
    assert len(encode_graph_objects(blank[1], record)) == 1


def test_networkx_graphs_share_their_categories() -> None:
    """The first graph has only nodes of kind a, the others of b: one width for all."""
    graphs = []
    for k in range(12):
        graph = nx.path_graph(3 + k % 2)
        nx.set_node_attributes(graph, "a" if k == 0 else "b", "kind")
        graph.graph["y"] = k % 2
        graphs.append(graph)
    data = from_graphs(graphs, test=0.25, val=0.0)
    assert data.spec["node_features"] == 2
    every = torch.cat([part.graph.sizes for part in data.splits.values()])
    assert sorted(every.tolist()) == [3] * 6 + [4] * 6
    new = encode(graphs[:2], data.encoding)
    assert new.graph.x.tolist() == [[1, 0]] * 3 + [[0, 1]] * 4
    assert new.targets.tolist() == [0, 1]
    assert new.graph.edge_index.T.tolist()[:4] == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_wrong_graphs_are_named(refused: Callable) -> None:
    broken = many()
    broken[4].edge_index = torch.tensor([[0, 1, 2], [1, 2, 9]])
    with refused("graphs, graph 4: an edge must join nodes"):
        from_graphs(broken)
    broken = many()
    broken[5].x = torch.ones(4, 3)
    with refused("graph 0 has 1, graph 5 has 3"):
        from_graphs(broken)
    broken = many()
    del broken[2].y
    with refused("graph 2 has none"):
        from_graphs(broken)
    broken[2].y = torch.tensor([1, 2])
    with refused("graph 2 has 2"):
        from_graphs(broken)
    with refused("at least one graph"):
        from_graphs([], y=[])
    with refused("graphs must all be networkx's, or none: graph 1 is not"):
        from_graphs([nx.path_graph(2), ring()], y=[0, 1])


def test_our_own_container_is_an_object_too() -> None:
    graphs = [graph_of(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.int64)) for _ in range(12)]
    data = from_graphs(graphs, y=[0, 1] * 6)
    assert len(data.splits["train"]) + len(data.splits["val"]) + len(data.splits["test"]) == 12
