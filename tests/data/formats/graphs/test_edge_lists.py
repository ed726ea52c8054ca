"""Edge lists with spaces against networkx, which writes and reads them; names, isolated nodes."""

import gzip
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from margin.data.formats.graphs.edge_lists import is_edge_list, load_edges
from margin.data.open import encode, open_data

CLUBS = nx.karate_club_graph()


def written(folder: Path, graph: nx.Graph, name: str, **options) -> Path:
    """A graph as networkx writes it, with a table of its nodes beside it."""
    folder.mkdir(exist_ok=True)
    nx.write_edgelist(graph, folder / name, **options)
    nodes = [f"{node},{values['club']}" for node, values in graph.nodes(data=True)]
    (folder / "nodes.csv").write_text("\n".join(["id,club", *nodes]))
    return folder / name


def adjacency(data) -> np.ndarray:
    graph = data.splits["train"].graph
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    source, target = graph.edge_index.numpy()
    matrix[source, target] = graph.edge_attr[:, 0] if graph.edge_attr.shape[1] else 1
    return matrix


@pytest.mark.parametrize("name", ["karate.edgelist", "karate.txt", "edges.edgelist.gz"])
@pytest.mark.parametrize("data", [True, False, ["weight"]])
def test_a_list_is_the_graph_that_networkx_wrote(tmp_path: Path, name: str, data: object) -> None:
    path = written(tmp_path, CLUBS, name, data=data)
    found = adjacency(open_data(f"graph:{path}", {"target": "club"}))
    again = nx.read_weighted_edgelist(path) if data == ["weight"] else nx.read_edgelist(path)
    expected = nx.to_numpy_array(again, nodelist=[str(node) for node in CLUBS])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found != 0, nx.to_numpy_array(CLUBS) != 0)


def test_its_direction_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, CLUBS, "k.edgelist", data=False)
    found = adjacency(open_data(path, {"target": "club", "directed": "directed"}))
    expected = nx.to_numpy_array(nx.read_edgelist(path, create_using=nx.DiGraph), nodelist=[*map(str, CLUBS)])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["edges.edgelist", "edges.txt", "edges.csv"])
def test_names_are_text_and_nodes_may_be_alone(tmp_path: Path, name: str) -> None:
    """007 is not 7; a node of no edge is in the graph, and in a part."""
    graph = nx.relabel_nodes(CLUBS, {node: f"00{node}" for node in CLUBS})
    graph.add_node("alone", club="Officer")
    graph.add_node("7", club="Officer")
    written(tmp_path / "folder", graph, name, data=False, delimiter="," if name.endswith("csv") else " ")
    if name.endswith("csv"):
        path = tmp_path / "folder" / name
        path.write_text("source,target\n" + path.read_text())
    data = open_data(f"graph:{tmp_path / 'folder'}", {"target": "club"})
    np.testing.assert_array_equal(adjacency(data), nx.to_numpy_array(graph, weight=None))
    assert sum(len(part) for part in data.splits.values()) == 36
    about = " ".join(text for _, text in data.encoding["about"])
    assert "36 nodes" in about
    assert "2 isolated nodes" in about
    new = encode(f"graph:{tmp_path / 'folder'}", data.encoding)
    assert torch.equal(new.graph.edge_index, data.splits["train"].graph.edge_index)
    assert new.names[7] == "007"


def test_a_header_and_comments_are_no_edges(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("# made by hand\nsource target\n\na b 1 2\nb c 3 4 # the last\n")
    table = load_edges(tmp_path / "x.txt")
    assert table.frame.to_dict(as_series=False) == {
        "source": ["a", "b"],
        "target": ["b", "c"],
        "value_1": [1.0, 3.0],
        "value_2": [2.0, 4.0],
    }
    assert table.at(1, "target") == f"{tmp_path / 'x.txt'}, row 5, column 'target'"


def test_a_table_of_edges_stays_one(tmp_path: Path) -> None:
    for text in ("source,target\na,b\n", "source\ttarget\na b\tc\n", "a;b\nc d;e\n"):
        (tmp_path / "x.txt").write_text(text)
        assert not is_edge_list(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\nc\n", "row 2: an edge needs two ends: got 'c'; a node without an edge is a row of the nodes"),
        ("a b 1\nb c\n", "row 2: every edge must carry as much as the first, 1: got 0"),
        ("a b\nb c 1\n", "row 2: every edge must carry as much as the first, 0: got 1"),
        ("a b far\n", "row 1: behind its ends an edge carries numbers or a dictionary: got 'far'"),
        ("a b {'w': [1]}\n", "row 1: a dictionary must be of numbers and texts"),
        ("a b {'w': __import__('os')}\n", "row 1: a dictionary must be of numbers and texts"),
        ("# nothing\n", "the file has no edges"),
    ],
)
def test_what_is_no_edge_is_said_with_its_row(tmp_path: Path, refused, text: str, message: str) -> None:
    for name in ("x.edgelist", "x.edgelist.gz"):
        packed = text.encode() if name.endswith("list") else gzip.compress(text.encode())
        (tmp_path / name).write_bytes(packed)
        with refused(str(tmp_path / name), message):
            load_edges(tmp_path / name)
    with refused("no such file", error=FileNotFoundError):
        load_edges(tmp_path / "none.edgelist")


