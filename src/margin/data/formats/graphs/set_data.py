"""From many graphs with a target each to Data: parts, what they dictate to a model, a fitted first layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from margin.data.arrays import Array, known_targets, targets_of
from margin.data.examples import PARTS_OF_DATA, Data
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.node_data import spec_of
from margin.data.formats.graphs.parts import Graphs
from margin.data.formats.sequences.rows import fingerprint_of
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, TaskName, parts_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawGraphs:
    """Many graphs before they are cut into parts.

    Args:
        name: The source's name or the file's.
        graph: All graphs, one behind another, in the user's units.
        targets: A target for each.
        task: Whether targets are classes or values; None: as their type says.
        classes: Names of the classes 0 .. K-1, where they are known.
        official: The source's own parts, by name: the graphs of each.
        encoding: What the source adds to the encoding.
        notes: What was assumed.
    """

    name: str
    graph: Graph
    targets: Array
    task: TaskName | None = None
    classes: tuple[str, ...] = ()
    official: Mapping[str, Tensor] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def graph_set_data(raw: RawGraphs, split: Split) -> Data:
    """The Data of many graphs; the source's own test part is kept.

    Raises:
        ValueError: A target is wrong, or the labels cannot be cut.
    """
    count = raw.graph.num_graphs
    found, task, classes = targets_of(raw.targets, count, raw.name, raw.task, raw.classes)
    targets = found if task == "classes" else found.to(raw.graph.x.dtype)
    whole = Graphs(raw.graph, targets)
    parts, record = _parts(raw, split, targets if task == "classes" else None, tuple(classes))
    splits: dict[str, Any] = {part: whole.chosen(index) for part, index in parts.items()}
    encoding = {
        "format": "graphs",
        "kind": "graphs",
        "task": task,
        "shape": [0, raw.graph.x.shape[1]],
        "dtype": str(raw.graph.x.dtype).removeprefix("torch."),
        "classes": list(classes),
        "split": record,
        "edge_features": raw.graph.edge_attr.shape[1],
        "about": about(raw.graph),
    }
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(raw.graph, len(splits["train"]), len(classes)),
        encoding=encoding | dict(raw.encoding),
        preprocess=_preprocess(splits["train"].graph.x),
        fingerprint=fingerprint_of(splits),
        notes=raw.notes,
    )


def new_graphs(graph: Graph, targets: Array | None, encoding: Mapping[str, Any], name: str) -> Graphs:
    """New graphs by the record of a run; without targets where there are none.

    Raises:
        ValueError: The widths of their features differ from the run's, or a target is unknown.
    """
    for what, got, wanted in (
        ("node", graph.x.shape[1], encoding["shape"][1]),
        ("edge", graph.edge_attr.shape[1], encoding["edge_features"]),
    ):
        if got != wanted:
            raise ValueError(f"{name}: the run's graphs have {wanted} {what} features: got {got}")
    graph = replace(graph, x=graph.x.to(getattr(torch, encoding["dtype"])))
    if targets is None:
        return Graphs(graph)
    known = known_targets(targets, graph.num_graphs, name, encoding["task"], encoding["classes"])
    return Graphs(graph, known if encoding["task"] == "classes" else known.to(graph.x.dtype))


def about(graph: Graph) -> list[list[str]]:
    """What is said of many graphs: how many, their sizes, their edges."""
    sizes = graph.sizes
    kind = "undirected, each edge held in both directions" if graph.is_undirected() else "directed"
    sized = f"{int(sizes.min())} to {int(sizes.max())} nodes, {sizes.double().mean():.1f} in the mean"
    low, high = (f"{end.item():.6g}" for end in graph.x.aminmax()) if graph.x.numel() else ("-", "-")
    loops, alone = int(graph.self_loops().sum()), int(graph.isolated().sum())
    return [
        ["graphs", f"{graph.num_graphs:,} of {sized}"],
        ["edges", f"{graph.num_edges:,} ({kind}), {loops:,} self-loops, {alone:,} isolated nodes"],
        ["features", f"{graph.x.shape[1]} a node in [{low}, {high}], {graph.edge_attr.shape[1]} an edge"],
    ]


def _parts(
    raw: RawGraphs, split: Split, labels: Tensor | None, classes: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The graphs of each part, and the record; what the source leaves open is cut by the shares."""
    own = dict(raw.official)
    record = split.as_json(official="test" in own)
    if "val" in own:
        record["val"] = None
    index = own.get("train", torch.arange(raw.graph.num_graphs))
    asked = Split(
        test=0.0 if "test" in own else split.test, val=0.0 if "val" in own else split.val, seed=split.seed
    )
    try:
        cut = parts_of(len(index), None if labels is None else labels[index], asked, classes)
    except ValueError as error:
        raise ValueError(f"{raw.name}: {error}") from None
    parts = {**own, **{part: index[places] for part, places in cut.items()}}
    return {part: parts[part] for part in PARTS_OF_DATA if part in parts}, record


def _preprocess(x: Tensor) -> nn.Module:
    """Standardizes features other than 0/1 columns, which are left as they are."""
    flags = ((x == 0) | (x == 1)).all(0)
    if bool(flags.all()):
        return nn.Identity()
    return fit_standardize(x, per="feature", indicators=flags)
