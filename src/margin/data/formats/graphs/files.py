"""One graph in files, whose nodes are the examples: two tables, arrays, GraphML and what networkx reads.

A folder holds ``nodes`` and ``edges``, each ``.csv``, ``.tsv`` or ``.parquet``; the edges may be an edge list
with spaces too (``.edgelist``, ``.txt``), as networkx writes it. Of edges alone the table of nodes lies
beside them, or is named. An ``.npz`` holds ``x`` (nodes, features), or its nonzero numbers by rows as
``x_data``, ``x_indices``, ``x_indptr``, ``x_shape`` (compressed sparse rows), and ``edge_index`` (2, edges),
``y``, ``train_idx`` or ``train_mask`` and so on. Nothing is unpickled.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from margin.data.examples import PARTS_OF_DATA, Data
from margin.data.files.archives import arrays_in, names_in, unread_in
from margin.data.files.reading import check_unpacked
from margin.data.formats.graphs.attributes import raw_of_object
from margin.data.formats.graphs.edge_lists import EDGE_LISTS, load_edges
from margin.data.formats.graphs.networkx import ENDINGS, read_networkx, tables_of
from margin.data.formats.graphs.node_data import (
    Cutting,
    RawNodes,
    new_nodes,
    node_data,
)
from margin.data.formats.graphs.objects import encode_object
from margin.data.formats.graphs.parts import Nodes
from margin.data.formats.graphs.tables import Directed, Reading, identity_of, raw_of_tables, read_by
from margin.data.formats.tables.delimited import Table, load_table
from margin.data.options import option_groups
from margin.data.splits import TaskName

TABLES = (".csv", ".tsv", ".parquet", ".pq", ".csv.gz", ".tsv.gz")
LISTS = tuple(f"{ending}{packed}" for ending in (*EDGE_LISTS, ".txt") for packed in ("", ".gz"))


@option_groups()
def read_graph(  # more than 7 parameters: they are the options of the source
    path: str | os.PathLike[str],
    *,
    nodes_file: str = "",
    id: str = "",
    target: str = "",
    task: TaskName | None = None,
    source: str = "",
    to: str = "",
    directed: Directed | None = None,
    ignore: tuple[str, ...] = (),
    cutting: Cutting = Cutting(),
) -> Data:
    """One graph from a folder of nodes and edges, edges alone, an ``.npz``, or a file that networkx reads.

    A node whose target is empty (a label -1, a value NaN) is in no part and is read all the same. Parts that
    the source names are kept: a column ``split`` of train, val, test; masks; lists of nodes. Features that
    are 0 or 1 throughout are left as they are, others standardized.

    Args:
        path: The folder or the file.
        nodes_file: The file of nodes that belongs to an edge table.
        id: The column of node names; by default id, node or node_id, else the first.
        target: The column to predict; by default the one called target, label, class or y.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        source: The column of an edge's source; by default source, src, from or u, else the first.
        to: The column of its target; by default target, dst, to or v, else the second.
        directed: Whether each edge stands for both directions; None takes tables so, an ``.npz`` as it is,
            and the others by their own word.
        ignore: Columns that are left out.
        cutting: The parts, and what each of them sees.
        split: random cuts by the shares, planetoid takes 20 nodes of each class to train and 30 to choose by;
            None keeps the source's own parts, and cuts at random where it has none.

    Returns:
        Data in the user's units.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The graph cannot be read; the message names file, row and column, or node and edge.
    """
    path = Path(path)
    if path.name.endswith(".npz"):
        raw = raw_of_object(load_npz(path), path.name, task=task, directed=directed)
        return node_data(replace(raw, notes=(*raw.notes, *unread_in(path, ARRAYS))), cutting)
    if path.name.lower().removesuffix(".gz").endswith(ENDINGS):
        graph = read_networkx(path)
        tables = tables_of(graph, path.name)
        directed = directed or ("directed" if graph.is_directed() else "undirected")
    else:
        tables = _tables(files_of(path, nodes_file), id)
    reading = Reading(
        id=id,
        target=target,
        task=task,
        source=source,
        to=to,
        directed=directed or "undirected",
        ignore=ignore,
    )
    return node_data(raw_of_tables(*tables, reading, path.name), cutting)


def encode_graph(source: Any, encoding: Mapping[str, Any]) -> Nodes:
    """A graph in files or in memory by the record of a finished run.

    Its own test part is taken where it has one, else every node. Targets are None unless every one of these
    nodes has one.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A column is missing, a category or class is unknown, or the features' widths differ.
    """
    if not isinstance(source, str | os.PathLike):
        return encode_object(source, encoding)
    path = Path(source)
    if path.name.endswith(".npz"):
        if "tables" in encoding:
            raise ValueError(f"{path}: the run was trained on tables: got arrays")
        return new_nodes(raw_of_object(load_npz(path), str(path), directed=None, known=encoding), encoding)
    return new_nodes(_by_record(path, encoding), encoding)


def _by_record(path: Path, encoding: Mapping[str, Any]) -> RawNodes:
    if "tables" not in encoding:
        raise ValueError(f"{path}: the run was trained on arrays: got a table")
    record = {**encoding, **encoding["tables"]}
    if path.name.lower().removesuffix(".gz").endswith(ENDINGS):
        tables = tables_of(read_networkx(path), str(path))
    else:
        tables = _tables(files_of(path, ""), record["id"])
    return read_by(*tables, record, str(path))


def _tables(where: tuple[Path, Path], id: str) -> tuple[Table, Table]:
    """The tables of nodes and of edges, whose first row may be an edge."""
    nodes = load_table(where[0])
    names = nodes.frame[identity_of(nodes, id)].cast(pl.String).str.strip_chars()
    return nodes, load_edges(where[1], names.drop_nulls().to_list())


def files_of(path: Path, nodes: str) -> tuple[Path, Path]:
    """The file of nodes and the file of edges.

    Raises:
        FileNotFoundError: One of them is not there.
    """
    if path.is_dir():
        edges = _in_folder(path, "edges", (*TABLES, *LISTS))
        return (Path(nodes) if nodes else _in_folder(path, "nodes")), edges
    if not path.is_file():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if nodes:
        return Path(nodes), path
    try:
        return _in_folder(path.parent, "nodes"), path
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: an edge table needs a table of nodes: --data.nodes-file, or nodes.csv beside it"
        ) from None


def _in_folder(folder: Path, name: str, endings: Sequence[str] = TABLES) -> Path:
    for ending in endings:
        if (file := folder / f"{name}{ending}").is_file():
            return file
    raise FileNotFoundError(f"{folder} must hold {name}.csv (or .tsv, .parquet)")


ARRAYS = (
    *("x", "x_data", "x_indices", "x_indptr", "x_shape", "edge_index", "edge_attr", "edge_weight"),
    *("y", "classes", "num_nodes"),
    *(f"{part}_{what}" for part in PARTS_OF_DATA for what in ("mask", "idx")),
)
"""What an ``.npz`` of a graph may hold."""


def load_npz(path: Path) -> SimpleNamespace:
    """The arrays of an ``.npz``, by the names that a graph's attributes have.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no archive of plain arrays, or holds no edges.
    """
    arrays = arrays_in(path, ARRAYS)
    if "edge_index" not in arrays:
        raise ValueError(
            f"{path}: a graph needs an array edge_index (2, edges): got {', '.join(names_in(path))}"
        )
    if "x_data" in arrays:
        arrays["x"] = _dense(arrays, path)
    elif "x" not in arrays and "num_nodes" in arrays:
        (nodes,) = _sizes(arrays["num_nodes"], 1, f"{path}: num_nodes")
        check_unpacked(
            path, path.stat().st_size, 4 * nodes, "correct num_nodes, which says how many there are"
        )
    return SimpleNamespace(**arrays)


def _sizes(array: NDArray[Any], count: int, where: str) -> list[int]:
    """So many sizes that an array states.

    Raises:
        ValueError: It holds another number of numbers, or one that is no size.
    """
    if array.size != count or array.dtype.kind not in "iu" or (array < 0).any():
        wanted = "a whole number" if count == 1 else f"{count} whole numbers"
        raise ValueError(f"{where} must hold {wanted} of at least 0: got {array.tolist()!s:.60}")
    return [int(size) for size in array.ravel()]


def _dense(arrays: Mapping[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    """The matrix of nonzero numbers by rows."""
    keys = ("x_data", "x_indices", "x_indptr", "x_shape")
    if absent := [key for key in keys if key not in arrays]:
        raise ValueError(f"{path}: sparse features need {', '.join(keys)}: missing {', '.join(absent)}")
    data, columns, starts, shape = (arrays[key] for key in keys)
    rows, width = _sizes(shape, 2, f"{path}: x_shape")
    if any(array.ndim != 1 for array in (data, columns, starts)) or {
        columns.dtype.kind,
        starts.dtype.kind,
    } - {*"iu"}:
        raise ValueError(
            f"{path}: x_data, x_indices and x_indptr must be lists, the last two of whole numbers"
        )
    counts = np.diff(starts)
    if len(starts) != rows + 1 or (counts < 0).any() or starts[-1] != len(data) or len(columns) != len(data):
        raise ValueError(f"{path}: x_indptr must ascend to the {len(data)} numbers of {rows} rows")
    if len(columns) and not 0 <= columns.min() <= columns.max() < width:
        raise ValueError(f"{path}: x_indices must name columns 0 .. {width - 1}")
    dtype = np.dtype(np.float64 if data.dtype == np.float64 else np.float32)
    wanted = rows * width * dtype.itemsize
    check_unpacked(path, path.stat().st_size, wanted, f"correct x_shape, which states {rows:,} x {width:,}")
    dense = np.zeros((rows, width), dtype=dtype)
    dense[np.repeat(np.arange(rows), counts), columns] = data
    return dense
