"""From one graph with targets at its nodes to Data: parts, what they dictate to a model, a first layer.

A node without a target is in no part; it is read all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from margin.data.assembly import Schema, cut
from margin.data.examples import PARTS_OF_DATA, Data
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.neighbor_sampling import Sampled
from margin.data.formats.graphs.parts import Nodes
from margin.data.formats.sequences.rows import fingerprint_of
from margin.data.preprocess import fit_standardize
from margin.data.splits import Split, TaskName, check_classes
from margin.math.seeds import mix

Normalize = Literal["none", "rows"]
Setting = Literal["transductive", "inductive"]
Cut = Literal["random", "planetoid"]

PER_CLASS = {"train": 20, "val": 30}
"""Nodes of each class in the parts that ``planetoid`` cuts; the others are the test part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawNodes:
    """One graph before its nodes are cut into parts.

    Args:
        name: The source's name or the file's.
        graph: Features in the user's units.
        targets: Label 0 .. K-1 or value of each node, of any value where none is known; None: no targets.
        labeled: Which nodes have a target.
        task: Whether targets are classes or values.
        classes: Names of the classes; () for values.
        official: The source's own parts, by name: the nodes of each.
        names: What the nodes are called; () where they are numbered.
        encoding: What the source adds to the encoding.
        notes: What was assumed.
    """

    name: str
    graph: Graph
    targets: Int[Tensor, " nodes"] | Float[Tensor, " nodes"] | None
    labeled: Bool[Tensor, " nodes"]
    task: TaskName
    classes: tuple[str, ...] = ()
    official: Mapping[str, Tensor] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    encoding: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """How the nodes of a graph become parts, and what a part sees.

    Args:
        normalize: rows divides the features of a node by their sum of absolute values.
        split: random cuts by the shares, planetoid by 20 and 30 of each class; None keeps the source's own.
        setting: Whether training sees the whole graph, or the subgraph of the training nodes alone.
        neighbors: Edges drawn to each node at hop 1, 2, ... in training; () takes the whole graph.
        test: Share of the test part.
        val: Share of the validation part.
        seed: Seed of the random split.
    """

    normalize: Normalize = "none"
    split: Cut | None = None
    setting: Setting = "transductive"
    neighbors: tuple[int, ...] = ()
    test: float = 0.25
    val: float = 0.15
    seed: int = field(default=0, metadata={"option": "split_seed"})


def node_data(raw: RawNodes, how: Cutting) -> Data:
    """The Data of a graph whose nodes have targets.

    In the inductive setting the training part sees the subgraph of the training nodes; the parts that are
    held out see the whole graph. Held-out parts are never sampled.

    Raises:
        ValueError: No node has a target, or the labels cannot be cut.
    """
    if raw.targets is None or not bool(raw.labeled.any()):
        raise ValueError(f"{raw.name}: training needs nodes with a target: no node has one")
    graph = normalized(raw.graph, how.normalize)
    parts, record = _parts(raw, how)
    splits: dict[str, Any] = {
        part: Nodes(graph, nodes, raw.targets, raw.names) for part, nodes in parts.items()
    }
    hashed: dict[str, Any] = {"graph": graph, **splits}
    train = splits["train"]
    if how.setting == "inductive":
        index = train.index
        names = tuple(raw.names[i] for i in index.tolist()) if raw.names else ()
        train = Nodes(graph.within(index), torch.arange(len(index)), raw.targets[index], names)
    splits["train"] = Sampled(train, how.neighbors) if how.neighbors else train
    return Data(
        name=raw.name,
        splits=splits,
        spec=spec_of(graph, len(train), len(raw.classes)),
        encoding=_schema(graph, raw, how, record).as_json(),
        preprocess=_preprocess(graph.x, parts["train"], how.normalize),
        fingerprint=fingerprint_of(hashed),
        notes=raw.notes,
    )


def spec_of(graph: Graph, count: int, classes: int) -> dict[str, Any]:
    """What graphs with ``count`` examples of training dictate; ``classes`` is 0 for values."""
    spec = {
        "node_features": graph.x.shape[1],
        "edge_features": graph.edge_attr.shape[1],
        "num_examples": count,
    }
    return spec | ({"num_classes": classes} if classes else {})


def _schema(graph: Graph, raw: RawNodes, how: Cutting, split: Mapping[str, Any]) -> Schema:
    return Schema(
        format="graph",
        kind="graph",
        task=raw.task,
        shape=(0, graph.x.shape[1]),
        dtype=graph.x.dtype,
        classes=raw.classes,
        split=split,
        own={
            "setting": how.setting,
            "neighbors": list(how.neighbors),
            "normalize": how.normalize,
            "edge_features": graph.edge_attr.shape[1],
            "about": _about(graph, raw, how),
            **raw.encoding,
        },
    )


def normalized(graph: Graph, how: Normalize) -> Graph:
    """The graph with each node's features divided by their sum of absolute values; rows of zeros stay so."""
    if how == "none":
        return graph
    total = graph.x.abs().sum(1, keepdim=True)
    return replace(graph, x=graph.x / total.masked_fill(total == 0, 1.0))


def new_nodes(raw: RawNodes, encoding: Mapping[str, Any]) -> Nodes:
    """A new graph by the record of a run: its own test part where it has one, else every node.

    Targets are None unless each of these nodes has one, so a graph that is labeled in part can be predicted.

    Raises:
        ValueError: The widths of its features differ from the run's.
    """
    schema = Schema.from_json(encoding)
    check_features(raw.graph, schema, f"{raw.name}: the run's graph has")
    graph = normalized(raw.graph, encoding["normalize"])
    index = raw.official.get("test", torch.arange(graph.num_nodes))
    known = raw.targets if raw.targets is not None and bool(raw.labeled[index].all()) else None
    return Nodes(replace(graph, x=graph.x.to(schema.dtype)), index, known, raw.names)


