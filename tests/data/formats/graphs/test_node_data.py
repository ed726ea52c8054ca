"""Parts of a graph's nodes: kept, shared out, by class; what each part sees; rows that add up to 1."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from margin.data.formats.graphs.graphs import Graph, graph_of
from margin.data.formats.graphs.neighbor_sampling import Sampled
from margin.data.formats.graphs.node_data import Cutting, RawNodes, new_nodes, node_data, normalized
from margin.data.formats.graphs.parts import Nodes
from margin.data.preprocess import Standardize


def raw(count: int = 200, **changes: Any) -> RawNodes:
    """A ring of nodes in two classes; every tenth node has no label."""
    at = torch.arange(count)
    graph = graph_of(
        torch.randn(count, 3, generator=Generator().manual_seed(0)) * 5 + 2,
        torch.stack((at, (at + 1) % count)),
    ).undirected()
    given: dict[str, Any] = {
        "name": "ring",
        "graph": graph,
        "targets": at % 2,
        "labeled": at % 10 != 0,
        "task": "classes",
        "classes": ("even", "odd"),
    }
    return RawNodes(**{**given, **changes})


def index_of(data: Any, part: str) -> Tensor:
    return data.splits[part].index


def test_random_parts_share_out_the_labeled_nodes_by_class() -> None:
    data = node_data(raw(), Cutting())
    parts = [index_of(data, part) for part in ("train", "val", "test")]
    every = torch.cat(parts)
    assert sorted(every.tolist()) == [k for k in range(200) if k % 10]
    assert [len(part) for part in parts] == [108, 27, 45]
    # 80 even and 100 odd nodes have a label; each part has its share of both.
    for part, even, odd in zip(parts, (48, 12, 20), (60, 15, 25), strict=True):
        assert (part % 2).bincount().tolist() == [even, odd]
    assert dict(data.spec) == {"node_features": 3, "edge_features": 0, "num_examples": 108, "num_classes": 2}
    assert data.encoding["split"] == {"test": 0.25, "val": 0.15, "seed": 0, "official": False}
    assert data.domain is None
    again = node_data(raw(), Cutting())
    assert again.fingerprint == data.fingerprint
    assert node_data(raw(), Cutting(seed=1)).fingerprint != data.fingerprint


def test_transductive_parts_see_the_one_graph() -> None:
    data = node_data(raw(), Cutting())
    graphs = {id(data.splits[part].graph) for part in data.splits}
    assert len(graphs) == 1
    batch = data.splits["train"].take(torch.arange(108), Generator())
    assert batch.weight.nonzero()[:, 0].tolist() == index_of(data, "train").tolist()


def test_inductive_training_sees_the_training_nodes_alone() -> None:
    source = raw()
    data = node_data(source, Cutting(setting="inductive"))
    whole = node_data(source, Cutting())
    train, nodes = data.splits["train"], index_of(whole, "train")
    assert isinstance(train, Nodes)
    assert torch.equal(train.graph.x, source.graph.x[nodes])
    assert torch.equal(train.targets, source.targets[nodes])
    ends = nodes[train.graph.edge_index]
    inside = torch.isin(source.graph.edge_index, nodes).all(0)
    assert torch.equal(ends, source.graph.edge_index[:, inside])
    for part in ("val", "test"):
        assert data.splits[part].graph.num_nodes == 200
        assert torch.equal(index_of(data, part), index_of(whole, part))


def test_only_training_is_sampled() -> None:
    data = node_data(raw(), Cutting(neighbors=(2, 2)))
    assert isinstance(data.splits["train"], Sampled)
    assert isinstance(data.splits["val"], Nodes)
    assert isinstance(data.splits["test"], Nodes)
    assert data.fingerprint == node_data(raw(), Cutting()).fingerprint  # the same examples


def test_planetoid_takes_so_many_of_each_class() -> None:
    data = node_data(raw(), Cutting(split="planetoid", seed=3))
    assert (index_of(data, "train") % 2).bincount().tolist() == [20, 20]
    assert (index_of(data, "val") % 2).bincount().tolist() == [30, 30]
    assert (index_of(data, "test") % 2).bincount().tolist() == [30, 50]
    every = torch.cat([index_of(data, part) for part in data.splits])
    assert sorted(every.tolist()) == [k for k in range(200) if k % 10]
    assert data.encoding["split"]["per_class"] == {"train": 20, "val": 30}
    other = node_data(raw(), Cutting(split="planetoid", seed=4))
    assert not torch.equal(index_of(other, "train"), index_of(data, "train"))


@pytest.mark.parametrize(("count", "enough"), [(126, False), (128, True)])
def test_planetoid_needs_more_than_fifty_of_each_class(count: int, enough: bool, refused: Callable) -> None:
    """Of 126 nodes 63 are even, of which 13 have no label: 50 are left; of 128 there are 51."""
    if enough:
        assert len(node_data(raw(count), Cutting(split="planetoid")).splits["test"]) > 0
        return
    with refused("more than 50 nodes of every class", "class 'even' has 50"):
        node_data(raw(count), Cutting(split="planetoid"))


def test_planetoid_needs_classes(refused: Callable) -> None:
    values = raw(task="values", classes=(), targets=torch.zeros(200))
    with refused("planetoid takes nodes of each class: the targets are values"):
        node_data(values, Cutting(split="planetoid"))


OFFICIAL = {
    "train": torch.tensor([1, 2, 3, 4]),
    "val": torch.tensor([11, 12]),
    "test": torch.tensor([21, 33]),
}


def test_parts_of_the_source_are_kept() -> None:
    data = node_data(raw(official=OFFICIAL), Cutting(seed=9))
    assert {part: index_of(data, part).tolist() for part in data.splits} == {
        part: nodes.tolist() for part, nodes in OFFICIAL.items()
    }
    assert data.encoding["split"] == {"test": None, "val": None, "seed": 9, "official": True}
    assert list(data.splits) == ["train", "val", "test"]
    drawn = node_data(raw(official=OFFICIAL), Cutting(split="random"))
    assert len(drawn.splits["train"]) == 108


def test_a_validation_part_is_cut_from_the_training_part_where_there_is_none() -> None:
    official = {"train": torch.arange(1, 9), "test": torch.tensor([21, 33])}
    data = node_data(raw(official=official), Cutting(val=0.25))
    train, val = index_of(data, "train").tolist(), index_of(data, "val").tolist()
    assert sorted(train + val) == list(range(1, 9))
    assert len(val) == 2
    assert index_of(data, "test").tolist() == [21, 33]
    assert "val" not in node_data(raw(official=official), Cutting(val=0.0)).splits


def test_parts_of_the_source_are_disjoint_and_labeled(refused: Callable) -> None:
    with refused("must not share nodes"):
        node_data(raw(official={**OFFICIAL, "val": torch.tensor([4, 12])}), Cutting())
    with refused("node of the test part must have a target: node 20 has none"):
        node_data(raw(official={**OFFICIAL, "test": torch.tensor([20])}), Cutting())


def test_a_graph_without_labels_is_not_trained_on(refused: Callable) -> None:
    with refused("ring", "no node has one"):
        node_data(raw(targets=None), Cutting())
    with refused("no node has one"):
        node_data(raw(labeled=torch.zeros(200, dtype=torch.bool)), Cutting())


def test_rows_add_up_to_one_and_rows_of_zeros_stay() -> None:
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0], [-1.0, 1.0]])
    graph = graph_of(x, torch.zeros(2, 0, dtype=torch.int64))
    assert normalized(graph, "rows").x.tolist() == [[0.25, 0.75], [0.0, 0.0], [-0.5, 0.5]]
    assert normalized(graph, "none") is graph


def first_layer(x: Tensor, normalize: Any = "none") -> nn.Module:
    graph = graph_of(x, torch.zeros(2, 0, dtype=torch.int64))
    return node_data(raw(graph=graph), Cutting(normalize=normalize)).preprocess


def test_features_are_standardized_over_the_training_nodes() -> None:
    source = raw()
    data = node_data(source, Cutting())
    layer = data.preprocess
    assert isinstance(layer, Standardize)
    train = source.graph.x[index_of(data, "train")].double()
    assert torch.allclose(layer.mean, train.mean(0))
    assert torch.allclose(layer.std, train.std(0, correction=0))


def test_words_and_shares_are_left_as_they_are() -> None:
    words = (torch.rand(200, 4, generator=Generator().manual_seed(1)) < 0.3).float()
    assert isinstance(first_layer(words), nn.Identity)
    counts = torch.cat((words, torch.arange(200.0)[:, None]), 1)
    mixed = first_layer(counts)
    assert isinstance(mixed, Standardize)
    assert mixed.mean[:4].tolist() == [0.0] * 4
    assert mixed.std[:4].tolist() == [1.0] * 4
    assert mixed.std[4] > 1
    assert isinstance(first_layer(counts, "rows"), nn.Identity)


def record() -> dict[str, Any]:
    return dict(node_data(raw(), Cutting(normalize="rows")).encoding)


def test_new_nodes_are_all_nodes_normalized_as_the_runs() -> None:
    new = new_nodes(raw(), record())
    assert len(new) == 200
    assert torch.allclose(new.graph.x.abs().sum(1), torch.ones(200))
    assert new.targets is None  # some nodes have none: they can be predicted
    whole = new_nodes(raw(labeled=torch.ones(200, dtype=torch.bool)), record())
    assert torch.equal(whole.targets, torch.arange(200) % 2)


def test_new_nodes_of_a_test_part_are_that_part() -> None:
    new = new_nodes(raw(official=OFFICIAL), record())
    assert new.index.tolist() == [21, 33]
    assert new.targets.tolist() == [1, 1]


def test_new_nodes_have_the_runs_features(refused: Callable) -> None:
    narrow = graph_of(torch.ones(200, 2), torch.zeros(2, 0, dtype=torch.int64))
    with refused("the run's graph has 3 node features: got 2"):
        new_nodes(raw(graph=narrow), record())
    carrying = Graph(torch.ones(200, 3), torch.tensor([[0], [1]]), torch.ones(1, 4), torch.tensor([200]))
    with refused("the run's graph has 0 edge features: got 4"):
        new_nodes(raw(graph=carrying), record())


def test_what_is_said_of_a_graph() -> None:
    about = dict(node_data(raw(), Cutting(neighbors=(5,), normalize="rows")).encoding["about"])
    assert about["graph"] == "200 nodes, 400 edges (undirected, each edge held in both directions)"
    assert about["edges"] == "0 self-loops, 0 isolated nodes, at most 2 to a node"
    assert about["targets"] == "20 nodes have none and are in no part"
    assert about["training"] == "transductive, [5] neighbors drawn"
    assert "rows" in about
