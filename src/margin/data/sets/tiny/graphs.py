"""The smallest graphs, sets and point clouds that models train on: for contracts and demonstrations.

All are constructed, and drawn from fixed seeds: communities of nodes, rings and stars, sums, shells.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator

from margin.data.examples import Arrays, Data
from margin.data.formats.graphs.graphs import Graph, graph_of
from margin.data.formats.graphs.parts import Graphs, Nodes, graphs_of
from margin.data.formats.points.sets import Sets
from margin.data.formats.sequences.rows import fingerprint_of

_PARTS = {"train": slice(0, 24), "val": slice(24, 32), "test": slice(32, 40)}


def nodes() -> Data:
    """Thirty nodes in two communities, one class each, with a noisy feature of the class and three of noise.

    Node 29 has no edge, node 28 a loop; six nodes are in no part.
    """
    generator = Generator().manual_seed(1)
    labels = torch.arange(30) % 2
    x = torch.randn(30, 4, generator=generator)
    x[:, 0] += 2.0 * labels - 1.0
    pairs = torch.combinations(torch.arange(29))
    alike = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    kept = torch.rand(len(pairs), generator=generator) < torch.where(alike, 0.3, 0.05)
    edges = torch.cat((pairs[kept].T, torch.tensor([[28], [28]])), 1)
    graph = graph_of(x, edges).undirected()
    order = torch.randperm(30, generator=generator)
    cut = {"train": order[:12], "val": order[12:18], "test": order[18:24]}
    splits = {part: Nodes(graph, index.sort().values, labels) for part, index in cut.items()}
    spec = {"node_features": 4, "edge_features": 0, "num_classes": 2, "num_examples": 12}
    about = [["graph", f"30 nodes, {graph.num_edges} directed edges"]]
    return _data("tiny nodes", splits, spec, "graph", "classes", [0, 4], about, graph)


def graphs() -> Data:
    """Forty rings and stars of 3 to 8 nodes, one class each; every node has the feature 1."""
    return _graphs("tiny graphs", "classes")


def graph_values() -> Data:
    """Forty rings and stars of 3 to 8 nodes; the value is the share of nodes with two neighbors."""
    return _graphs("tiny graph values", "values")


def clouds() -> Data:
    """Forty clouds of 12 points of space, near a sphere of radius 1 or of radius 1/2, one class each."""
    generator = Generator().manual_seed(3)
    labels = torch.arange(40) % 2
    points = torch.nn.functional.normalize(torch.randn(40, 12, 3, generator=generator), dim=-1)
    points *= torch.where(labels == 0, 1.0, 0.5)[:, None, None]
    points += 0.05 * torch.randn(points.shape, generator=generator)
    splits = {part: Arrays((points[rows],), labels[rows]) for part, rows in _PARTS.items()}
    spec = {"element_size": 3, "points": 12, "num_classes": 2, "num_examples": 24}
    return _data("tiny clouds", splits, spec, "sets", "classes", [12, 3], [["sets", "40 of 12 points"]])


def sets() -> Data:
    """Forty sets of 0 to 6 pairs of numbers; the value is the sum of the first of each pair."""
    generator = Generator().manual_seed(4)
    sizes = torch.arange(40) % 7
    elements = torch.randn(int(sizes.sum()), 2, generator=generator)
    owner = torch.repeat_interleave(sizes)
    values = torch.zeros(40).index_add_(0, owner, elements[:, 0])
    whole = Sets(elements, sizes, values)
    splits = {part: whole.chosen(torch.arange(40)[rows]) for part, rows in _PARTS.items()}
    spec = {"element_size": 2, "most_points": 6, "num_examples": 24}
    return _data("tiny sets", splits, spec, "sets", "values", [0, 2], [["sets", "40 of 0 to 6 elements"]])


def set_classes() -> Data:
    """Forty sets of 0 to 6 pairs of numbers; the class says whether the sum of the first is positive."""
    data = sets()
    splits = {
        part: Sets(one.elements, one.sizes, (one.targets > 0).long()) for part, one in data.splits.items()
    }
    spec = {**data.spec, "num_classes": 2}
    return _data("tiny set classes", splits, spec, "sets", "classes", [0, 2], [["sets", "40"]])


def segments() -> Data:
    """Forty clouds of 12 points of space, half of them near the origin, half near (2, 0, 0): the classes."""
    generator = Generator().manual_seed(5)
    labels = torch.rand(40, 12, generator=generator).argsort(1) % 2
    points = 0.4 * torch.randn(40, 12, 3, generator=generator)
    points[..., 0] += 2.0 * labels
    splits = {part: Arrays((points[rows],), labels[rows]) for part, rows in _PARTS.items()}
    spec = {"element_size": 3, "points": 12, "num_classes": 2, "num_examples": 24}
    return _data(
        "tiny segments", splits, spec, "sets", "point_classes", [12, 3], [["sets", "40 of 12 points"]]
    )


def ring(size: int) -> Graph:
    """A cycle of ``size`` nodes, whose one feature is 1."""
    places = torch.arange(size)
    return graph_of(torch.ones(size, 1), torch.stack((places, (places + 1) % size))).undirected()


def star(size: int) -> Graph:
    """A node joined to each of ``size - 1`` others; their one feature is 1."""
    leaves = torch.arange(1, size)
    return graph_of(torch.ones(size, 1), torch.stack((torch.zeros_like(leaves), leaves))).undirected()


def _graphs(name: str, task: str) -> Data:
    made = [(star if k % 2 else ring)(3 + k // 2 % 6) for k in range(40)]
    targets = torch.arange(40) % 2
    if task == "values":
        targets = torch.stack([(graph.in_degrees() == 2).float().mean() for graph in made])
    whole = graphs_of(made, targets)
    splits: dict[str, Graphs] = {part: whole.chosen(torch.arange(40)[rows]) for part, rows in _PARTS.items()}
    spec = {"node_features": 1, "edge_features": 0, "num_examples": 24}
    if task == "classes":
        spec["num_classes"] = 2
    about = [["graphs", "40 of 3 to 8 nodes"]]
    return _data(name, splits, spec, "graphs", task, [0, 1], about)


def _data(  # more than 7 parameters: they are what all these sets differ in
    name: str,
    splits: Mapping[str, Any],
    spec: Mapping[str, Any],
    kind: str,
    task: str,
    shape: list[int],
    about: list[list[str]],
    graph: Graph | None = None,
) -> Data:
    classes = [str(k) for k in range(spec.get("num_classes", 0))]
    points = {"scale": "none", "points": None}
    how = points if kind == "sets" else {"normalize": "none", "edge_features": spec["edge_features"]}
    hashed: dict[str, Any] = dict(splits) if graph is None else {"graph": graph, **splits}
    return Data(
        name=name,
        splits=splits,
        spec=spec,
        encoding={
            "format": "points" if kind == "sets" else kind,
            "kind": kind,
            "task": task,
            "shape": shape,
            "dtype": "float32",
            "classes": classes,
            "split": {"test": 0.2, "val": 0.2, "seed": 0, "official": False},
            "about": about,
            **how,
        },
        fingerprint=fingerprint_of(hashed),
    )
