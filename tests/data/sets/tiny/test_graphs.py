"""The smallest graphs and sets: what their descriptions promise."""

import networkx as nx
import torch
from torch import Generator

from margin.data.sets.tiny import graphs as tiny_graphs


def whole(data, part="train"):
    examples = data.splits[part]
    return examples.take(torch.arange(len(examples)), Generator())


def test_nodes_lie_in_two_communities_and_one_is_alone() -> None:
    data = tiny_graphs.nodes()
    graph = data.splits["train"].graph
    assert graph.is_undirected()
    assert graph.isolated().nonzero().flatten().tolist() == [29]
    assert graph.self_loops().sum() == 1
    known = data.splits["train"].known
    alike = (known[graph.edge_index[0]] == known[graph.edge_index[1]]).float().mean()
    assert alike > 0.7
    used = torch.cat([data.splits[part].index for part in data.splits])
    assert len(used.unique()) == 24


def test_graphs_are_rings_and_stars() -> None:
    batch = whole(tiny_graphs.graphs())
    data = tiny_graphs.graphs().splits["train"].graph
    for graph, label in zip(data.separated(), batch.targets.tolist(), strict=True):
        found = nx.Graph(graph.edge_index.T.tolist())
        size = graph.num_nodes
        wanted = nx.star_graph(size - 1) if label else nx.cycle_graph(size)
        assert nx.is_isomorphic(found, wanted)
    values = whole(tiny_graphs.graph_values())
    # A ring's nodes all have two neighbors; of a star only the center of three nodes has.
    rings = batch.targets == 0
    assert bool((values.targets[rings] == 1).all())
    assert bool((values.targets[~rings] < 0.5).all())


def test_sets_sum_their_first_numbers() -> None:
    batch = whole(tiny_graphs.sets())
    x, mask = batch.inputs
    assert torch.allclose((x[..., 0] * mask).sum(1), batch.targets, atol=1e-6)
    assert sorted(mask.sum(1).unique().tolist()) == list(range(7))
    signs = whole(tiny_graphs.set_classes())
    assert torch.equal(signs.targets, (batch.targets > 0).long())


def test_clouds_and_segments() -> None:
    batch = whole(tiny_graphs.clouds())
    radius = batch.inputs[0].norm(dim=-1).mean(1)
    assert bool((radius[batch.targets == 0] > radius[batch.targets == 1].max()).all())
    segments = whole(tiny_graphs.segments())
    assert segments.targets.shape == (24, 12)
    assert segments.targets.sum(1).tolist() == [6] * 24
    at = segments.inputs[0][..., 0]
    assert at[segments.targets == 1].mean() - at[segments.targets == 0].mean() > 1.7


def test_all_are_small_and_the_same_every_time() -> None:
    for make in (
        tiny_graphs.nodes,
        tiny_graphs.graphs,
        tiny_graphs.graph_values,
        tiny_graphs.clouds,
        tiny_graphs.sets,
        tiny_graphs.set_classes,
        tiny_graphs.segments,
    ):
        data = make()
        assert sum(len(part) for part in data.splits.values()) <= 60
        assert data.fingerprint == make().fingerprint
        assert data.spec["num_examples"] == len(data.splits["train"])
