"""Objects with x and edge_index: labels that may be unknown, masks, every attribute that can be wrong."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from margin.data.formats.graphs.attributes import graph_of_object, raw_of_object
from margin.data.formats.graphs.graphs import graph_of
from margin.data.formats.graphs.node_data import RawNodes


def thing(**changes: Any) -> SimpleNamespace:
    given: dict[str, Any] = {
        "x": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]),
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 2]]),
        "y": torch.tensor([1, 0, -1]),
    }
    return SimpleNamespace(**{key: value for key, value in {**given, **changes}.items() if value is not None})


def raw(task: Any = None, known: Any = None, directed: Any = None, **changes: Any) -> RawNodes:
    return raw_of_object(thing(**changes), "thing", directed=directed, task=task, known=known)


def test_tensors_arrays_and_lists_are_taken() -> None:
    for kind in (lambda a: a, lambda a: a.numpy(), lambda a: a.tolist()):
        given = {key: kind(value) for key, value in vars(thing()).items()}
        found = raw(**given)
        assert found.graph.x.tolist() == [[1, 0], [0, 1], [2, 2]]
        assert found.graph.edge_index.tolist() == [[0, 1, 2], [1, 2, 2]]
        assert found.targets.tolist() == [1, 0, 0]
        assert found.labeled.tolist() == [True, True, False]
        assert found.classes == ("0", "1")
        assert found.task == "classes"


def test_what_the_user_changes_later_does_not_reach_the_graph() -> None:
    source = thing()
    found = graph_of_object(source, "thing", [])
    source.x.zero_()
    assert found.x[2, 0] == 2


def test_types_of_features() -> None:
    assert raw(x=np.ones((3, 1), dtype=np.float64)).graph.x.dtype == torch.float64
    assert raw(x=np.ones((3, 1), dtype=np.float16)).graph.x.dtype == torch.float32
    assert raw(x=np.ones((3, 1), dtype=np.int64)).graph.x.dtype == torch.float32
    assert raw(x=[1, 2, 3]).graph.x.shape == (3, 1)


def test_edges_carry_attributes_or_weights() -> None:
    assert raw().graph.edge_attr.shape == (3, 0)
    assert raw(edge_weight=[1.0, 2.0, 3.0]).graph.edge_attr.tolist() == [[1], [2], [3]]
    assert raw(edge_attr=torch.ones(3, 2), edge_weight=[1.0, 2.0, 3.0]).graph.edge_attr.shape == (3, 2)


def test_edges_stand_for_both_directions_where_it_is_said() -> None:
    assert raw(directed="undirected").graph.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 2]]
    assert raw(directed="directed").graph.num_edges == 3


def test_no_edges_and_no_features() -> None:
    assert raw(edge_index=torch.zeros(2, 0, dtype=torch.int64)).graph.num_edges == 0
    assert raw(edge_index=np.zeros((0, 2))).graph.num_edges == 0
    found = raw(x=None, num_nodes=3)
    assert found.graph.x.tolist() == [[1], [1], [1]]
    assert "feature 1" in found.notes[0]


def test_values_may_be_unknown_but_not_infinite(refused: Callable) -> None:
    found = raw(y=[0.5, float("nan"), 2.0])
    assert found.task == "values"
    assert found.targets.tolist() == [0.5, 0.0, 2.0]
    assert found.labeled.tolist() == [True, False, True]
    assert raw(y=[[1], [2], [5]], task="values").targets.tolist() == [1, 2, 5]
    with refused("node 2 is not"):
        raw(y=[0.5, float("nan"), float("inf")])


def test_classes_may_be_words() -> None:
    found = raw(y=["b", "", "a"])
    assert found.classes == ("a", "b")
    assert found.targets.tolist() == [1, 0, 0]
    assert found.labeled.tolist() == [True, False, True]
    assert raw(y=[True, False, True]).classes == ("False", "True")
    assert raw(classes=["no", "yes"]).classes == ("no", "yes")


def test_known_classes_are_the_runs(refused: Callable) -> None:
    record = {"task": "classes", "classes": ["0", "1", "2"]}
    assert raw(known=record).classes == ("0", "1", "2")
    with refused("labels must be 0 .. 2, or -1 for none: node 1 has 3"):
        raw(known=record, y=[2, 3, 0])
    with refused("every class must be one of 'a', 'b': node 2 has 'c'"):
        raw(known={"task": "classes", "classes": ["a", "b"]}, y=["a", "", "c"])


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"edge_index": None}, ("needs edge_index",)),
        ({"edge_index": torch.ones(3, 2, dtype=torch.int64)}, ("shape (2, edges): got (3, 2)",)),
        ({"edge_index": torch.ones(2, 2)}, ("whole numbers",)),
        ({"edge_index": [[0, 3], [0, 0]]}, ("thing: an edge must join nodes", "edge 1 leads from 3 to 0")),
        ({"x": None}, ("needs features x, or num_nodes",)),
        ({"x": torch.ones(3, 1, 1)}, ("node features x must be numbers of shape",)),
        ({"x": [["a"], ["b"], ["c"]]}, ("node features x must be numbers",)),
        ({"x": [[1.0], [float("nan")], [1.0]]}, ("thing: every feature must be finite: node 1",)),
        ({"x": [[1.0], [2.0, 3.0], [1.0]]}, ("node features x must be one array",)),
        ({"y": [1, 0]}, ("one target a node: got shape (2,), 3 nodes",)),
        ({"y": [1, 0, -2]}, ("labels must be 0 .. 1, or -1 for none: node 2 has -2",)),
        ({"y": [0.5, 1.0, 1.0], "task": "classes"}, ("labels must be whole numbers",)),
        ({"y": ["a", "b", "c"], "task": "values"}, ("values must be numbers",)),
        ({"edge_attr": torch.ones(2, 1)}, ("every edge must have its features: got 3 edges, 2 rows",)),
        ({"train_mask": [True, False]}, ("train_mask must hold true or false for each of 3 nodes",)),
        ({"train_mask": [1, 0, 1]}, ("train_mask must hold true or false",)),
        ({"test_idx": [0, 3]}, ("test_idx must name nodes 0 .. 2",)),
        ({"test_idx": [-1, 1]}, ("test_idx must name nodes 0 .. 2",)),
    ],
)
def test_a_wrong_attribute_is_named(
    changes: dict[str, Any], texts: tuple[str, ...], refused: Callable
) -> None:
    with refused(*texts):
        raw(**changes)


def test_parts_are_masks_or_lists() -> None:
    found = raw(
        train_mask=torch.tensor([True, False, False]), val_mask=[False] * 3, test_idx=np.array([2, 1])
    )
    assert {part: nodes.tolist() for part, nodes in found.official.items()} == {"train": [0], "test": [1, 2]}


def test_a_graph_is_its_own_object() -> None:
    graph = graph_of(torch.ones(2, 1), torch.zeros(2, 0, dtype=torch.int64))
    assert graph_of_object(graph, "g", []) is graph
