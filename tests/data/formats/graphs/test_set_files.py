"""Files of graphs, read against what the tests themselves wrote; every line that can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from margin.data.formats.graphs.set_files import load_graphs, numbers_of

FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n5, 5\n",
    "graph_indicator": "1\n1\n1\n2\n2\n",
    "graph_labels": "-1\n1\n",
    "node_labels": "0\n2\n0\n5\n2\n",
    "node_attributes": "0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n",
    "edge_labels": "7\n7\n8\n8\n7\n",
    "edge_attributes": "1\n1\n2\n2\n3\n",
}


def folder(path: Path, **changes: str | None) -> Path:
    path.mkdir(exist_ok=True)
    for kind, text in {**FILES, **changes}.items():
        if text is not None:
            (path / f"DS_{kind}.txt").write_text(text)
    return path


def test_a_folder_of_the_tu_format(tmp_path: Path) -> None:
    found = load_graphs(folder(tmp_path / "DS"))
    assert found.sizes.tolist() == [3, 2]
    assert found.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [4, 4]]
    assert found.targets.tolist() == [-1, 1]
    assert not found.values
    assert found.tags.tolist() == [0, 2, 0, 5, 2]
    assert found.attributes[3].tolist() == [3.5, 4]
    assert found.edge_tags.tolist() == [7, 7, 8, 8, 7]
    assert found.edge_attributes.flatten().tolist() == [1, 1, 2, 2, 3]


def test_what_may_be_missing(tmp_path: Path) -> None:
    bare = dict.fromkeys(("node_labels", "node_attributes", "edge_labels", "edge_attributes"))
    found = load_graphs(folder(tmp_path / "DS", **bare))
    assert found.tags is None
    assert found.edge_tags is None
    assert found.attributes.shape == (5, 0)
    assert found.edge_attributes.shape == (5, 0)
    values = folder(tmp_path / "V", graph_labels=None, graph_attributes="0.5\n2.5\n")
    assert load_graphs(values).values
    assert load_graphs(values).targets.tolist() == [0.5, 2.5]
    new = load_graphs(folder(tmp_path / "N", graph_labels=None))
    assert new.targets is None
    assert new.sizes.tolist() == [3, 2]


def test_graphs_without_edges_and_without_nodes(tmp_path: Path) -> None:
    none = load_graphs(folder(tmp_path / "DS", A="", edge_labels=None, edge_attributes=None))
    assert none.edge_index.shape == (2, 0)
    gap = load_graphs(folder(tmp_path / "G", graph_indicator="1\n1\n1\n3\n3\n", graph_labels="0\n1\n0\n1\n"))
    assert gap.sizes.tolist() == [3, 0, 2, 0]


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"A": "1, 2\n2, 6\n"}, ("DS_A.txt, line 2", "nodes 1 .. 5: got 2, 6")),
        ({"A": "1, 2\n0, 1\n"}, ("DS_A.txt, line 2", "got 0, 1")),
        ({"A": "1, 2\n3, 4\n"}, ("DS_A.txt, line 2", "nodes 3, 4 lie in two")),
        ({"A": "1, 2\n3\n"}, ("DS_A.txt, line 2", "must hold 2 numbers: got 1")),
        ({"A": "1\n"}, ("DS_A.txt, line 1", "an edge has two nodes")),
        ({"A": "1, 2\n2, x\n"}, ("DS_A.txt, line 2", "whole numbers: got '2, x'")),
        ({"A": "1, 2\n2, 1.5\n"}, ("DS_A.txt, line 2", "whole numbers")),
        ({"graph_indicator": "1\n2\n1\n2\n2\n"}, ("DS_graph_indicator.txt, line 3", "ascend from 1: got 1")),
        ({"graph_indicator": "0\n1\n1\n2\n2\n"}, ("DS_graph_indicator.txt, line 1", "got 0")),
        ({"graph_labels": "1\n"}, ("names graph 2: there are 1 targets",)),
        ({"node_labels": "1\n2\n"}, ("DS_node_labels.txt must have a line for each node: got 2, 5 nodes",)),
        ({"edge_attributes": "1\n2\n"}, ("DS_edge_attributes.txt must have a line for each edge: got 2, 5",)),
    ],
)
def test_a_wrong_line_is_named(
    changes: dict[str, str], texts: tuple[str, ...], tmp_path: Path, refused: Callable
) -> None:
    with refused(*texts):
        load_graphs(folder(tmp_path / "DS", **changes))


def test_a_file_that_must_be_there(tmp_path: Path, refused: Callable) -> None:
    with refused("no such file", "DS_A.txt", error=FileNotFoundError):
        load_graphs(folder(tmp_path / "DS", A=None))
    with refused("no such file or folder", error=FileNotFoundError):
        load_graphs(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with refused("must hold NAME_graph_indicator.txt, or empty.txt", error=FileNotFoundError):
        load_graphs(tmp_path / "empty")


TEXT = "2\n3 4\n0 1 1 0.5\n2 2 0 2 1.5\n0 1 1 2.5\n1 9\n7 1 0 3.5\n"


def test_the_text_of_graphs(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(TEXT)
    found = load_graphs(path)
    assert found.sizes.tolist() == [3, 1]
    assert found.targets.tolist() == [4, 9]
    assert found.tags.tolist() == [0, 2, 0, 7]
    assert found.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 3]]
    assert found.attributes.flatten().tolist() == [0.5, 1.5, 2.5, 3.5]
    named = tmp_path / "SET"
    named.mkdir()
    (named / "SET.txt").write_text("1\n0 1\n\n")
    assert load_graphs(named).sizes.tolist() == [0]
    assert load_graphs(named).edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("", ("line 1", "the file ends where the number of graphs must stand")),
        ("two\n", ("line 1", "the number of graphs must be whole numbers")),
        ("\n", ("line 1", "the number of graphs")),
        ("2\n1 0\n0 0\n", ("line 4", "a graph's number of nodes and its label")),
        ("1\n1\n", ("line 2", "a graph's number of nodes and its label must be whole numbers: got '1'")),
        ("1\n2 0\n0 1 1\n", ("line 4", "the file ends where a node")),
        ("1\n2 0\n0 1 2\n0 0\n", ("line 3", "neighbors must be nodes 0 .. 1: got 2")),
        ("1\n2 0\n0 1 -1\n0 0\n", ("line 3", "got -1")),
        ("1\n2 0\n0 2 1\n0 0\n", ("line 3", "the 2 neighbors must be whole numbers")),
        ("1\n1 0\n0\n", ("line 3", "a node's tag and number of neighbors")),
        ("1\n1 0\n0 0 x\n", ("line 3", "attributes must be numbers")),
        ("1\n2 0\n0 0 1.5\n0 0\n", ("line 4", "must have 1 attributes: got 0")),
        ("1\n1 0\n0 0\n1 0\n", ("line 4", "must end after 1 graphs")),
    ],
)
def test_a_wrong_line_of_the_text_is_named(
    text: str, texts: tuple[str, ...], tmp_path: Path, refused: Callable
) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text)
    with refused(str(path), *texts):
        load_graphs(path)


def test_numbers_with_blanks_around(tmp_path: Path) -> None:
    path = tmp_path / "n.txt"
    path.write_text("  1 ,2\n 3, 4  \n\n")
    assert numbers_of(path, np.int64).tolist() == [[1, 2], [3, 4]]
    path.write_text("1e3\n-2.5\n")
    assert numbers_of(path, np.float64).flatten().tolist() == [1000, -2.5]
    path.write_text("")
    assert numbers_of(path, np.int64).shape == (0, 1)


def test_the_given_sets(shared: Path) -> None:
    """Graphs, classes and mean sizes as Xu et al. (2019, table 1) state them; check.py counts the rest."""
    table: dict[str, tuple[Any, ...]] = {
        "MUTAG": (188, 2, 17.9, 0),
        "PROTEINS": (1113, 2, 39.1, 5),
        "PTC": (344, 2, 25.6, 0),
        "ENZYMES": (600, 6, 32.6, 106),
    }
    for name, (graphs, classes, mean, isolated) in table.items():
        found = load_graphs(shared / "graphclass" / name)
        assert len(found.sizes) == graphs
        assert len(np.unique(found.targets)) == classes
        assert found.sizes.mean() == pytest.approx(mean, abs=0.06)
        touched = np.unique(found.edge_index)
        assert found.sizes.sum() - len(touched) == isolated