def check_features(graph: Graph, schema: Schema, what: str) -> None:
    """Refuse a graph whose features are not as many as the run's; the message begins with ``what``.

    Raises:
        ValueError: The widths differ.
    """
    widths = {"node": (graph.x.shape[1], schema.shape[1])}
    widths["edge"] = (graph.edge_attr.shape[1], schema.own["edge_features"])
    for kind, (got, wanted) in widths.items():
        if got != wanted:
            raise ValueError(f"{what} {wanted} {kind} features: got {got}")


def _parts(raw: RawNodes, how: Cutting) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The nodes of each part, and the record of the split."""
    split = Split(test=how.test, val=how.val, seed=how.seed)
    labeled = raw.labeled.nonzero()[:, 0]
    if how.split is None and "train" in raw.official:
        return _kept(raw, split)
    if how.split == "planetoid":
        return _per_class(raw, labeled, how.seed), split.as_json(official=False) | {
            "test": None,
            "val": None,
            "per_class": dict(PER_CLASS),
        }
    return _shared_out(raw, labeled, split), split.as_json(official=False)


def _kept(raw: RawNodes, split: Split) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The source's own parts; the validation part is cut from its training part where it has none."""
    parts = {part: raw.official[part] for part in PARTS_OF_DATA if part in raw.official}
    for part, nodes in parts.items():
        bad = nodes[~raw.labeled[nodes]]
        if len(bad):
            raise ValueError(
                f"{raw.name}: every node of the {part} part must have a target: node {int(bad[0])} has none"
            )
    everywhere = torch.cat([*parts.values()])
    if len(everywhere.unique()) != len(everywhere):
        raise ValueError(f"{raw.name}: the parts of a graph must not share nodes, and name each once")
    record = split.as_json(official="test" in parts)
    if "val" in parts:
        record["val"] = None
    elif split.val:
        cut = _shared_out(raw, parts["train"], replace(split, test=0.0))
        parts = {**parts, **cut}
    return {part: parts[part] for part in PARTS_OF_DATA if part in parts}, record


def _shared_out(raw: RawNodes, nodes: Tensor, split: Split) -> dict[str, Tensor]:
    """Some nodes cut by the shares, class by class."""
    whole = nodes if raw.targets is None else raw.targets
    return cut(raw.name, whole, raw.task, split, raw.classes, own={"train": nodes})[0]


def _per_class(raw: RawNodes, nodes: Tensor, seed: int) -> dict[str, Tensor]:
    """So many nodes of each class to train and to choose by, the others to test (Shchur et al. 2018)."""
    if raw.task != "classes" or raw.targets is None:
        raise ValueError(f"{raw.name}: the split planetoid takes nodes of each class: the targets are values")
    labels = raw.targets[nodes]
    try:
        check_classes(labels, len(raw.classes))
    except ValueError as error:
        raise ValueError(f"{raw.name}: {error}") from None
    generator = Generator().manual_seed(mix(seed, 5))
    train, val = PER_CLASS["train"], PER_CLASS["val"]
    chosen: dict[str, list[Tensor]] = {part: [] for part in PARTS_OF_DATA}
    for k, name in enumerate(raw.classes):
        members = nodes[labels == k]
        if len(members) <= train + val:
            raise ValueError(
                f"{raw.name}: the split planetoid needs more than {train + val} nodes of every class: "
                f"class {name!r} has {len(members)}"
            )
        members = members[torch.randperm(len(members), generator=generator)]
        pieces = members.split([train, val, len(members) - train - val])
        for part, piece in zip(PARTS_OF_DATA, pieces, strict=True):
            chosen[part].append(piece)
    return {part: torch.cat(pieces).sort().values for part, pieces in chosen.items()}


def _preprocess(x: Tensor, train: Tensor, normalize: Normalize) -> nn.Module:
    """Standardizes features other than 0/1 columns; shares of a row and words of a text stay as they are."""
    flags = ((x == 0) | (x == 1)).all(0)
    if normalize == "rows" or bool(flags.all()):
        return nn.Identity()
    return fit_standardize(x[train], per="feature", indicators=flags)


def _about(graph: Graph, raw: RawNodes, how: Cutting) -> list[list[str]]:
    kind = "undirected, each edge held in both directions" if graph.is_undirected() else "directed"
    loops, alone = int(graph.self_loops().sum()), int(graph.isolated().sum())
    degrees = graph.in_degrees()
    low, high = (f"{end.item():.6g}" for end in graph.x.aminmax()) if graph.x.numel() else ("-", "-")
    lines = [
        ["graph", f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges ({kind})"],
        [
            "edges",
            f"{loops:,} self-loops, {alone:,} isolated nodes, at most {int(degrees.max()):,} to a node",
        ],
        ["features", f"{graph.x.shape[1]:,} a node in [{low}, {high}], {graph.edge_attr.shape[1]} an edge"],
        [
            "training",
            f"{how.setting}, "
            + (f"{list(how.neighbors)} neighbors drawn" if how.neighbors else "whole graph"),
        ],
    ]
    if how.normalize == "rows":
        lines.append(["rows", "each node's features are divided by their sum"])
    if without := int((~raw.labeled).sum()):
        lines.append(["targets", f"{without:,} nodes have none and are in no part"])
    return lines
