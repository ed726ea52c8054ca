"""From many graphs with a target each to Data: parts, what they dictate to a model, a fitted first layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from margin.data.arrays import Array, targets_of
from margin.data.assembly import Schema, cut
from margin.data.examples import Data
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.node_data import check_features, spec_of
from margin.data.formats.graphs.parts import Graphs
from margin.data.formats.sequences.rows import fingerprint_of
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, TaskName


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
    parts, record = cut(raw.name, targets, task, split, classes, own=raw.official)
    splits: dict[str, Any] = {part: whole.chosen(index) for part, index in parts.items()}
    schema = Schema(
        format="graphs",
        kind="graphs",
        task=task,
        shape=(0, raw.graph.x.shape[1]),
        dtype=raw.graph.x.dtype,
        classes=classes,
        split=record,
        own={"edge_features": raw.graph.edge_attr.shape[1], "about": about(raw.graph), **raw.encoding},
    )
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(raw.graph, len(splits["train"]), len(classes)),
        encoding=schema.as_json(),
        preprocess=_preprocess(splits["train"].graph.x),
        fingerprint=fingerprint_of(splits),
        notes=raw.notes,
    )


def new_graphs(graph: Graph, targets: Array | None, encoding: Mapping[str, Any], name: str) -> Graphs:
    """New graphs by the record of a run; without targets where there are none.

    Raises:
        ValueError: The widths of their features differ from the run's, or a target is unknown.
    """
    schema = Schema.from_json(encoding)
    check_features(graph, schema, f"{name}: the run's graphs have")
    graph = replace(graph, x=graph.x.to(schema.dtype))
    return Graphs(graph, schema.targets_if(targets, graph.num_graphs, name))


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


def _preprocess(x: Tensor) -> nn.Module:
    """Standardizes features other than 0/1 columns, which are left as they are."""
    flags = ((x == 0) | (x == 1)).all(0)
    if bool(flags.all()):
        return nn.Identity()
    return fit_standardize(x, per="feature", indicators=flags)
