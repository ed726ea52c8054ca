"""A graph from the attributes of an object or of a file of arrays: x, edge_index, edge_attr, y, masks.

The names are those of PyTorch Geometric's Data (Fey and Lenssen 2019), of which nothing is loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from margin.data.arrays import as_numpy, listed, renamed_in
from margin.data.examples import PARTS_OF_DATA
from margin.data.files.reading import classes_of
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.node_data import RawNodes
from margin.data.formats.graphs.tables import Directed
from margin.data.splits import TaskName


@dataclass(frozen=True, slots=True, eq=False)
class _Targets:
    values: Tensor | None
    labeled: Tensor
    task: TaskName
    classes: tuple[str, ...]


def raw_of_object(
    source: Any,
    name: str,
    *,
    directed: Directed | None,
    task: TaskName | None = None,
    known: Mapping[str, Any] | None = None,
) -> RawNodes:
    """The graph of an object with x and edge_index.

    Args:
        source: The object.
        name: What messages call it.
        directed: Whether each edge stands for both directions; None takes them as they are.
        task: Whether targets are classes or values.
        known: The record of a run, whose task and classes are taken.

    Raises:
        ValueError: An attribute is missing or has another shape; a node, an edge or a label is wrong.
    """
    notes: list[str] = []
    graph = graph_of_object(source, name, notes)
    if directed == "undirected":
        graph = named(name, graph.undirected)
    given = getattr(source, "y", None)
    if given is None:
        found = _Targets(None, torch.zeros(graph.num_nodes, dtype=torch.bool), task or "classes", ())
    else:
        array = as_numpy(given, name, "targets")
        array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        if array.shape != (graph.num_nodes,):
            raise ValueError(
                f"{name}: y must hold one target a node: got shape {array.shape}, {graph.num_nodes} nodes"
            )
        names = classes_of(getattr(source, "classes", ()), name)
        notes += renamed_in(given)
        found = _node_targets(
            array,
            name,
            task if known is None else known["task"],
            () if known is None else tuple(known["classes"]),
            names,
        )
    return RawNodes(
        name=name,
        graph=graph,
        targets=found.values,
        labeled=found.labeled,
        task=found.task,
        classes=found.classes,
        official=_official(source, name, graph.num_nodes),
        notes=tuple(notes),
    )


def graph_of_object(source: Any, name: str, notes: list[str]) -> Graph:
    """The features and edges of an object; ``notes`` takes what was assumed.

    Raises:
        ValueError: An attribute is missing, has another shape, or a node or edge is wrong.
    """
    if isinstance(source, Graph):
        return source
    if getattr(source, "edge_index", None) is None:
        raise ValueError(f"{name}: a graph needs edge_index (2, edges): {type(source).__name__} has none")
    edges = torch.from_numpy(as_numpy(source.edge_index, name, "edges"))
    if edges.numel() == 0:
        edges = torch.zeros((2, 0), dtype=torch.int64)
    if edges.ndim != 2 or len(edges) != 2 or edges.is_floating_point():
        raise ValueError(
            f"{name}: edge_index must be whole numbers of shape (2, edges): got {tuple(edges.shape)}"
        )
    x = getattr(source, "x", None)
    if x is None:
        if getattr(source, "num_nodes", None) is None:
            raise ValueError(
                f"{name}: a graph needs features x, or num_nodes: {type(source).__name__} has neither"
            )
        notes.append("the nodes have no features: each has the feature 1")
        features = torch.ones(int(source.num_nodes), 1)
    else:
        features = _features(x, name, "node features x")
    attr = getattr(source, "edge_attr", None)
    if attr is None:
        attr = getattr(source, "edge_weight", None)
    carried = (
        features.new_zeros((edges.shape[1], 0)) if attr is None else _features(attr, name, "edge features")
    )
    if len(carried) != edges.shape[1]:
        raise ValueError(
            f"{name}: every edge must have its features: "
            f"got {edges.shape[1]} edges, {len(carried)} rows of features"
        )
    sizes = torch.tensor([len(features)])
    return named(name, lambda: Graph(features, edges.long(), carried.to(features), sizes))


def _features(x: Any, name: str, what: str) -> Tensor:
    array = as_numpy(x, name, what)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.dtype.kind == "U":
        raise ValueError(f"{name}: the {what} must be numbers of shape (rows, features): got {array.shape}")
    return torch.from_numpy(array if array.dtype == np.float64 else array.astype(np.float32))


def named(name: str, make: Callable[[], Graph]) -> Graph:
    """The graph that is made, or the error with the name of its source before it."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _node_targets(
    array: NDArray[Any], name: str, task: TaskName | None, known: tuple[str, ...], names: tuple[str, ...]
) -> _Targets:
    """Targets of nodes, of which some may be unknown: -1, NaN or an empty text."""
    kind = array.dtype.kind
    task = task or ("values" if kind == "f" else "classes")
    if task == "classes":
        return _words(array, name, known) if kind in "Ub" else _labels(array, name, known or names)
    if kind == "U":
        raise ValueError(f"{name}: values must be numbers: got text {str(array[0])!r}")
    values = torch.from_numpy(array.astype(np.float64))
    infinite = values.isinf().nonzero()[:, 0]
    if len(infinite):
        raise ValueError(
            f"{name}: every value must be finite, or NaN for none: node {int(infinite[0])} is not"
        )
    return _Targets(values.nan_to_num(0.0).float(), ~values.isnan(), task, ())


