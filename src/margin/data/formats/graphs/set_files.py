"""Files of a set of graphs: folders as Morris et al. (2020) published TUDataset, and the text of one file.

A folder DS holds ``DS_A.txt`` (an edge a line, "i, j", nodes counted from 1), ``DS_graph_indicator.txt`` (the
graph of each node) and ``DS_graph_labels.txt`` or ``DS_graph_attributes.txt``; where there are any,
``DS_node_labels.txt``, ``DS_node_attributes.txt``, ``DS_edge_labels.txt``, ``DS_edge_attributes.txt``.

The one file begins with the number of graphs; each has a line "nodes label", then a line a node: its tag, the
number of its neighbors, the neighbors (counted from 0 in the graph), then its attributes (Zhang et al. 2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margin.data.files.reading import text_of

Whole = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What the files of a set of graphs hold.

    Args:
        name: The path.
        sizes: Nodes of each graph.
        edge_index: Edges (2, E), nodes counted from 0 over all graphs.
        targets: A label (as written) or a value of each graph; None where there are none.
        values: Whether the targets are values.
        tags: The label of each node; None where there are none.
        attributes: Attributes of each node, of width 0 where there are none.
        edge_tags: The label of each edge; None where there are none.
        edge_attributes: Attributes of each edge, of width 0 where there are none.
    """

    name: str
    sizes: Whole
    edge_index: Whole
    targets: NDArray[Any] | None
    values: bool
    tags: Whole | None
    attributes: Reals
    edge_tags: Whole | None
    edge_attributes: Reals


