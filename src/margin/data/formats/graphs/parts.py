"""Nodes of one graph, and graphs of a set, as examples.

Nodes read their neighbors, so a batch of some nodes brings the whole graph, and the weight says which count.
Graphs do not read each other: a batch of some brings these alone.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import offsets_of, ranges
from margin.data.formats.graphs.graphs import Graph, joined


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Some nodes of one graph as examples; a batch is the whole graph, weight 1 at its nodes.

    Every batch holds the graph's own tensors, not copies, so what is computed of them can be kept.

    Args:
        graph: The graph that is read.
        index: The nodes of this part, distinct.
        known: The target of every node of the graph, of any value where it is in no part; None: no targets.
        names: What the nodes are called, by their number in the graph; () where they have no names.
    """

    graph: Graph
    index: Int[Tensor, " part"]
    known: Int[Tensor, " nodes"] | Float[Tensor, " nodes"] | None = None
    names: tuple[str, ...] = ()
    _all: Batch = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_all", self._batch(self.index))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def targets(self) -> Tensor | None:
        """The target of each node of the part, in its order."""
        return None if self.known is None else self.known[self.index]

    @property
    def rows(self) -> dict[str, list[str]]:
        """The names of the nodes, where they have some, as a column of predictions."""
        return {"node": [self.names[k] for k in self.index.tolist()]} if self.names else {}

    @property
    def evaluation_batch(self) -> int:
        """All nodes at once: each batch costs a pass over the whole graph."""
        return max(1, len(self.index))

    @property
    def independent(self) -> bool:
        """False: nodes read their neighbors."""
        return False

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The whole graph, weight 1 at the nodes at ``index`` of the part; nothing is drawn."""
        if len(index) == len(self.index) and torch.equal(index, torch.arange(len(index))):
            return self._all
        return self._batch(self.index[index])

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads: the graph is another's business."""
        return [self.index, *([] if self.targets is None else [self.targets])]

    def _batch(self, nodes: Tensor) -> Batch:
        weight = torch.zeros(self.graph.num_nodes, dtype=self.graph.x.dtype)
        # An example that is taken twice counts twice.
        weight.index_add_(0, nodes, weight.new_ones(len(nodes)))
        return Batch(self.graph.inputs, self.known, weight)


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """Whole graphs as examples; a batch joins the chosen ones without an edge between them.

    Args:
        graph: All graphs, one behind another.
        known: The target of each graph, or None.
        _places: Where the nodes and the edges of each graph begin, and the edges by graph.
    """

    graph: Graph
    known: Int[Tensor, " graphs"] | Float[Tensor, " graphs"] | None = None
    _places: "_Places" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.known is not None and len(self.known) != self.graph.num_graphs:
            raise ValueError(
                "every graph must have a target: "
                f"got {self.graph.num_graphs} graphs, {len(self.known)} targets"
            )
        object.__setattr__(self, "_places", _places(self.graph))

    def __len__(self) -> int:
        return self.graph.num_graphs

    @property
    def targets(self) -> Tensor | None:
        """The target of each graph."""
        return self.known

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The graphs at ``index``, joined in that order; nothing is drawn."""
        places, sizes = self._places, self.graph.sizes[index]
        nodes = ranges(places.nodes[index], sizes)
        counts = places.edge_counts[index]
        edges = ranges(places.edges[index], counts)
        starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, counts, output_size=len(edges))
        inputs = (
            self.graph.x.index_select(0, nodes),
            places.local.index_select(1, edges) + starts,
            places.attr.index_select(0, edges),
            sizes,
        )
        return Batch(inputs, None if self.known is None else self.known[index])

    def chosen(self, index: Int[Tensor, " chosen"]) -> "Graphs":
        """Some of the graphs, with their targets."""
        batch = self.take(index, Generator())
        return Graphs(Graph(*batch.inputs), batch.targets)

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [*self.graph.tensors(), *([] if self.known is None else [self.known])]


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    nodes: Tensor
    edges: Tensor
    edge_counts: Tensor
    local: Tensor
    attr: Tensor


def _places(graph: Graph) -> _Places:
    starts, owner = offsets_of(graph.sizes)[:-1], graph.graph_of_node()
    of_edge = owner[graph.edge_index[0]]
    order = of_edge.argsort(stable=True)
    counts = of_edge.bincount(minlength=graph.num_graphs)
    return _Places(
        nodes=starts,
        edges=offsets_of(counts)[:-1],
        edge_counts=counts,
        local=(graph.edge_index - starts[of_edge])[:, order],
        attr=graph.edge_attr[order],
    )


def graphs_of(graphs: Any, known: Tensor | None = None) -> Graphs:
    """Graphs, one by one, as examples."""
    return Graphs(joined(graphs), known)
