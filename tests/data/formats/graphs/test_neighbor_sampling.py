"""Neighbor sampling against enumeration: inclusion probabilities, exact neighborhoods, what a batch holds."""

import itertools
import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

from margin.data.examples import Shuffled
from margin.data.formats.graphs.graphs import Graph, graph_of
from margin.data.formats.graphs.neighbor_sampling import Sampled, draw, incoming, neighborhood
from margin.data.formats.graphs.parts import Nodes
from margin.data.sampling.loading import Prefetched


def random_graph(seed: int, nodes: int = 30, count: int = 120) -> Graph:
    generator = Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, count), generator=generator)
    return graph_of(torch.arange(nodes).float()[:, None], index, torch.arange(count).float()[:, None])


def ball(graph: Graph, seeds: list[int], hops: int) -> tuple[set[int], set[int]]:
    """Nodes within so many hops against the edges, and the edges that lead to those within one less."""
    nodes, edges, frontier = set(seeds), set(), set(seeds)
    for _ in range(hops):
        into = {e for e, t in enumerate(graph.edge_index[1].tolist()) if t in frontier}
        edges |= into
        frontier = {int(graph.edge_index[0, e]) for e in into} - nodes
        nodes |= frontier
    return nodes, edges


def test_edges_by_target_are_all_edges_in_order() -> None:
    graph = random_graph(0)
    found = incoming(graph)
    for node in range(graph.num_nodes):
        slots = slice(int(found.starts[node]), int(found.starts[node + 1]))
        expected = (graph.edge_index[1] == node).nonzero()[:, 0]
        assert torch.equal(found.edges[slots], expected)
        assert torch.equal(found.sources[slots], graph.edge_index[0, expected])


def starts_of(*degrees: int) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(degrees)])


@pytest.mark.parametrize(("degree", "most"), [(5, 2), (6, 5), (4, 1), (5, 4)])
def test_every_subset_is_drawn_as_often_as_any_other(degree: int, most: int) -> None:
    """Chi-squared over all subsets in 20,000 draws; a false alarm has probability below 1e-5."""
    starts, draws = starts_of(3, degree), 20_000
    nodes = torch.ones(draws, dtype=torch.int64)
    slots, owners = draw(starts, nodes, most, Generator().manual_seed(degree * 10 + most))
    assert owners.tolist() == [1] * (draws * most)
    rows = slots.reshape(most, draws).sort(0).values.T.tolist()
    assert all(len(set(row)) == most for row in rows)  # without replacement
    counts = Counter(map(tuple, rows))
    subsets = list(itertools.combinations(range(3, 3 + degree), most))
    assert set(counts) <= set(subsets)
    expected = draws / len(subsets)
    statistic = sum((counts[s] - expected) ** 2 / expected for s in subsets)
    freedom = len(subsets) - 1
    # Laurent and Massart 2000, lemma 1: P(chi2 > k + 2 sqrt(k x) + 2 x) <= exp(-x), x = log(1e5).
    x = math.log(1e5)
    assert statistic < freedom + 2 * math.sqrt(freedom * x) + 2 * x


def test_few_edges_are_all_drawn_and_none_of_none() -> None:
    starts = starts_of(0, 2, 3, 4)
    slots, owners = draw(starts, torch.arange(4), 3, Generator().manual_seed(0))
    drawn = sorted(zip(owners.tolist(), slots.tolist(), strict=True))
    assert drawn[:5] == [(1, 0), (1, 1), (2, 2), (2, 3), (2, 4)]
    assert len(drawn) == 8
    assert {slot for owner, slot in drawn[5:]} <= {5, 6, 7, 8}
    nothing, _ = draw(starts, torch.zeros(0, dtype=torch.int64), 3, Generator())
    assert nothing.tolist() == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_with_enough_neighbors_it_is_the_exact_ball(seed: int, hops: int) -> None:
    graph = random_graph(seed, nodes=40, count=70)
    seeds = [3, 17]
    found = neighborhood(incoming(graph), torch.tensor(seeds), [70] * hops, Generator())
    nodes, edges = ball(graph, seeds, hops)
    assert found.nodes[:2].tolist() == seeds
    assert len(set(found.nodes.tolist())) == len(found.nodes)
    assert set(found.nodes.tolist()) == nodes
    assert sorted(found.edges.tolist()) == sorted(edges)
    assert torch.equal(found.nodes[found.edge_index], graph.edge_index[:, found.edges])