def load_graphs(path: Path) -> Found:
    """What the files of a set of graphs hold, before it is encoded.

    Raises:
        FileNotFoundError: There is no such file or folder, or a file is missing.
        ValueError: A line cannot be read; the message names file and line.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.is_file():
        return _Text(path).found()
    if indicators := sorted(path.glob("*_graph_indicator.txt")):
        return _read_folder(path, indicators[0].name.removesuffix("_graph_indicator.txt"))
    one = path / f"{path.name}.txt"
    if one.is_file():
        return replace(_Text(one).found(), name=str(path))
    raise FileNotFoundError(
        f"{path}: a folder of graphs must hold NAME_graph_indicator.txt, or {path.name}.txt"
    )


def _read_folder(folder: Path, name: str) -> Found:
    def file(kind: str) -> Path:
        return folder / f"{name}_{kind}.txt"

    def numbers(kind: str, dtype: Any) -> NDArray[Any] | None:
        return numbers_of(file(kind), dtype) if file(kind).is_file() else None

    indicator = _owners(file("graph_indicator"))
    edges = _edges(file("A"), indicator)
    labels, values = numbers("graph_labels", np.int64), numbers("graph_attributes", np.float64)
    targets = values if labels is None else labels
    count = _count(indicator, file("graph_indicator")) if targets is None else len(targets)
    if int(indicator.max(initial=0)) > count:
        raise ValueError(f"{file('graph_indicator')} names graph {indicator[-1]}: there are {count} targets")

    def of(rows: int, kind: str, dtype: Any) -> NDArray[Any] | None:
        table = numbers(kind, dtype)
        if table is not None and len(table) != rows:
            what = kind.split("_")[0]
            raise ValueError(
                f"{file(kind)} must have a line for each {what}: got {len(table)}, {rows} {what}s"
            )
        return table

    tags, edge_tags = (
        of(len(indicator), "node_labels", np.int64),
        of(edges.shape[1], "edge_labels", np.int64),
    )
    attributes = of(len(indicator), "node_attributes", np.float64)
    carried = of(edges.shape[1], "edge_attributes", np.float64)
    return Found(
        name=str(folder),
        sizes=np.bincount(indicator - 1, minlength=count).astype(np.int64),
        edge_index=edges,
        targets=None if targets is None else targets[:, 0],
        values=labels is None,
        tags=None if tags is None else tags[:, 0],
        attributes=np.zeros((len(indicator), 0)) if attributes is None else attributes,
        edge_tags=None if edge_tags is None else edge_tags[:, 0],
        edge_attributes=np.zeros((edges.shape[1], 0)) if carried is None else carried,
    )


def _count(indicator: Whole, file: Path) -> int:
    """How many graphs there are, where nothing else says it: more than there are nodes are refused."""
    if len(indicator) and indicator[-1] > len(indicator):
        line = int(indicator.searchsorted(len(indicator), side="right")) + 1
        raise ValueError(
            f"{file}, line {line}: {len(indicator)} nodes must be of at most as many graphs: got graph "
            f"{indicator[line - 1]}"
        )
    return int(indicator.max(initial=0))


def _owners(file: Path) -> Whole:
    """The graph of each node, from 1, ascending."""
    owners: Whole = numbers_of(file, np.int64)[:, 0]
    falls = np.flatnonzero(np.diff(owners, prepend=1) < 0)
    if len(falls):
        line = int(falls[0]) + 1
        raise ValueError(
            f"{file}, line {line}: the graphs of the nodes must ascend from 1: got {owners[line - 1]}"
        )
    return owners


def _edges(file: Path, owners: Whole) -> Whole:
    """The edges (2, E), nodes counted from 0; each stays in its graph."""
    edges = numbers_of(file, np.int64)
    if len(edges) == 0:
        return np.zeros((2, 0), dtype=np.int64)
    if edges.shape[1] != 2:
        raise ValueError(f"{file}, line 1: an edge has two nodes: got {edges.shape[1]} numbers")
    wrong = np.flatnonzero(((edges < 1) | (edges > len(owners))).any(1))
    if len(wrong):
        i, j = edges[wrong[0]]
        raise ValueError(
            f"{file}, line {wrong[0] + 1}: an edge must join nodes 1 .. {len(owners)}: got {i}, {j}"
        )
    across = np.flatnonzero(owners[edges[:, 0] - 1] != owners[edges[:, 1] - 1])
    if len(across):
        i, j = edges[across[0]]
        raise ValueError(
            f"{file}, line {across[0] + 1}: an edge must stay in its graph: nodes {i}, {j} lie in two"
        )
    return np.ascontiguousarray(edges.T - 1)


def numbers_of(file: Path, dtype: Any) -> NDArray[Any]:
    """The numbers of a file with commas between, a row a line, as many in each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line holds something else; the message names it.
    """
    lines = text_of(file).rstrip().splitlines()
    if not lines:
        return np.zeros((0, 1), dtype=dtype)
    width = lines[0].count(",") + 1
    counts = [line.count(",") + 1 for line in lines]
    if counts.count(width) != len(counts):
        line = next(k for k, count in enumerate(counts) if count != width)
        raise ValueError(f"{file}, line {line + 1}: every line must hold {width} numbers: got {counts[line]}")
    try:
        return np.array(",".join(lines).split(","), dtype=dtype).reshape(-1, width)
    except ValueError:
        line = next(k for k, text in enumerate(lines) if not _are(text.split(","), dtype))
        kind = "whole numbers" if dtype is np.int64 else "numbers"
        raise ValueError(f"{file}, line {line + 1}: a line must hold {kind}: got {lines[line]!r}") from None


def _are(words: Sequence[str], dtype: Any) -> bool:
    try:
        np.array(words, dtype=dtype)
    except ValueError:
        return False
    return True


class _Text:
    """The one file of graphs, read line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = text_of(path).splitlines()
        self.line = 0
        self.tags: list[int] = []
        self.edges: list[tuple[int, int]] = []
        self.attributes: list[list[float]] = []

    def found(self) -> Found:
        """What the file holds."""
        sizes: list[int] = []
        targets: list[int] = []
        for _ in range(self.whole(self.words("the number of graphs")[:1], "the number of graphs", 1)[0]):
            what = "a graph's number of nodes and its label"
            size, label = self.whole(self.words(what), what, 2)
            start = len(self.tags)
            for _ in range(size):
                self.node(start, size)
            sizes.append(size)
            targets.append(label)
        if any(line.strip() for line in self.lines[self.line :]):
            raise ValueError(
                f"{self.path}, line {self.line + 1}: the file must end after {len(sizes)} graphs"
            )
        return Found(
            name=str(self.path),
            sizes=np.array(sizes, dtype=np.int64),
            edge_index=np.array(self.edges, dtype=np.int64).reshape(-1, 2).T.copy(),
            targets=np.array(targets),
            values=False,
            tags=np.array(self.tags, dtype=np.int64),
            attributes=np.array(self.attributes, dtype=np.float64).reshape(
                len(self.tags), -1 if self.tags else 0
            ),
            edge_tags=None,
            edge_attributes=np.zeros((len(self.edges), 0)),
        )

    def node(self, start: int, size: int) -> None:
        """A line of a node, whose graph begins at node ``start`` of all."""
        words = self.words("a node")
        tag, degree = self.whole(words[:2], "a node's tag and number of neighbors", 2)
        near = self.whole(words[2 : 2 + degree], f"the {degree} neighbors", degree)
        if wrong := [j for j in near if not 0 <= j < size]:
            raise ValueError(
                f"{self.path}, line {self.line}: neighbors must be nodes 0 .. {size - 1}: got {wrong[0]}"
            )
        try:
            attributes = [float(word) for word in words[2 + degree :]]
        except ValueError:
            raise ValueError(f"{self.path}, line {self.line}: attributes must be numbers") from None
        if self.attributes and len(attributes) != len(self.attributes[0]):
            raise ValueError(
                f"{self.path}, line {self.line}: every node must have {len(self.attributes[0])} attributes: "
                f"got {len(attributes)}"
            )
        self.edges += [(len(self.tags), start + j) for j in near]
        self.tags.append(tag)
        self.attributes.append(attributes)

    def words(self, what: str) -> list[str]:
        """The words of the next line."""
        self.line += 1
        if self.line > len(self.lines):
            raise ValueError(f"{self.path}, line {self.line}: the file ends where {what} must stand")
        return self.lines[self.line - 1].split()

    def whole(self, words: Sequence[str], what: str, count: int) -> list[int]:
        """So many whole numbers."""
        try:
            numbers = [int(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != count:
            raise ValueError(
                f"{self.path}, line {self.line}: {what} must be whole numbers: got {' '.join(words)!r}"
            )
        return numbers
