"""Graphs from two tables: hand cases, and every cell that can be wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from margin.data.formats.graphs import TABLES
from margin.data.formats.graphs.node_data import RawNodes
from margin.data.formats.graphs.tables import Reading, raw_of_tables, read_by, structure
from margin.data.formats.tables.delimited import Table, load_table
from margin.engine.schema import check

NODES = "id,age,color,label\na,1,red,x\nb,2,blue,y\nc,3,red,\nd,4,blue,x\n"
EDGES = "source,target,kind,weight\na,b,old,0.5\nc,b,new,2\nd,d,old,1\n"


@pytest.fixture
def tables(csv: Callable[..., Path]) -> Callable[..., tuple[Table, Table]]:
    def read(nodes: str = NODES, edges: str = EDGES) -> tuple[Table, Table]:
        return load_table(csv(nodes, "nodes.csv")), load_table(csv(edges, "edges.csv"))

    return read


def raw(tables: tuple[Table, Table], **reading: Any) -> RawNodes:
    return raw_of_tables(*tables, Reading(**reading), "graph")


def test_columns_become_features_and_an_edge_stands_for_both_directions(tables: Callable) -> None:
    found = raw(tables())
    assert found.graph.x.tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 1], [4, 1, 0]]  # age, blue, red
    assert found.graph.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [3, 3]]
    # new, old, weight: both directions carry the row's
    assert found.graph.edge_attr.tolist() == [[0, 1, 0.5], [0, 1, 0.5], [1, 0, 2], [1, 0, 2], [0, 1, 1]]
    assert found.classes == ("x", "y")
    assert found.targets.tolist() == [0, 1, 0, 0]
    assert found.labeled.tolist() == [True, True, False, True]
    assert found.names == ("a", "b", "c", "d")
    assert any("both directions" in note for note in found.notes)


def test_directed_edges_stay_as_they_are(tables: Callable) -> None:
    found = raw(tables(), directed="directed")
    assert found.graph.edge_index.T.tolist() == [[0, 1], [2, 1], [3, 3]]
    assert not found.notes


def test_columns_are_left_out_and_named(tables: Callable) -> None:
    found = raw(tables(), ignore=("kind", "age", "weight"))
    assert found.graph.x.shape == (4, 2)
    assert found.graph.edge_attr.shape == (5, 0)
    values = raw(tables(), target="age", ignore=("label",), task="values")
    assert values.targets.tolist() == [1, 2, 3, 4]
    assert values.task == "values"
    assert values.graph.x.shape == (4, 2)


def test_ends_and_names_by_other_columns(tables: Callable) -> None:
    found = raw(tables("who,y\nu,p\nv,q\n", "w,to,from\n1,u,v\n"), directed="directed")
    assert found.graph.edge_index.tolist() == [[1], [0]]
    assert found.graph.edge_attr.tolist() == [[1]]
    by_place = raw(tables("who,y\nu,p\nv,q\n", "a,b\nu,v\n"), directed="directed")
    assert by_place.graph.edge_index.tolist() == [[0], [1]]
    said = raw(
        tables("k,who,y\n1,u,p\n2,v,q\n", "a,b,c\nx,u,v\n"),
        id="who",
        source="c",
        to="b",
        ignore=("a",),
        directed="directed",
    )
    assert said.graph.edge_index.tolist() == [[1], [0]]
    assert said.graph.x.tolist() == [[1], [2]]


def test_nodes_without_features_have_the_feature_1(tables: Callable) -> None:
    found = raw(tables("id,y\na,p\nb,q\n", "u,v\na,b\n"))
    assert found.graph.x.tolist() == [[1], [1]]
    assert any("feature 1" in note for note in found.notes)


def test_a_graph_without_an_edge_table_has_no_edges(tables: Callable) -> None:
    nodes, _ = tables()
    found = raw_of_tables(nodes, None, Reading(), "graph")
    assert found.graph.num_edges == 0
    assert found.graph.num_nodes == 4


def test_numbers_and_names_are_the_same_node(tables: Callable) -> None:
    found = raw(tables("id,y\n10,p\n 2,q\n", "u,v\n10,2\n"), directed="directed")
    assert found.graph.edge_index.tolist() == [[0], [1]]


def test_parts_are_those_of_a_column_or_of_masks(tables: Callable) -> None:
    found = raw(tables("id,y,split,f\na,p,train,1\nb,q,test,2\nc,p,,3\nd,q,train,4\n", "u,v\na,b\n"))
    assert {part: nodes.tolist() for part, nodes in found.official.items()} == {"train": [0, 3], "test": [1]}
    assert found.graph.x.tolist() == [[1], [2], [3], [4]]
    masks = raw(tables("id,y,train_mask,test_mask\na,p,true,false\nb,q,false,true\n", "u,v\na,b\n"))
    assert {part: nodes.tolist() for part, nodes in masks.official.items()} == {"train": [0], "test": [1]}
    assert masks.graph.x.tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("nodes", "edges", "texts"),
    [
        (
            NODES,
            "source,target\na,b\nb,zz\n",
            ("edges.csv, row 3, column 'target'", "no node 'zz'", "nodes.csv"),
        ),
        (NODES, "source,target\nq,b\nq,q\n", ("edges.csv, row 2, column 'source'", "(2 such cells)")),
        (NODES, "source,target\n,b\n", ("edges.csv, row 2, column 'source'", "the cell is empty")),
        (NODES, "source\na\n", ("an edge needs two columns",)),
        (NODES + "a,1,red,x\n", EDGES, ("nodes.csv, row 6, column 'id'", "'a' is above")),
        (NODES + ",1,red,x\n", EDGES, ("nodes.csv, row 6, column 'id'", "the cell is empty")),
        (NODES + "e,,red,x\n", EDGES, ("nodes.csv, row 6, column 'age'", "--data.ignore age")),
        (NODES.replace("label", "thing"), EDGES, ("name the target column", "id, age, color, thing")),
        (
            NODES.replace(",y\n", ",2\n").replace(",x\n", ",1\n"),
            EDGES,
            ("whole numbers may be classes or values",),
        ),
        (
            NODES,
            "source,target,w\na,b,1\nb,a,2\n",
            ("edges.csv", "edges 0 and 1", "--data.directed directed"),
        ),
        ("id,y,split\na,p,train\nb,q,exam\n", "u,v\na,b\n", ("row 3, column 'split'", "got 'exam'")),
    ],
)
def test_a_wrong_cell_is_named(
    nodes: str, edges: str, texts: tuple[str, ...], tables: Callable, refused: Callable
) -> None:
    with refused(*texts):
        raw(tables(nodes, edges))


@pytest.mark.parametrize("option", ["id", "target", "source", "to"])
def test_a_column_that_is_not_there_is_named(option: str, tables: Callable, refused: Callable) -> None:
    with refused("no column 'nowhere'"):
        raw(tables(), **{option: "nowhere"})
    with refused("no column 'nowhere'"):
        raw(tables(), ignore=("nowhere",))


def test_new_tables_are_read_by_the_record(tables: Callable, refused: Callable) -> None:
    first = raw(tables())
    record = {**first.encoding["tables"], "task": "classes", "classes": ["x", "y"]}
    new = read_by(
        *tables(
            "label,color,id,age,more\ny,red,p,9,?\nx,red,q,8,?\n", "source,target,kind,weight\nq,p,new,3\n"
        ),
        record,
        "new",
    )
    assert new.graph.x.tolist() == [[9, 0, 1], [8, 0, 1]]
    assert new.graph.edge_index.tolist() == [[0, 1], [1, 0]]
    assert new.graph.edge_attr.tolist() == [[1, 0, 3], [1, 0, 3]]
    assert new.targets.tolist() == [1, 0]
    blank = read_by(*tables("color,id,age\nred,p,9\n", EDGES.split("\n")[0] + "\np,p,old,1\n"), record, "new")
    assert blank.targets is None
    with refused("every category must be one of 'blue', 'red'", "got 'green'"):
        read_by(*tables("color,id,age\ngreen,p,9\n", "source,target,kind,weight\np,p,old,1\n"), record, "new")
    with refused("every class must be one of 'x', 'y'", "got 'z'"):
        read_by(
            *tables("color,id,age,label\nred,p,9,z\n", "source,target,kind,weight\np,p,old,1\n"),
            record,
            "new",
        )


def test_the_structure_alone_needs_no_target(tables: Callable) -> None:
    record = structure(*tables("id,f\na,1\nb,2\n", "u,v\na,b\n"), Reading())
    assert [column["name"] for column in record["columns"]] == ["f"]
    assert record["ends"] == ["u", "v"]


def test_a_target_with_a_unit_is_recorded_with_it(tables: Callable, refused: Callable) -> None:
    nodes, edges = tables("id,age,share\na,1,10 %\nb,2,\nc,3,30 %\nd,4,40 %\n")
    found = raw((nodes, edges), target="share", task="values")
    assert found.targets.tolist() == [10, 0, 30, 40] and found.labeled.tolist() == [True, False, True, True]
    record = {**found.encoding["tables"], "task": "values", "classes": []}
    assert record["target"] == {"name": "share", "kind": "number", "unit": "%"}
    check(record, {**TABLES, "task": str, "classes": list}, "tables", Path("run.yaml"))
    plain, _ = tables("id,age,share\na,1,10\nb,2,20\nc,3,30\nd,4,40\n")
    with refused("row 2, column 'share'", "must be written with %"):
        read_by(plain, edges, record, "graph")