def test_an_edge_to_no_node_is_said_with_the_row_of_its_line(tmp_path: Path, refused) -> None:
    path = written(tmp_path, CLUBS, "k.edgelist", data=False)
    path.write_text("# first\n" + path.read_text() + "0 zed\n")
    with refused("row 80, column 'target'", "no node 'zed'"):
        open_data(path, {"target": "club"})


HEADS = {
    "k.csv": ("", ","),
    "k.tsv": ("", "\t"),
    "k.edges": ("", ","),
    "semicolons.csv": ("", ";"),
    "spaced.txt": ("", ", "),
    "snap.txt": ("# Nodes: 34\n# FromNodeId\tToNodeId\n", "\t"),
    "out.txt": ("% sym unweighted\n% 78 34 34\n", " "),
    "from.txt": ("from to\n", " "),
    "named.csv": ("Source,Target\n", ","),
}


@pytest.mark.parametrize("name", HEADS)
def test_no_edge_is_taken_for_a_header_and_no_comment_for_an_edge(tmp_path: Path, name: str) -> None:
    """As spreadsheets, SNAP, KONECT and Network Repository write them, all with 78 edges."""
    path = written(tmp_path, CLUBS, name)
    head, mark = HEADS[name]
    path.write_text(head + "\n".join(f"{a}{mark}{b}" for a, b in CLUBS.edges))
    data = open_data(f"graph:{path}", {"target": "club"})
    np.testing.assert_array_equal(adjacency(data), nx.to_numpy_array(CLUBS, weight=None))
    again = encode(f"graph:{path}", data.encoding)
    assert torch.equal(again.graph.edge_index, data.splits["train"].graph.edge_index)


def test_a_mark_of_comments_in_a_text_is_none(tmp_path: Path, refused) -> None:
    (tmp_path / "x.txt").write_text("a b {'color': '#f00'}\nb c {'color': '#0f0'}  # green\n")
    assert load_edges(tmp_path / "x.txt").frame["color"].to_list() == ["#f00", "#0f0"]
    (tmp_path / "y.txt").write_text("a b {'source': 'x'}\n")  # it is no end
    assert load_edges(tmp_path / "y.txt").frame.to_dicts() == [
        {"source": "a", "target": "b", "edge.source": "x"}
    ]
    for name, text in (("x.adjlist", "0 1 2\n1 2 3\n"), ("x.mtx", "%%MatrixMarket matrix\n2 2 1\n1 2\n")):
        (tmp_path / name).write_text(text)
        with refused(name, "an edge a line", "networkx.write_edgelist"):
            load_edges(tmp_path / name)


@pytest.mark.parametrize("ending", ["gexf", "net", "graphml", "gml"])
def test_what_a_format_writes_of_itself_is_no_feature(tmp_path: Path, ending: str) -> None:
    """GEXF numbers edges and repeats the names of nodes, Pajek numbers nodes."""
    graph = nx.Graph(CLUBS.edges(data=True))
    nx.set_node_attributes(graph, {node: CLUBS.nodes[node]["club"] for node in graph}, "club")
    path = tmp_path / f"k.{ending}"
    {"gexf": nx.write_gexf, "net": nx.write_pajek, "graphml": nx.write_graphml, "gml": nx.write_gml}[ending](
        graph, path
    )
    tables = open_data(path, {"target": "club"}).encoding["tables"]
    assert [column["name"] for column in tables["edge_columns"]] == ["weight"]
    names = {column["name"] for column in tables["columns"]}
    assert names <= ({"x", "y", "shape"} if ending == "net" else set())
