"""networkx graphs as tables: attributes as columns, files of every format written by networkx itself."""

from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from margin.data.formats.graphs.networkx import is_networkx, read_networkx, tables_of, tables_of_all


def small() -> nx.Graph:
    graph = nx.Graph()
    graph.add_node("a", weight=1.5, kind="red")
    graph.add_node("b", weight=2.5, kind="blue")
    graph.add_node("c", weight=3.5, kind="red")
    graph.add_edge("a", "b", cost=2.0)
    graph.add_edge("c", "c", cost=1.0)
    return graph


def test_attributes_become_columns() -> None:
    nodes, edges = tables_of(small(), "g")
    assert nodes.frame.to_dict(as_series=False) == {
        "id": ["a", "b", "c"],
        "weight": [1.5, 2.5, 3.5],
        "kind": ["red", "blue", "red"],
    }
    assert edges.frame.to_dict(as_series=False) == {
        "source": ["a", "c"],
        "target": ["b", "c"],
        "cost": [2.0, 1.0],
    }
    assert nodes.typed


def test_lists_become_columns_and_taken_names_are_changed() -> None:
    graph = nx.DiGraph()
    graph.add_node(0, x=[1.0, 2.0], id="own")
    graph.add_node(1, x=[3.0, 4.0], id="other")
    graph.add_edge(0, 1, source="web")
    nodes, edges = tables_of(graph, "g")
    assert nodes.frame.columns == ["id", "x_0", "x_1", "node.id"]
    assert nodes.frame["x_1"].to_list() == [2.0, 4.0]
    assert edges.frame.columns == ["source", "target", "edge.source"]


def test_whole_numbers_beside_others_are_numbers_and_text_beside_is_refused(refused: Callable) -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: 1, 1: 2.5, 2: 3}, "f")
    assert tables_of(graph, "g")[0].frame["f"].to_list() == [1.0, 2.5, 3.0]
    nx.set_node_attributes(graph, {0: 1, 1: "two", 2: 3}, "f")
    with refused("g, nodes, column 'f'", "one type: got int, str", "--data.ignore f"):
        tables_of(graph, "g")


def test_a_graph_without_edges_has_one_table_and_without_nodes_none(refused: Callable) -> None:
    assert tables_of(nx.empty_graph(2), "g")[1] is None
    with refused("g: a graph needs nodes"):
        tables_of(nx.Graph(), "g")


def test_several_graphs_have_marked_nodes() -> None:
    nodes, edges = tables_of_all([nx.path_graph(2), nx.path_graph(3)], "g")
    assert nodes.frame["id"].to_list() == ["0/0", "0/1", "1/0", "1/1", "1/2"]
    assert edges.frame["target"].to_list() == ["0/1", "1/1", "1/2"]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("g.graphml", nx.write_graphml),
        ("g.gml", nx.write_gml),
        ("g.gexf", nx.write_gexf),
        ("g.graphml.gz", nx.write_graphml),
    ],
)
def test_files_are_read_by_their_ending(name: str, write: Callable, tmp_path: Path) -> None:
    write(small(), tmp_path / name)
    nodes, edges = tables_of(read_networkx(tmp_path / name), name)
    assert nodes.frame["id"].to_list() == ["a", "b", "c"]
    assert nodes.frame["weight"].to_list() == [1.5, 2.5, 3.5]
    assert sorted(zip(edges.frame["source"], edges.frame["target"], edges.frame["cost"], strict=True)) == [
        ("a", "b", 2.0),
        ("c", "c", 1.0),
    ]


def test_a_pajek_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "g.net").write_text('*Vertices 2\n1 "a"\n2 "b"\n*Edges\n1 2\n')
    graph = read_networkx(tmp_path / "g.net")
    assert sorted(graph.nodes) == ["a", "b"]
    assert graph.number_of_edges() == 1


def test_a_wrong_file_is_refused(tmp_path: Path, refused: Callable) -> None:
    (tmp_path / "g.graphml").write_text("no xml")
    with refused("g.graphml: not a graphml file that networkx reads"):
        read_networkx(tmp_path / "g.graphml")
    with refused("no such file", error=FileNotFoundError):
        read_networkx(tmp_path / "h.gml")
    (tmp_path / "g.dot").write_text("graph {}")
    with refused("must end in .graphml, .gml, .gexf, .net: got '.dot'"):
        read_networkx(tmp_path / "g.dot")


def test_what_is_a_graph_of_networkx() -> None:
    assert is_networkx(nx.MultiDiGraph())
    assert not is_networkx(nx)
    assert not is_networkx([])
