"""Graphs in memory as data: objects with x and edge_index, as PyTorch Geometric's Data, and networkx graphs.

What is needed of an object is its attributes; no library of graphs is loaded for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from margin.data.arrays import as_numpy
from margin.data.examples import Data
from margin.data.formats.graphs.attributes import graph_of_object, named, raw_of_object
from margin.data.formats.graphs.graphs import Graph, joined
from margin.data.formats.graphs.networkx import is_networkx, tables_of, tables_of_all
from margin.data.formats.graphs.node_data import Cutting, new_nodes, node_data
from margin.data.formats.graphs.parts import Graphs, Nodes
from margin.data.formats.graphs.set_data import RawGraphs, graph_set_data, new_graphs
from margin.data.formats.graphs.tables import RECORDED, Directed, Reading, raw_of_tables, read_by, structure
from margin.data.options import option_groups
from margin.data.splits import Split, TaskName


@option_groups()
def from_graph(
    graph: Any,
    *,
    name: str = "graph",
    target: str = "",
    task: TaskName | None = None,
    directed: Directed | None = None,
    ignore: tuple[str, ...] = (),
    cutting: Cutting = Cutting(),
) -> Data:
    """One graph in memory, whose nodes are the examples.

    Args:
        graph: An object with ``x`` (nodes, features), ``edge_index`` (2, edges), ``y`` (nodes,), and, where
            it has them, ``edge_attr`` or ``edge_weight`` and ``train_mask``, ``val_mask``, ``test_mask``; or
            a networkx graph whose attributes are features. A label -1 and a value NaN say that none is known.
        name: What messages and records call the data.
        target: The attribute to predict; only for networkx.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        directed: Whether each edge stands for both directions; None takes an object's edges as they are, and
            networkx's word.
        ignore: Attributes that are left out; only for networkx.
        cutting: The parts, and what each of them sees.
        split: random cuts by the shares, planetoid by 20 and 30 of each class; None keeps the masks.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: The graph cannot be used; the message names the node or edge.
    """
    if not is_networkx(graph):
        return node_data(raw_of_object(graph, name, task=task, directed=directed), cutting)
    word = directed or ("directed" if graph.is_directed() else "undirected")
    reading = Reading(target=target, task=task, directed=word, ignore=ignore)
    return node_data(raw_of_tables(*tables_of(graph, name), reading, name), cutting)


@option_groups()
def from_graphs(
    graphs: Sequence[Any],
    *,
    y: Any = None,
    name: str = "graphs",
    task: TaskName | None = None,
    split: Split = Split(),
) -> Data:
    """Graphs in memory, each an example.

    Args:
        graphs: Objects with ``x``, ``edge_index`` and ``y``, one number each; or networkx graphs, whose
            attributes of nodes and edges are features and whose ``graph.graph["y"]`` is the target.
        y: The targets, where the objects do not hold them.
        name: What messages and records call the data.
        task: Whether targets are classes or values, where their type does not say what is wanted.
        split: Test and validation part, seed.

    Returns:
        Data in the user's units.

    Raises:
        ValueError: A graph cannot be used; the message names it and its node or edge, counted from 0.
    """
    read = _read(graphs, name, None)
    targets = _targets_of(graphs, name) if y is None else as_numpy(y, name, "targets")
    raw = RawGraphs(name=name, graph=read.graph, targets=targets, task=task, encoding=read.encoding)
    return graph_set_data(raw, split)


def encode_graph_objects(source: Any, encoding: Mapping[str, Any]) -> Nodes | Graphs:
    """New graphs in memory by the record of a finished run: one graph for nodes, one or a list for graphs.

    Raises:
        ValueError: The features or classes do not fit the record.
    """
    return (
        encode_objects(source, encoding) if encoding["kind"] == "graphs" else encode_object(source, encoding)
    )


def encode_object(source: Any, encoding: Mapping[str, Any]) -> Nodes:
    """The nodes of one graph in memory by the record of a finished run.

    Raises:
        ValueError: The features or classes do not fit the record.
    """
    if not is_networkx(source):
        return new_nodes(raw_of_object(source, "graph", directed=None, known=encoding), encoding)
    record = encoding.get("tables")
    if record is None:
        raise ValueError("graph: the run was trained on arrays of features: got a networkx graph")
    return new_nodes(read_by(*tables_of(source, "graph"), {**encoding, **record}, "graph"), encoding)


def encode_objects(source: Any, encoding: Mapping[str, Any]) -> Graphs:
    """Graphs in memory, each an example, by the record of a finished run; targets where each has one.

    Raises:
        ValueError: The features or classes do not fit the record.
    """
    many = source if isinstance(source, list | tuple) else [source]
    targets = _targets_of(many, "graphs") if all(_target(one) is not None for one in many) else None
    record = {**encoding, **encoding["tables"]} if "tables" in encoding else None
    return new_graphs(_read(many, "graphs", record).graph, targets, encoding, "graphs")


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Graphs one behind another, and how their tables were read where they are networkx's."""

    graph: Graph
    encoding: Mapping[str, Any]


def _read(graphs: Sequence[Any], name: str, record: Mapping[str, Any] | None) -> _Read:
    """All graphs, by the record of a run where there is one."""
    if len(graphs) == 0:
        raise ValueError(f"{name}: there must be at least one graph: got none")
    of_networkx = [is_networkx(one) for one in graphs]
    if not any(of_networkx):
        read = [graph_of_object(one, f"{name}, graph {k}", []) for k, one in enumerate(graphs)]
        return _Read(named(name, lambda: joined(read)), {})
    if not all(of_networkx):
        raise ValueError(
            f"{name}: graphs must all be networkx's, or none: graph {of_networkx.index(False)} is not"
        )
    nodes, edges = tables_of_all(graphs, name)
    if record is None:
        word: Directed = "directed" if any(one.is_directed() for one in graphs) else "undirected"
        record = structure(nodes, edges, Reading(directed=word))
    sizes = torch.tensor([one.number_of_nodes() for one in graphs])
    graph = read_by(nodes, edges, record, name).graph
    kept = {key: record[key] for key in RECORDED}
    return _Read(named(name, lambda: replace(graph, sizes=sizes)), {"tables": kept})


def _target(one: Any) -> Any:
    return one.graph.get("y") if is_networkx(one) else getattr(one, "y", None)


def _targets_of(graphs: Sequence[Any], name: str) -> Any:
    """The target of each graph, one number or word."""
    found = []
    for k, one in enumerate(graphs):
        target = _target(one)
        if target is None:
            raise ValueError(f"{name}: every graph needs a target y: graph {k} has none")
        array = as_numpy(target, f"{name}, graph {k}", "targets")
        if array.size != 1:
            raise ValueError(f"{name}: every graph needs one target: graph {k} has {array.size}")
        found.append(array.reshape(()).item())
    return as_numpy(found, name, "targets")
