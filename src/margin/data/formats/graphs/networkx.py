"""Graphs of networkx as two tables: a row a node, a row an edge, an attribute a column.

An attribute that holds a list of numbers becomes as many columns.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from margin.data.files.reading import reading, regular
from margin.data.formats.tables.delimited import Table, typed_table

ENDINGS = (".graphml", ".gml", ".gexf", ".net")
"""Files that networkx reads: GraphML, GML, GEXF, Pajek."""


def read_networkx(path: Path) -> Any:
    """The networkx graph in a file, by its ending; ``.gz`` is unpacked, GML nodes go by their labels.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not of the format that its ending says.
    """
    import networkx as nx  # type: ignore[import-untyped]

    regular(path)
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    readers = {".graphml": nx.read_graphml, ".gml": nx.read_gml, ".gexf": nx.read_gexf, ".net": nx.read_pajek}
    if ending not in readers:
        raise ValueError(f"{path}: a graph file must end in {', '.join(ENDINGS)}: got {ending!r}")
    # A GraphML of a lying count or an entity bomb is the parser's to refuse: expat bounds what it expands
    with reading(path, f"a {ending[1:]} file that networkx reads", parsers=("networkx",)):
        graph = readers[ending](path)
    # what the format itself writes: numbers of nodes and edges, names once more
    for node, values in graph.nodes(data=True):
        if ending == ".net" or values.get("label") == str(node):
            values.pop("id" if ending == ".net" else "label", None)
    if ending == ".gexf":
        for *_, values in graph.edges(data=True):
            values.pop("id", None)
    return graph


def is_networkx(source: Any) -> bool:
    """Whether an object is a graph of networkx; does not load it."""
    return type(source).__module__.partition(".")[0] == "networkx" and hasattr(source, "adj")


def tables_of(graph: Any, name: str) -> tuple[Table, Table | None]:
    """The nodes and the edges of a networkx graph, ends in columns ``source`` and ``target``.

    A column of the attributes that is called as an end or as ``id`` is called ``edge.source``, ``node.id``,
    ...

    Raises:
        ValueError: A node or edge lacks an attribute that others have, or holds another number of numbers.
    """
    return tables_of_all([graph], name)


def tables_of_all(graphs: Sequence[Any], name: str) -> tuple[Table, Table | None]:
    """The nodes and the edges of several networkx graphs; with several, "3/a" is node a of graph 3.

    Raises:
        ValueError: As :func:`tables_of`.
    """
    many = len(graphs) > 1
    marked = [(f"{k}/" if many else "", graph) for k, graph in enumerate(graphs)]
    nodes = [
        {"id": f"{mark}{node}"} | _flat(values, "node")
        for mark, graph in marked
        for node, values in graph.nodes(data=True)
    ]
    edges = [
        {"source": f"{mark}{a}", "target": f"{mark}{b}"} | _flat(values, "edge")
        for mark, graph in marked
        for a, b, values in graph.edges(data=True)
    ]
    if not nodes:
        raise ValueError(f"{name}: a graph needs nodes: got none")
    return table_of_rows(nodes, f"{name}, nodes"), table_of_rows(edges, f"{name}, edges") if edges else None


_TAKEN = {"node": ("id",), "edge": ("source", "target")}


def _flat(values: Mapping[str, Any], what: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        column = f"{what}.{key}" if key in _TAKEN[what] else str(key)
        listed = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(listed, list | tuple):
            flat |= {f"{column}_{k}": item for k, item in enumerate(listed)}
        else:
            flat[column] = listed
    return flat


def table_of_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Table:
    """The table of rows by column; a value that a row lacks is missing.

    Raises:
        ValueError: The values of a column are of several types.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    try:
        frame = pl.DataFrame({c: pl.Series(c, [row.get(c) for row in rows], strict=True) for c in columns})
    except (TypeError, pl.exceptions.PolarsError):
        frame = pl.DataFrame({c: _series(c, [row.get(c) for row in rows], name) for c in columns})
    return typed_table(frame, name)


def _series(column: str, values: Sequence[Any], name: str) -> pl.Series:
    """A column whose values differ in type: whole numbers beside others are numbers, else it is refused."""
    present = [value for value in values if value is not None]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in present):
        return pl.Series(column, [None if value is None else float(value) for value in values])
    try:
        return pl.Series(column, values, strict=True)
    except (TypeError, pl.exceptions.PolarsError):
        kinds = sorted({type(value).__name__ for value in present})
        raise ValueError(
            f"{name}, column {column!r}: an attribute must be of one type: got {', '.join(kinds)}; "
            f"set --data.ignore {column}"
        ) from None