def _words(array: NDArray[Any], name: str, known: tuple[str, ...]) -> _Targets:
    words = array.astype(str)
    labeled = words != ""
    classes = known or tuple(str(one) for one in np.unique(words[labeled]))
    index = {one: k for k, one in enumerate(classes)}
    places = np.array([index.get(word, -1) for word in words], dtype=np.int64)
    strange = np.flatnonzero(labeled & (places < 0))
    if len(strange):
        raise ValueError(
            f"{name}: every class must be one of {listed(classes)}: "
            f"node {strange[0]} has {str(words[strange[0]])!r}"
        )
    return _Targets(torch.from_numpy(places.clip(min=0)), torch.from_numpy(labeled), "classes", classes)


def _labels(array: NDArray[Any], name: str, classes: tuple[str, ...]) -> _Targets:
    if array.dtype.kind == "f" and not (array == np.round(array)).all():
        raise ValueError(
            f"{name}: labels must be whole numbers: set --task values for numbers with a fraction"
        )
    labels = torch.from_numpy(array.astype(np.int64))
    count = int(labels.max()) + 1 if len(labels) else 0
    classes = classes or tuple(str(k) for k in range(count))
    wrong = ((labels < -1) | (labels >= len(classes))).nonzero()[:, 0]
    if len(wrong):
        node = int(wrong[0])
        raise ValueError(
            f"{name}: labels must be 0 .. {len(classes) - 1}, or -1 for none: "
            f"node {node} has {int(labels[node])}"
        )
    return _Targets(labels.clamp(min=0), labels >= 0, "classes", classes)


def _official(source: Any, name: str, count: int) -> dict[str, Tensor]:
    """The nodes of each part that masks or lists of an object name."""
    parts: dict[str, Tensor] = {}
    for part in PARTS_OF_DATA:
        mask, listed = getattr(source, f"{part}_mask", None), getattr(source, f"{part}_idx", None)
        if mask is not None:
            chosen = torch.from_numpy(as_numpy(mask, name, f"{part}_mask"))
            if chosen.shape != (count,) or chosen.dtype != torch.bool:
                raise ValueError(
                    f"{name}: {part}_mask must hold true or false for each of {count} nodes: "
                    f"got {tuple(chosen.shape)} of {chosen.dtype}"
                )
            parts[part] = chosen.nonzero()[:, 0]
        elif listed is not None:
            parts[part] = (
                torch.from_numpy(as_numpy(listed, name, f"{part}_idx").astype(np.int64)).sort().values
            )
            if len(parts[part]) and not 0 <= int(parts[part][0]) <= int(parts[part][-1]) < count:
                raise ValueError(f"{name}: {part}_idx must name nodes 0 .. {count - 1}")
    return {part: nodes for part, nodes in parts.items() if len(nodes)}
