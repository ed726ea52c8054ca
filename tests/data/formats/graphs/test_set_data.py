"""Many graphs as data: parts, features, what is recorded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, nn

from margin.data.formats.graphs.graphs import Graph, graph_of, joined
from margin.data.formats.graphs.set_data import RawGraphs, graph_set_data, new_graphs
from margin.data.preprocess import Standardize
from margin.data.splits import Split


def graphs(count: int = 20, width: int = 2) -> Graph:
    generator = Generator().manual_seed(0)
    none = torch.zeros(2, 0, dtype=torch.int64)
    return joined(
        [graph_of(torch.randn(1 + k % 3, width, generator=generator) * 3, none) for k in range(count)]
    )


def raw(**changes: Any) -> RawGraphs:
    given: dict[str, Any] = {"name": "many", "graph": graphs(), "targets": torch.arange(20) % 2}
    return RawGraphs(**{**given, **changes})


def test_parts_are_stratified_and_described() -> None:
    data = graph_set_data(raw(), Split())
    counts = {part: one.targets.bincount().tolist() for part, one in data.splits.items()}
    assert counts["train"] == [6, 6]
    assert {part: sum(count) for part, count in counts.items()} == {"train": 12, "val": 3, "test": 5}
    assert [sum(count) for count in zip(*counts.values(), strict=True)] == [10, 10]
    assert dict(data.spec) == {"node_features": 2, "edge_features": 0, "num_examples": 12, "num_classes": 2}
    assert dict(data.encoding["about"])["graphs"] == "20 of 1 to 3 nodes, 1.9 in the mean"
    assert data.fingerprint == graph_set_data(raw(), Split()).fingerprint
    assert data.fingerprint != graph_set_data(raw(), Split(seed=1)).fingerprint


def test_features_are_standardized_over_the_training_graphs() -> None:
    data = graph_set_data(raw(), Split())
    assert isinstance(data.preprocess, Standardize)
    train = data.splits["train"].graph.x.double()
    assert torch.allclose(data.preprocess.mean, train.mean(0))
    flags = raw(graph=Graph(torch.ones(39, 1), graphs().edge_index, torch.ones(0, 0), graphs().sizes))
    assert isinstance(graph_set_data(flags, Split()).preprocess, nn.Identity)


def test_official_parts_are_kept_and_the_rest_is_cut() -> None:
    official = {"train": torch.arange(0, 12), "test": torch.tensor([13, 14])}
    data = graph_set_data(raw(official=official), Split(val=0.25))
    sizes = graphs().sizes
    assert data.splits["test"].graph.sizes.tolist() == sizes[[13, 14]].tolist()
    assert {part: len(one) for part, one in data.splits.items()} == {"train": 9, "val": 3, "test": 2}
    assert data.encoding["split"]["official"]
    assert list(data.splits) == ["train", "val", "test"]


def test_values(refused: Callable) -> None:
    data = graph_set_data(raw(targets=torch.arange(20) / 3), Split())
    assert data.encoding["task"] == "values"
    assert "num_classes" not in data.spec
    assert data.splits["train"].targets.dtype == torch.float32
    with refused("many: every target must be finite: got nan at index 3"):
        graph_set_data(raw(targets=[float(k) if k != 3 else float("nan") for k in range(20)]), Split())


def test_new_graphs_fit_the_record(refused: Callable) -> None:
    record = dict(graph_set_data(raw(), Split()).encoding)
    assert new_graphs(graphs(3), [1, 0, 1], record, "new").targets.tolist() == [1, 0, 1]
    assert new_graphs(graphs(3), None, record, "new").targets is None
    with refused("new: the run's graphs have 2 node features: got 3"):
        new_graphs(graphs(3, width=3), None, record, "new")
    with refused("new: labels must be 0 .. 1: got 2 at index 0"):
        new_graphs(graphs(3), [2, 0, 1], record, "new")


def test_a_class_of_one_graph_cannot_be_cut(refused: Callable) -> None:
    with refused("many: every part"):
        graph_set_data(raw(targets=[0] * 19 + [1]), Split())


@pytest.mark.parametrize("targets", [torch.arange(19) % 2, torch.zeros(20, 1)])
def test_targets_are_one_a_graph(targets: torch.Tensor, refused: Callable) -> None:
    with refused("many: "):
        graph_set_data(raw(targets=targets), Split())
