"""Graphs as data: features of nodes and edges in one small immutable container, one graph or many.

Edges are a list, so memory is linear in nodes and edges; nothing of size nodes x nodes is formed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from margin.data.examples import offsets_of


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    r"""One or several directed graphs with features: nodes V, edges (s_e, t_e), x: V -> R^d, a: E -> R^{d_e}.

    An undirected graph holds each edge in both directions. Self-loops, several edges between two nodes, nodes
    without edges, no edges at all, and graphs without nodes are legal.

    Args:
        x: Features of the nodes; the nodes of a graph are consecutive.
        edge_index: Row 0 is the source, row 1 the target of each message; nodes are counted from 0 over all.
        edge_attr: Features of the edges, of width 0 where they carry none.
        sizes: The number of nodes of each graph.

    Raises:
        ValueError: Shapes do not fit, an edge leads to a node that does not exist or to another graph, or a
            feature is not finite; the message names the edge or node, counted from 0.
    """

    x: Float[Tensor, "nodes features"]
    edge_index: Int[Tensor, "2 edges"]
    edge_attr: Float[Tensor, "edges width"]
    sizes: Int[Tensor, " graphs"]

    def __post_init__(self) -> None:
        _check_shapes(self)
        check_edges(self.edge_index, self.num_nodes)
        _check_finite(self.x, "node")
        _check_finite(self.edge_attr, "edge")
        if self.num_graphs > 1 and self.num_edges:
            graph = self.graph_of_node()[self.edge_index]
            across = (graph[0] != graph[1]).nonzero()[:, 0]
            if len(across):
                edge, (first, second) = int(across[0]), graph[:, across[0]].tolist()
                raise ValueError(
                    f"an edge must stay in its graph: edge {edge} leads from graph {first} to {second}"
                )

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all graphs."""
        return len(self.x)

    @property
    def num_edges(self) -> int:
        """The number of edges as they are held: an undirected edge counts twice, its loop once."""
        return self.edge_index.shape[1]

    @property
    def num_graphs(self) -> int:
        """The number of graphs, those without nodes too."""
        return len(self.sizes)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What a graph model takes: (x, edge_index, edge_attr, sizes)."""
        return self.x, self.edge_index, self.edge_attr, self.sizes

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads."""
        return [*self.inputs]

    def graph_of_node(self) -> Int[Tensor, " nodes"]:
        """The number of the graph in which each node lies."""
        return torch.repeat_interleave(self.sizes, output_size=self.num_nodes)

    def in_degrees(self) -> Int[Tensor, " nodes"]:
        """The number of edges that lead to each node, loops included."""
        return self.edge_index[1].bincount(minlength=self.num_nodes)

    def isolated(self) -> Bool[Tensor, " nodes"]:
        """Which nodes no edge joins to another: neither from it nor to it; a loop joins nothing."""
        source, target = self.edge_index[:, ~self.self_loops()]
        touched = torch.zeros(self.num_nodes, dtype=torch.bool, device=self.x.device)
        touched[source] = True
        touched[target] = True
        return ~touched

    def self_loops(self) -> Bool[Tensor, " edges"]:
        """Which edges lead from a node to itself."""
        return self.edge_index[0] == self.edge_index[1]

    def is_undirected(self) -> bool:
        """Whether the edges with their features are the same when each is turned round; so is no edge."""
        forth, back = (_ordered(self, turned) for turned in (False, True))
        return all(torch.equal(a, b) for a, b in zip(forth, back, strict=True))

    def undirected(self) -> "Graph":
        """The graph with every edge in both directions, once each, ordered by source and target.

        Raises:
            ValueError: Edges between the same two nodes have different features.
        """
        both = torch.cat((self.edge_index, self.edge_index.flip(0)), 1)
        attr = torch.cat((self.edge_attr, self.edge_attr))
        keys, inverse = (both[0] * max(self.num_nodes, 1) + both[1]).unique(return_inverse=True)
        first = torch.full_like(keys, len(inverse)).scatter_reduce(
            0, inverse, torch.arange(len(inverse), device=keys.device), "amin"
        )
        unlike = (attr != attr[first][inverse]).any(1).nonzero()[:, 0]
        if len(unlike):
            second, at = int(unlike[0]), int(first[inverse[unlike[0]]])
            edge, other = sorted((second % self.num_edges, at % self.num_edges))
            source, target = both[:, second].tolist()
            raise ValueError(
                "both directions of an undirected edge must have the same features: those of edges "
                f"{edge} and {other}, nodes {target} and {source}, differ"
            )
        return Graph(self.x, both[:, first], attr[first], self.sizes)

    def within(self, nodes: Int[Tensor, " chosen"]) -> "Graph":
        """The subgraph induced by some nodes of one graph, in their order: the edges with both ends in it.

        Raises:
            ValueError: A node is chosen twice, or there are several graphs.
        """
        if self.num_graphs != 1:
            raise ValueError(f"a subgraph is taken of one graph: got {self.num_graphs}")
        place = torch.full((self.num_nodes,), -1, dtype=torch.int64, device=self.x.device)
        place[nodes] = torch.arange(len(nodes), device=self.x.device)
        if int((place >= 0).sum()) != len(nodes):
            raise ValueError("the nodes of a subgraph must be distinct")
        ends = place[self.edge_index]
        kept = (ends >= 0).all(0)
        return Graph(self.x[nodes], ends[:, kept], self.edge_attr[kept], self.sizes.new_tensor([len(nodes)]))

    def separated(self) -> list["Graph"]:
        """The graphs one by one, each with nodes counted from 0; edges keep their order."""
        owner = self.graph_of_node()
        of_edge = owner[self.edge_index[0]]
        order = of_edge.argsort(stable=True)
        counts = of_edge.bincount(minlength=self.num_graphs).tolist()
        starts = offsets_of(self.sizes).tolist()
        pieces = zip(
            self.x.split(self.sizes.tolist()),
            self.edge_index[:, order].split(counts, 1),
            self.edge_attr[order].split(counts),
            starts[:-1],
            strict=True,
        )
        return [graph_of(x, edges - start, attr) for x, edges, attr, start in pieces]