@pytest.mark.parametrize("seed", range(10))
def test_no_node_gets_more_edges_than_its_hop_allows(seed: int) -> None:
    graph = random_graph(seed)
    found = neighborhood(incoming(graph), torch.tensor([0, 1]), [3, 2], Generator().manual_seed(seed))
    assert torch.equal(found.nodes[found.edge_index], graph.edge_index[:, found.edges])
    assert len(set(found.edges.tolist())) == len(found.edges)
    counts = found.edge_index[1].bincount(minlength=len(found.nodes))
    degrees = graph.in_degrees()[found.nodes]
    first = set(graph.edge_index[0][found.edges[torch.isin(found.edge_index[1], torch.arange(2))]].tolist())
    for place, node in enumerate(found.nodes.tolist()):
        most = 3 if place < 2 else 2 if node in first else 0
        assert counts[place] == min(most, int(degrees[place]))


def test_sources_reached_twice_are_one_node() -> None:
    """Two seeds and two parallel edges reach node 2: it is one node of the batch, expanded once."""
    graph = graph_of(torch.ones(4, 1), torch.tensor([[2, 2, 2, 3], [0, 0, 1, 2]]))
    found = neighborhood(incoming(graph), torch.tensor([0, 1]), [5, 5], Generator())
    assert found.nodes.tolist() == [0, 1, 2, 3]
    assert sorted(found.edges.tolist()) == [0, 1, 2, 3]


def test_a_loop_leads_to_no_new_node() -> None:
    graph = graph_of(torch.ones(2, 1), torch.tensor([[0, 1], [0, 0]]))
    found = neighborhood(incoming(graph), torch.tensor([0]), [2, 2], Generator())
    assert found.nodes.tolist() == [0, 1]
    assert found.edge_index.T.tolist() == [[0, 0], [1, 0]]


def part(seed: int = 0) -> Nodes:
    graph = random_graph(seed)
    return Nodes(graph, torch.tensor([20, 4, 7, 9, 11]), torch.arange(30) % 3)


def test_a_batch_holds_the_neighborhood_with_weight_at_its_seeds() -> None:
    sampled = Sampled(part(), (3, 2))
    batch = sampled.take(torch.tensor([0, 2]), Generator().manual_seed(0))
    x, edge_index, edge_attr, sizes = batch.inputs
    assert sorted(x[:2].flatten().tolist()) == [7.0, 20.0]
    assert sizes.tolist() == [len(x)]
    nodes = x.flatten().long()
    assert batch.weight.tolist() == [1, 1] + [0] * (len(x) - 2)
    assert torch.equal(batch.targets, nodes % 3)
    edges = edge_attr.flatten().long()
    assert torch.equal(nodes[edge_index], part().graph.edge_index[:, edges])
    assert len(sampled) == 5
    assert torch.equal(sampled.targets, part().targets)
    assert not sampled.independent


def test_a_batch_is_a_function_of_its_generator() -> None:
    sampled = Sampled(part(), (2, 2))
    index = torch.arange(5)
    one, two, other = (
        sampled.take(index, Generator().manual_seed(seed)).inputs[2].flatten().tolist() for seed in (1, 1, 2)
    )
    assert one == two
    assert one != other


def test_workers_draw_the_same_batches() -> None:
    shuffled = Shuffled(Sampled(part(), (2, 2)), 2, seed=3)
    ahead = Prefetched(shuffled, 1, 3)
    for step in range(3):
        got = ahead(step).inputs
        assert all(map(torch.equal, got, shuffled(step).inputs))


def test_a_mean_over_the_neighbors_is_estimated_without_bias() -> None:
    """The mean over drawn neighbors has the mean over all: 4,000 draws, 5 standard errors (p < 1e-6)."""
    graph = random_graph(2)
    node = int(graph.in_degrees().argmax())
    sources = graph.x[graph.edge_index[0][graph.edge_index[1] == node]].flatten()
    sampled = Sampled(Nodes(graph, torch.tensor([node]), torch.zeros(30)), (2,))
    means = []
    for seed in range(4000):
        x, edge_index, _, _ = sampled.take(torch.tensor([0]), Generator().manual_seed(seed)).inputs
        means.append(x[edge_index[0]].mean())
    found = torch.stack(means)
    assert abs(found.mean() - sources.mean()) < 5 * found.std() / math.sqrt(4000)
    count = len(sources)
    # The variance of a mean without replacement: s^2 / k (1 - k / n); with replacement the factor is missing.
    expected = sources.var(correction=1) / 2 * (1 - 2 / count)
    assert abs(found.var() / expected - 1) < 0.15


@pytest.mark.parametrize("neighbors", [(), (0,), (3, -1)])
def test_neighbors_are_at_least_one(neighbors: tuple[int, ...], refused: Callable) -> None:
    with refused("neighbors must be at least 1", str(list(neighbors))):
        Sampled(part(), neighbors)


def test_a_part_without_targets_is_sampled_too() -> None:
    nodes = Nodes(random_graph(0), torch.tensor([3]))
    assert Sampled(nodes, (2,)).take(torch.tensor([0]), Generator()).targets is None
