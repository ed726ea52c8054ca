"""Neighbor sampling: batches of some nodes with a random part of their neighborhoods (Hamilton et al. 2017).

Of the edges that lead to a node, so many are drawn uniformly without replacement, hop by hop. The exact
neighborhood is drawn where a node has no more edges than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.core.types import Batch
from margin.data.examples import offsets_of, ranges
from margin.data.formats.graphs.graphs import Graph
from margin.data.formats.graphs.parts import Nodes


@dataclass(frozen=True, slots=True, eq=False)
class Incoming:
    """The edges of a graph by the node that they lead to: those of node v are at ``starts[v] ..``.

    Args:
        starts: Where the edges of each node begin, and where the last end.
        edges: The edges' numbers, by target; in the order of the graph where targets are equal.
        sources: Where each of these edges comes from.
    """

    starts: Int[Tensor, " nodes_and_end"]
    edges: Int[Tensor, " edges"]
    sources: Int[Tensor, " edges"]


def incoming(graph: Graph) -> Incoming:
    """The edges of a graph by target; O(nodes + edges log edges), once a graph."""
    source, target = graph.edge_index
    order = target.argsort(stable=True)
    return Incoming(offsets_of(graph.in_degrees()), order, source[order])


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Some nodes of one graph as examples; a batch is a drawn neighborhood, its seeds first, with weight 1.

    A batch holds the nodes reached in as many hops as there are numbers in ``neighbors``, and the drawn
    edges. Every node is expanded once, at the hop where it is reached first. What a batch draws is a function
    of its generator. With at least as many as the largest in-degree, each hop is the exact neighborhood.

    Args:
        nodes: The nodes of this part and their graph.
        neighbors: Edges drawn to each node, at most, of hop 1, 2, ...; each at least 1.

    Reference: Hamilton, Ying and Leskovec 2017, Inductive Representation Learning on Large Graphs, Section
    3.1 and Appendix A. There nodes with fewer neighbors are drawn with replacement; here all are taken.
    """

    nodes: Nodes
    neighbors: tuple[int, ...]
    _incoming: Incoming = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.neighbors or min(self.neighbors) < 1:
            raise ValueError(f"neighbors must be at least 1 at every hop: got {list(self.neighbors)}")
        object.__setattr__(self, "_incoming", incoming(self.nodes.graph))

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def targets(self) -> Tensor | None:
        """The target of each node of the part, in its order."""
        return self.nodes.targets

    @property
    def independent(self) -> bool:
        """False: nodes read their neighbors."""
        return False

    def tensors(self) -> list[Tensor]:
        """The tensors that a fingerprint reads: those of the part, however it is drawn."""
        return self.nodes.tensors()

    def take(self, index: Int[Tensor, " batch"], generator: Generator) -> Batch:
        """The nodes at ``index`` of the part, each once, and what is drawn of their neighborhoods."""
        graph, part = self.nodes.graph, self.nodes
        seeds, counts = part.index[index].unique(return_counts=True)
        drawn = neighborhood(self._incoming, seeds, self.neighbors, generator)
        weight = torch.zeros(len(drawn.nodes), dtype=graph.x.dtype)
        weight[: len(seeds)] = counts.to(weight)
        inputs = (
            graph.x.index_select(0, drawn.nodes),
            drawn.edge_index,
            graph.edge_attr.index_select(0, drawn.edges),
            torch.tensor([len(drawn.nodes)]),
        )
        known = None if part.known is None else part.known.index_select(0, drawn.nodes)
        return Batch(inputs, known, weight)


@dataclass(frozen=True, slots=True, eq=False)
class Neighborhood:
    """What was drawn of the neighborhoods of some nodes.

    Args:
        nodes: The nodes of the graph, the seeds first, then hop by hop.
        edge_index: The drawn edges between them, by their places in ``nodes``.
        edges: The numbers of these edges in the graph.
    """

    nodes: Int[Tensor, " nodes"]
    edge_index: Int[Tensor, "2 edges"]
    edges: Int[Tensor, " edges"]


def neighborhood(
    graph: Incoming, seeds: Int[Tensor, " seeds"], neighbors: Sequence[int], generator: Generator
) -> Neighborhood:
    """Nodes and edges drawn hop by hop from distinct seeds along incoming edges.

    Args:
        graph: The edges by target.
        seeds: The nodes to begin with, distinct.
        neighbors: Edges drawn to each node of hop 1, 2, ..., at most.
        generator: Draws them.
    """
    place = np.full(len(graph.starts) - 1, -1, dtype=np.int64)
    place[seeds.numpy()] = np.arange(len(seeds))
    reached, drawn, targets = [seeds], [], []
    frontier, count = seeds, len(seeds)
    for most in neighbors:
        slots, owners = draw(graph.starts, frontier, most, generator)
        new = graph.sources[slots].numpy()
        new = new[place[new] < 0]
        # The last of equal places wins, so the places that were kept name every new node once.
        place[new] = np.arange(len(new))
        frontier = torch.from_numpy(new[place[new] == np.arange(len(new))])
        place[frontier.numpy()] = np.arange(count, count + len(frontier))
        count += len(frontier)
        reached.append(frontier)
        drawn.append(slots)
        targets.append(owners)
    slots = torch.cat(drawn)
    ends = torch.stack((graph.sources[slots], torch.cat(targets)))
    return Neighborhood(torch.cat(reached), torch.from_numpy(place)[ends], graph.edges[slots])


def draw(
    starts: Int[Tensor, " nodes_and_end"], nodes: Int[Tensor, " some"], most: int, generator: Generator
) -> tuple[Int[Tensor, " drawn"], Int[Tensor, " drawn"]]:
    """For each node at most ``most`` of its slots ``starts[v] .. starts[v + 1] - 1``, uniformly.

    Every subset of that size is as likely as any other, so a slot of a node with d > most of them is drawn
    with probability most / d. Floyd's algorithm, over all nodes at once: O(most^2) a node, whatever d is.

    Args:
        starts: Where the slots of each node begin, and where the last end.
        nodes: The nodes.
        most: Slots drawn to a node, at most.
        generator: Draws them.

    Returns:
        The slots, and the node of each.

    Reference: Bentley and Floyd 1987, A sample of brilliance, Communications of the ACM 30(9), algorithm F2.
    """
    first = starts[nodes]
    degree = starts[nodes + 1] - first
    few = degree <= most
    whole = ranges(first[few], degree[few])
    of_whole = torch.repeat_interleave(nodes[few], degree[few], output_size=len(whole))
    first, degree, many = first[~few], degree[~few], nodes[~few]
    uniform: Float[Tensor, "most many"] = torch.rand(
        most, len(many), dtype=torch.float64, generator=generator
    )
    picked = torch.empty(most, len(many), dtype=torch.int64)
    for k in range(most):
        last = degree - most + k
        one = (uniform[k] * (last + 1)).long()
        picked[k] = torch.where((picked[:k] == one).any(0), last, one)
    return torch.cat((whole, (first + picked).flatten())), torch.cat((of_whole, many.repeat(most)))