def graph_of(
    x: Float[Tensor, "nodes features"],
    edge_index: Int[Tensor, "2 edges"],
    edge_attr: Float[Tensor, "edges width"] | None = None,
) -> Graph:
    """One graph; without ``edge_attr`` its edges carry nothing.

    Raises:
        ValueError: As :class:`Graph`.
    """
    attr = x.new_zeros((edge_index.shape[1], 0)) if edge_attr is None else edge_attr
    return Graph(x, edge_index, attr, torch.tensor([len(x)], device=x.device))


def joined(graphs: Sequence[Graph]) -> Graph:
    """Several graphs as one container without an edge between them, in their order.

    Raises:
        ValueError: There are none, or the widths of their features differ.
    """
    if not graphs:
        raise ValueError("joining needs at least one graph: got none")
    for k, graph in enumerate(graphs):
        for what, width, first in (
            ("node", graph.x.shape[1], graphs[0].x.shape[1]),
            ("edge", graph.edge_attr.shape[1], graphs[0].edge_attr.shape[1]),
        ):
            if width != first:
                raise ValueError(
                    f"all graphs must have as many {what} features: "
                    f"graph 0 has {first}, graph {k} has {width}"
                )
    starts = [0, *torch.tensor([graph.num_nodes for graph in graphs]).cumsum(0).tolist()]
    return Graph(
        torch.cat([graph.x for graph in graphs]),
        torch.cat([graph.edge_index + start for graph, start in zip(graphs, starts, strict=False)], 1),
        torch.cat([graph.edge_attr for graph in graphs]),
        torch.cat([graph.sizes for graph in graphs]),
    )


def check_edges(edge_index: Int[Tensor, "2 edges"], num_nodes: int) -> None:
    """Refuse an edge whose end is no node, naming the first.

    Raises:
        ValueError: As said above.
    """
    wrong = ((edge_index < 0) | (edge_index >= num_nodes)).any(0).nonzero()[:, 0]
    if len(wrong):
        source, target = edge_index[:, wrong[0]].tolist()
        nodes = f"0 .. {num_nodes - 1}" if num_nodes else "none"
        raise ValueError(
            f"an edge must join nodes that exist ({nodes}): "
            f"edge {int(wrong[0])} leads from {source} to {target} ({len(wrong)} such edges)"
        )


def _check_shapes(graph: Graph) -> None:
    if graph.edge_index.ndim != 2 or len(graph.edge_index) != 2 or graph.edge_index.dtype != torch.int64:
        got = f"{tuple(graph.edge_index.shape)} of {graph.edge_index.dtype}"
        raise ValueError(f"edge_index must have shape (2, edges) and type int64: got {got}")
    for name, features in (("x", graph.x), ("edge_attr", graph.edge_attr)):
        if features.ndim != 2 or not features.is_floating_point():
            got = f"{tuple(features.shape)} of {features.dtype}"
            raise ValueError(f"{name} must be real numbers of shape (rows, features): got {got}")
    if len(graph.edge_attr) != graph.num_edges:
        raise ValueError(
            "every edge must have its features: "
            f"got {graph.num_edges} edges, {len(graph.edge_attr)} rows of edge features"
        )
    if graph.sizes.ndim != 1 or graph.sizes.dtype != torch.int64 or bool((graph.sizes < 0).any()):
        raise ValueError(f"sizes must be whole numbers of at least 0 in int64: got {graph.sizes.tolist()}")
    if int(graph.sizes.sum()) != graph.num_nodes:
        raise ValueError(
            f"sizes must add up to the number of nodes: got {int(graph.sizes.sum())}, {graph.num_nodes} nodes"
        )


def _check_finite(features: Tensor, what: str) -> None:
    # A sum is not finite where a term is not; only then are the rows looked at.
    if bool(features.sum().isfinite()):
        return
    wrong = (~features.isfinite()).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise ValueError(
            f"every feature must be finite: {what} {row} has {features[row, column].item()} "
            f"in feature {column} ({len(wrong)} in all)"
        )


def _ordered(graph: Graph, turned: bool) -> tuple[Tensor, Tensor]:
    """Edges and their features, ordered by source, target, then the features."""
    edges = graph.edge_index.flip(0) if turned else graph.edge_index
    order = torch.arange(graph.num_edges, device=edges.device)
    for column in reversed(graph.edge_attr.unbind(1)):
        order = order[column[order].argsort(stable=True)]
    key = edges[0] * max(graph.num_nodes, 1) + edges[1]
    order = order[key[order].argsort(stable=True)]
    return edges[:, order], graph.edge_attr[order]
