"""The container of graphs: hand cases, dense matrices of small random graphs, every way to be wrong."""

from collections.abc import Callable

import networkx as nx
import pytest
import torch
from torch import Generator, Tensor

from margin.data.formats.graphs.graphs import Graph, graph_of, joined


def edges(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def random_graph(seed: int, nodes: int = 7, count: int = 12, width: int = 2) -> Graph:
    generator = Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, count), generator=generator)
    attr = torch.randint(3, (count, width), generator=generator).float()
    return graph_of(torch.randn(nodes, 3, generator=generator), index, attr)


def dense(graph: Graph) -> Tensor:
    """How often each edge occurs, nodes x nodes."""
    count = torch.zeros(graph.num_nodes, graph.num_nodes)
    return count.index_put_(tuple(graph.edge_index), torch.ones(graph.num_edges), accumulate=True)


def test_a_graph_without_edges_and_one_without_nodes_are_graphs() -> None:
    alone = graph_of(torch.ones(3, 2), edges())
    assert (alone.num_nodes, alone.num_edges, alone.num_graphs) == (3, 0, 1)
    assert alone.edge_attr.shape == (0, 0)
    assert alone.isolated().tolist() == [True] * 3
    assert alone.is_undirected()
    assert alone.undirected().num_edges == 0
    empty = graph_of(torch.ones(0, 2), edges())
    assert (empty.num_nodes, empty.num_graphs) == (0, 1)
    assert empty.isolated().tolist() == []
    assert empty.undirected().num_edges == 0
    both = joined([empty, alone, empty])
    assert both.sizes.tolist() == [0, 3, 0]
    assert [one.num_nodes for one in both.separated()] == [0, 3, 0]


def test_loops_degrees_and_isolation_by_hand() -> None:
    graph = graph_of(torch.ones(5, 1), edges((0, 1), (0, 1), (2, 2), (3, 1)))
    assert graph.in_degrees().tolist() == [0, 3, 1, 0, 0]
    assert graph.self_loops().tolist() == [False, False, True, False]
    assert graph.isolated().tolist() == [False, False, True, False, True]  # a loop joins nothing


@pytest.mark.parametrize("seed", range(20))
def test_undirected_is_the_symmetric_closure(seed: int) -> None:
    graph = random_graph(seed, width=0)
    closed = graph.undirected()
    expected = ((dense(graph) + dense(graph).T) > 0).float()
    assert torch.equal(dense(closed), expected)  # each edge once, a loop once
    assert closed.is_undirected()
    assert torch.equal(closed.undirected().edge_index, closed.edge_index)
    assert graph.is_undirected() == bool(torch.equal(dense(graph), dense(graph).T))


def test_undirected_gives_both_directions_the_edges_features() -> None:
    graph = graph_of(torch.ones(3, 1), edges((2, 0), (1, 1)), torch.tensor([[5.0], [7.0]])).undirected()
    assert graph.edge_index.T.tolist() == [[0, 2], [1, 1], [2, 0]]
    assert graph.edge_attr.flatten().tolist() == [5.0, 7.0, 5.0]


def test_a_direction_with_other_features_is_not_undirected(refused: Callable) -> None:
    graph = graph_of(torch.ones(2, 1), edges((0, 1), (1, 0)), torch.tensor([[1.0], [2.0]]))
    assert not graph.is_undirected()
    assert graph_of(graph.x, graph.edge_index).is_undirected()
    with refused("both directions", "edges 0 and 1", "differ"):
        graph.undirected()


def test_two_edges_whose_directions_pair_up_are_undirected() -> None:
    """Sorting by the ends alone would pair the features of parallel edges wrongly."""
    index = edges((0, 1), (0, 1), (1, 0), (1, 0))
    assert graph_of(torch.ones(2, 1), index, torch.tensor([[1.0], [2.0], [2.0], [1.0]])).is_undirected()
    assert not graph_of(torch.ones(2, 1), index, torch.tensor([[1.0], [2.0], [2.0], [2.0]])).is_undirected()


