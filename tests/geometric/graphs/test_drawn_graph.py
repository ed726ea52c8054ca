"""Which nodes are drawn, and that what is drawn of them is theirs."""

import torch

from margin.geometric.graphs.figures import MOST, picture, shown_nodes
from margin.geometric.graphs.weisfeiler_leman import both_ways, ring

ALL = torch.ones(1000, dtype=torch.bool)


def test_small_graphs_are_drawn_whole() -> None:
    assert shown_nodes(both_ways(ring(5)), 7, ALL[:7]).tolist() == list(range(7))
    assert len(shown_nodes(both_ways(ring(MOST)), MOST, ALL[:MOST])) == MOST


def test_of_many_small_components_some_are_drawn_whole() -> None:
    edges = both_ways([pair for k in range(60) for pair in ring(5, 5 * k)])
    shown = shown_nodes(edges, 300, ALL[:300])
    assert len(shown) == MOST
    assert set((shown // 5).tolist()) == set(range(MOST // 5))


def test_of_a_large_component_a_neighborhood_of_a_node_that_counts_is_drawn() -> None:
    edges = both_ways([(i, i + 1) for i in range(499)])
    counts = torch.zeros(500, dtype=torch.bool)
    counts[300] = True
    shown = shown_nodes(edges, 500, counts)
    assert len(shown) == MOST
    assert shown.tolist() == list(range(240, 360)) or shown.tolist() == list(range(241, 361))
    nowhere = shown_nodes(edges, 500, torch.zeros(500, dtype=torch.bool))
    assert len(nowhere) > MOST // 2


def test_the_picture_renumbers_edges_and_hides_loops_and_labels_that_do_not_count() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 1, 1]])
    attention = torch.tensor([0.1, 0.2, 0.3, 0.4])
    counts = torch.tensor([True, False, True])
    found = picture(edges, 3, torch.tensor([1, 0, 1]), torch.tensor([1, 1, 0]), counts, attention)
    assert found["graph edges"].tolist() == [[0, 1, 2], [1, 0, 1]]
    assert torch.equal(found["graph attention"], torch.tensor([0.1, 0.2, 0.4]))
    assert found["graph labels"].tolist() == [1, -1, 0]
    assert int(found["graph whole"]) == 3
    assert "graph attention" not in picture(edges, 3, torch.zeros(3, dtype=torch.int64))
    assert picture(edges, 3, torch.zeros(3, dtype=torch.int64))["graph labels"].tolist() == [-1, -1, -1]


def test_edges_in_a_neighborhood_keep_their_ends() -> None:
    edges = both_ways([(i, i + 1) for i in range(499)])
    classes = torch.arange(500)
    found = picture(edges, 500, classes)
    source, target = found["graph classes"][found["graph edges"]]
    assert bool(((source - target).abs() == 1).all())
    assert len(source) == 2 * (len(found["graph classes"]) - 1)
