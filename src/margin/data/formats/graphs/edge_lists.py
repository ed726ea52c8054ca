"""Edge lists: an edge a line, its two ends and what it carries with spaces between, as networkx writes them.

What follows the ends are numbers, or a Python dictionary of numbers and texts; of it literals alone are read.
Comments stand behind #, or in lines that begin with %. Names of nodes are text, so 007 is no 7.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from margin.data.files.reading import unpacked
from margin.data.formats.graphs.networkx import table_of_rows
from margin.data.formats.tables.delimited import Table, load_table
from margin.data.formats.tables.delimited_form import SEPARATORS

EDGE_LISTS = (".edgelist", ".edges")
"""Endings of edge lists; any other text is one where its first line has spaces and no other separator."""

ENDS = ("source", "target")
"""What the columns of the ends are called."""

HEADERS = (ENDS, ("src", "dst"), ("from", "to"))
"""First words of a line that names the columns: u and v may be nodes."""


def load_edges(path: Path, nodes: Collection[str] = ()) -> Table:
    """The edges in a file: an edge list with spaces, else a table.

    Args:
        path: The file.
        nodes: The names of the nodes: a first row of two of them is an edge and no header.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line has fewer than two words or another number of them than the first, or carries what
            is neither numbers nor a dictionary; the message names file and row.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    if path.name.lower().removesuffix(".gz").endswith((".adjlist", ".mtx")):
        raise ValueError(
            f"{path}: edges must be an edge a line, its two ends: got an adjacency list or matrix; "
            "write them by networkx.write_edgelist"
        )
    if not is_edge_list(path):
        table = load_table(path)
        return load_table(path, "none") if {*table.frame.columns[:2]} <= {*nodes} else table
    rows = [*_edges(path)]
    if not rows:
        raise ValueError(f"{path}: the file has no edges")
    table = table_of_rows([edge for _, edge in rows], str(path))
    return replace(table, rows=[number for number, _ in rows])


def is_edge_list(path: Path) -> bool:
    """Whether a file is an edge list with spaces, by its ending or its first line that is no comment.

    Tabs are spaces where it begins with a comment, as the files of SNAP do, or its ending says what it is.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".parquet", ".pq")):
        return False
    start = unpacked(path)[: 1 << 16].decode(errors="ignore")
    first = next(_lines(start), (0, ""))[1].partition("{")[0]
    listed = name.endswith(EDGE_LISTS)
    spaces = "\t" if listed or start.lstrip().startswith(("#", "%")) else ""
    other = any(mark in first for mark in SEPARATORS if mark not in spaces)
    return not other and (listed or len(first.split()) > 1)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor comments, each with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        ends, brace, _ = line.partition("{")
        whole = brace and "#" not in ends  # in a dictionary # belongs to a text
        bare = line[: line.rfind("}") + 1] or line if whole else line.partition("#")[0]
        if (bare := bare.strip()) and not bare.startswith("%"):
            yield number, bare


def _edges(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each edge with the number of its line."""
    width = 0
    try:
        text = unpacked(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: an edge list must be UTF-8 text: got byte {error.start}") from None
    for number, line in _lines(text):
        where = f"{path}, row {number}"
        words = line.split(None, 2)
        if not width and tuple(word.lower() for word in words[:2]) in HEADERS:
            continue  # a header
        if len(words) < 2:
            raise ValueError(
                f"{where}: an edge needs two ends: got {line!r}; a node without an edge is a row of the nodes"
            )
        carried = _carried(words[2] if len(words) == 3 else "", where)
        width = width or 2 + len(carried)
        if len(carried) + 2 != width:
            raise ValueError(
                f"{where}: every edge must carry as much as the first, {width - 2}: got {len(carried)}"
            )
        yield number, {**dict(zip(ENDS, words, strict=False)), **carried}


def _carried(text: str, where: str) -> dict[str, Any]:
    """What an edge carries, by name: of numbers weight, or value_1, value_2, ... where there are several."""
    if not text.startswith("{"):
        words = text.split()
        names = ["weight"] if len(words) == 1 else [f"value_{k}" for k in range(1, len(words) + 1)]
        try:
            return {name: float(word) for name, word in zip(names, words, strict=True)}
        except ValueError:
            raise ValueError(
                f"{where}: behind its ends an edge carries numbers or a dictionary: got {text[:60]!r}"
            ) from None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str | int | float) for v in found.values()):
        raise ValueError(f"{where}: a dictionary must be of numbers and texts: got {text[:60]!r}")
    return {f"edge.{key}" if key in ENDS else str(key): value for key, value in found.items()}