@pytest.mark.parametrize("seed", range(10))
def test_the_subgraph_within_nodes_is_networkxs(seed: int) -> None:
    graph = random_graph(seed)
    nodes = torch.randperm(7, generator=Generator().manual_seed(seed))[:4]
    inside = graph.within(nodes)
    assert torch.equal(inside.x, graph.x[nodes])
    whole = nx.MultiDiGraph()
    whole.add_nodes_from(range(7))
    whole.add_edges_from(
        (int(a), int(b), {"f": tuple(f)})
        for (a, b), f in zip(graph.edge_index.T, graph.edge_attr.tolist(), strict=True)
    )
    expected = sorted((a, b, d["f"]) for a, b, d in whole.subgraph(nodes.tolist()).edges(data=True))
    ends = nodes[inside.edge_index].T.tolist()
    got = sorted((a, b, tuple(f)) for (a, b), f in zip(ends, inside.edge_attr.tolist(), strict=True))
    assert got == expected


def test_a_subgraph_takes_each_node_once_and_of_one_graph(refused: Callable) -> None:
    graph = random_graph(0)
    with refused("distinct"):
        graph.within(torch.tensor([1, 1]))
    with refused("one graph: got 2"):
        joined([graph, graph]).within(torch.tensor([1]))


def test_joined_and_separated_are_inverse() -> None:
    graphs = [random_graph(k, nodes=3 + k, count=4 * k) for k in range(4)]
    whole = joined(graphs)
    assert whole.sizes.tolist() == [3, 4, 5, 6]
    assert whole.graph_of_node().tolist() == [0] * 3 + [1] * 4 + [2] * 5 + [3] * 6
    for one, again in zip(graphs, whole.separated(), strict=True):
        for a, b in zip(one.inputs, again.inputs, strict=True):
            assert torch.equal(a, b)
    shuffled = torch.randperm(whole.num_edges, generator=Generator().manual_seed(0))
    mixed = Graph(whole.x, whole.edge_index[:, shuffled], whole.edge_attr[shuffled], whole.sizes)
    for one, again in zip(graphs, mixed.separated(), strict=True):
        assert torch.equal(dense(one), dense(again))


@pytest.mark.parametrize(
    ("pair", "texts"),
    [
        ((0, 3), ("edge 1 leads from 0 to 3", "0 .. 2")),
        ((3, 0), ("edge 1 leads from 3 to 0",)),
        ((-1, 0), ("edge 1 leads from -1 to 0",)),
    ],
)
def test_an_edge_to_no_node_is_named(
    pair: tuple[int, int], texts: tuple[str, ...], refused: Callable
) -> None:
    graph_of(torch.ones(3, 1), edges((0, 1), (2, 0)))  # the last node is one
    with refused(*texts):
        graph_of(torch.ones(3, 1), edges((0, 1), pair))


def test_an_edge_in_a_graph_without_nodes_is_refused(refused: Callable) -> None:
    with refused("nodes that exist (none)"):
        graph_of(torch.ones(0, 1), edges((0, 0)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_feature_that_is_not_finite_is_named(value: float, refused: Callable) -> None:
    x = torch.ones(3, 2)
    x[2, 1] = value
    with refused("node 2", "feature 1", "1 in all"):
        graph_of(x, edges())
    with refused("edge 1", "feature 0"):
        graph_of(torch.ones(3, 2), edges((0, 1), (1, 2)), torch.tensor([[1.0], [value]]))


def test_large_finite_features_are_features() -> None:
    """Their sum overflows: a check of the sum alone would refuse them."""
    assert graph_of(torch.full((4, 1), 3e38), edges()).num_nodes == 4


def test_an_edge_between_two_graphs_is_named(refused: Callable) -> None:
    x, sizes = torch.ones(4, 1), torch.tensor([2, 2])
    Graph(x, edges((1, 0), (2, 3)), torch.ones(2, 0), sizes)
    with refused("edge 1 leads from graph 0 to 1"):
        Graph(x, edges((1, 0), (1, 2)), torch.ones(2, 0), sizes)


def test_sizes_are_those_of_the_nodes(refused: Callable) -> None:
    with refused("add up to the number of nodes: got 3, 4 nodes"):
        Graph(torch.ones(4, 1), edges(), torch.ones(0, 0), torch.tensor([2, 1]))
    with refused("at least 0"):
        Graph(torch.ones(4, 1), edges(), torch.ones(0, 0), torch.tensor([5, -1]))


def test_graphs_that_are_joined_have_as_many_features(refused: Callable) -> None:
    with refused("node features: graph 0 has 3, graph 1 has 1"):
        joined([random_graph(0), graph_of(torch.ones(2, 1), edges())])
    with refused("edge features: graph 0 has 2, graph 1 has 0"):
        joined([random_graph(0), random_graph(0, width=0)])
    with refused("at least one graph"):
        joined([])
