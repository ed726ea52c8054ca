"""A graph from two tables: a row a node, with its name, features and target; a row an edge, with its ends.

Texts are categories and become one 0/1 feature for each value, as in other tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor

from margin.data.examples import PARTS_OF_DATA
from margin.data.formats.graphs.graphs import Graph, graph_of
from margin.data.formats.graphs.node_data import RawNodes
from margin.data.formats.tables.columns import Column, as_kind, features, no_column, understand
from margin.data.formats.tables.dates import varying
from margin.data.formats.tables.delimited import Table
from margin.data.formats.tables.encoder import check_known, class_names, labels_of, refuse_missing
from margin.data.formats.tables.table_parts import TARGETS, categories_of, written_of
from margin.data.splits import TaskName

Directed = Literal["undirected", "directed"]

IDS = ("id", "node", "node_id")
"""Names of the column of node names that need not be said; else it is the first column."""

ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))
"""Names of the columns of an edge's ends that need not be said; else they are the first two columns."""

MARKS = ("train_mask", "val_mask", "test_mask")
"""Boolean columns that say which nodes are in a part, as a column ``split`` of the parts' names does."""

FILL = "fill it in, or set --data.ignore {column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the two tables are read.

    Args:
        id: The column of node names; "" takes one of :data:`IDS`, else the first.
        target: The column to predict; "" takes the one called target, label, class or y.
        task: Whether targets are classes or values, where their type does not say.
        source: The column of an edge's source; "" takes a pair of :data:`ENDS`, else the first two columns.
        to: The column of its target.
        directed: Whether an edge stands for both directions.
        ignore: Columns of either table that are left out.
    """

    id: str = ""
    target: str = ""
    task: TaskName | None = None
    source: str = ""
    to: str = ""
    directed: Directed = "undirected"
    ignore: tuple[str, ...] = ()


def raw_of_tables(nodes: Table, edges: Table | None, reading: Reading, name: str) -> RawNodes:
    """The graph of a table of nodes and a table of edges, for a training.

    Raises:
        ValueError: A name is missing or given twice, an edge leads to no node, or a cell cannot be read; the
            message names file, row and column.
    """
    target = _target(nodes, reading.target, identity_of(nodes, reading.id))
    record = structure(nodes, edges, reading, target)
    if not target:
        shown = ", ".join(nodes.frame.columns)
        raise ValueError(f"{nodes.name}: name the target column: --target; it has: {shown}")
    column = understand(nodes, target)
    task = reading.task or _task(nodes, column)
    classes: tuple[str, ...] = ()
    if task == "classes":
        known = class_names(nodes, column).drop_nulls().unique().to_list()
        classes = tuple(sorted(known, key=float if column.kind == "number" else str))
    record |= {
        "target": {"name": target, "kind": column.kind, **written_of(column)},
        "task": task,
        "classes": list(classes),
    }
    return read_by(nodes, edges, record, name)


def structure(nodes: Table, edges: Table | None, reading: Reading, target: str = "") -> dict[str, Any]:
    """What the encoding keeps of two tables besides the target: columns, names, ends, direction.

    Raises:
        ValueError: A column is missing, or its cells are neither numbers nor categories.
    """
    identity, ends = identity_of(nodes, reading.id), _ends(edges, reading)
    for column in reading.ignore:
        if column not in nodes.frame.columns and (edges is None or column not in edges.frame.columns):
            raise ValueError(no_column(nodes, column))
    special = {identity, target, "split", *MARKS, *reading.ignore}
    carried = [] if edges is None else [c for c in edges.frame.columns if c not in {*ends, *reading.ignore}]
    return {
        "columns": _records(nodes, [c for c in nodes.frame.columns if c not in special]),
        "edge_columns": [] if edges is None else _records(edges, carried),
        "id": identity,
        "ends": list(ends),
        "directed": reading.directed,
        "target": {"name": "", "kind": "number"},
        "task": "values",
        "classes": [],
    }


def read_by(nodes: Table, edges: Table | None, record: Mapping[str, Any], name: str) -> RawNodes:
    """The graph of two tables by a record: its columns, kinds, categories and classes.

    Raises:
        ValueError: A column is missing, a category or class is unknown, or as :func:`raw_of_tables`.
    """
    names = _names(nodes, record["id"])
    x = _encoded(nodes, record["columns"], len(names))
    if not record["columns"]:
        x = torch.ones(len(names), 1)
    graph = graph_of(x, torch.zeros((2, 0), dtype=torch.int64), x.new_zeros((0, 0)))
    if edges is not None:
        index = torch.stack([_places(edges, end, names, nodes.name) for end in record["ends"]])
        graph = graph_of(x, index, _encoded(edges, record["edge_columns"], index.shape[1]))
    if record["directed"] == "undirected":
        graph = _both(graph, edges)
    targets, labeled = _targets(nodes, record)
    notes = [] if record["columns"] else ["the nodes have no columns of features: each has the feature 1"]
    if record["directed"] == "undirected" and edges is not None:
        notes.append("an edge stands for both directions: set --data.directed directed if it does not")
    return RawNodes(
        name=name,
        graph=graph,
        targets=targets,
        labeled=labeled,
        task=record["task"],
        classes=tuple(record["classes"]),
        official=_official(nodes),
        names=tuple(names),
        encoding={"tables": {key: record[key] for key in RECORDED}},
        notes=tuple(notes),
    )


RECORDED = ("columns", "edge_columns", "id", "ends", "directed", "target")
"""What of :func:`structure` an encoding keeps under ``tables``."""


def identity_of(nodes: Table, name: str) -> str:
    """The column of node names: the one that is said, else as :data:`IDS` says."""
    columns = nodes.frame.columns
    if name and name not in columns:
        raise ValueError(no_column(nodes, name))
    return name or next((c for c in columns if c.lower() in IDS), columns[0])


def _target(nodes: Table, name: str, identity: str) -> str:
    if name and name not in nodes.frame.columns:
        raise ValueError(no_column(nodes, name))
    likely = [c for c in nodes.frame.columns if c.lower() in TARGETS and c != identity]
    return name or (likely[0] if len(likely) == 1 else "")


def _ends(edges: Table | None, reading: Reading) -> tuple[str, str]:
    if edges is None:
        return "source", "target"
    columns = edges.frame.columns
    for name in (reading.source, reading.to):
        if name and name not in columns:
            raise ValueError(no_column(edges, name))
    if len(columns) < 2:
        raise ValueError(f"{edges.name}: an edge needs two columns, its ends: got {', '.join(columns)}")
    lower = {c.lower(): c for c in columns}
    found = next(
        ((lower[a], lower[b]) for a, b in ENDS if a in lower and b in lower), (columns[0], columns[1])
    )
    return reading.source or found[0], reading.to or found[1]


def _task(nodes: Table, column: Column) -> TaskName:
    if column.kind == "number" and column.whole:
        raise ValueError(
            f"{nodes.name}, target {column.name!r}: whole numbers may be classes or values: "
            "set --task classes or --task values"
        )
    return "values" if column.kind == "number" else "classes"


def _records(table: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    records = []
    for name in names:
        column = understand(table, name, dates="read")
        record: dict[str, Any] = {"name": name, "kind": column.kind, **written_of(column)}
        if column.kind == "date":
            record["parts"] = varying(column.values.to_numpy())
        if column.kind == "category":
            record["categories"] = categories_of(table, column)
        records.append(record)
    return records


def _encoded(table: Table, records: Sequence[Mapping[str, Any]], rows: int) -> Tensor:
    blocks = [np.zeros((rows, 0))]
    for record in records:
        column = as_kind(table, record["name"], record["kind"], record)
        refuse_missing(table, [column], FILL)
        if record["kind"] == "category":
            check_known(table, column, record["categories"], "category")
        blocks.append(features(column, record))
    return torch.from_numpy(np.concatenate(blocks, 1)).float()


def _names(nodes: Table, column: str) -> list[str]:
    """The names of the nodes, each given once."""
    if column not in nodes.frame.columns:
        raise ValueError(no_column(nodes, column))
    names = _words(nodes, column)
    twice = names.is_first_distinct().not_().arg_true()
    if len(twice):
        raise ValueError(
            f"{nodes.at(twice[0], column)}: every node must be named once: {names[twice[0]]!r} is above"
        )
    return names.to_list()


def _words(table: Table, column: str) -> pl.Series:
    words = table.frame[column].cast(pl.String).str.strip_chars()
    empty = (words.is_null() | (words == "")).arg_true()
    if len(empty):
        raise ValueError(f"{table.at(empty[0], column)}: a node needs a name: the cell is empty")
    return words


def _places(edges: Table, column: str, names: Sequence[str], where: str) -> Tensor:
    """The numbers of the nodes that a column of an edge table names."""
    if column not in edges.frame.columns:
        raise ValueError(no_column(edges, column))
    words = _words(edges, column)
    places = words.replace_strict([*names], [*range(len(names))], default=None, return_dtype=pl.Int64)
    absent = places.is_null().arg_true()
    if len(absent):
        raise ValueError(
            f"{edges.at(absent[0], column)}: an edge must join nodes of {where}: "
            f"no node {words[absent[0]]!r} ({len(absent)} such cells)"
        )
    return torch.from_numpy(places.to_numpy().copy())


def _both(graph: Graph, edges: Table | None) -> Graph:
    try:
        return graph.undirected()
    except ValueError as error:
        where = "edges" if edges is None else edges.name
        raise ValueError(
            f"{where}: {error} (edges are counted from 0); set --data.directed directed"
        ) from None


def _targets(nodes: Table, record: Mapping[str, Any]) -> tuple[Tensor | None, Tensor]:
    """The target of each node, 0 where its cell is empty, and which have one."""
    target = record["target"]
    if target["name"] not in nodes.frame.columns:
        return None, torch.zeros(nodes.frame.height, dtype=torch.bool)
    column = as_kind(nodes, target["name"], target["kind"], target)
    labeled = torch.from_numpy(column.values.is_not_null().to_numpy().copy())
    if record["task"] == "values":
        if column.kind != "number":
            raise ValueError(
                f"{nodes.name}, target {column.name!r}: values must be numbers: got {column.kind} cells"
            )
        return torch.from_numpy(column.values.fill_null(0.0).to_numpy().copy()).float(), labeled
    names = class_names(nodes, column)
    check_known(nodes, Column(column.name, "category", names), record["classes"], "class")
    return labels_of(names.fill_null(record["classes"][0]), record["classes"]), labeled


def _official(nodes: Table) -> dict[str, Tensor]:
    """The parts that a column ``split`` or the boolean columns of :data:`MARKS` name."""
    parts: dict[str, Tensor] = {}
    if "split" in nodes.frame.columns:
        words = nodes.frame["split"].cast(pl.String).str.strip_chars().fill_null("")
        strange = (~words.is_in(["", *PARTS_OF_DATA])).arg_true()
        if len(strange):
            raise ValueError(
                f"{nodes.at(strange[0], 'split')}: a part must be train, val, test or empty: "
                f"got {words[strange[0]]!r}"
            )
        parts = {part: _rows(words == part) for part in PARTS_OF_DATA}
    for part, mark in zip(PARTS_OF_DATA, MARKS, strict=True):
        if mark in nodes.frame.columns:
            parts[part] = _rows(as_kind(nodes, mark, "boolean").values.fill_null(value=False))
    return {part: rows for part, rows in parts.items() if len(rows)}


def _rows(mask: pl.Series) -> Tensor:
    return torch.from_numpy(mask.arg_true().to_numpy().astype(np.int64))
