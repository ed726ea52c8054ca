"""Color refinement, the 1-dimensional Weisfeiler-Leman test (1968), exact: multisets are compared, sorted.

Every node's color is replaced by its color with the multiset of its neighbors' colors, until no class of
nodes splits. Graphs whose colors are counted differently are not isomorphic; the converse fails.

Pairs of graphs that are not isomorphic and that color refinement does not tell apart, written by hand.

All nodes look alike. The pairs of one degree get one color; decalin and bicyclopentyl, two molecules of ten
carbons, three. The last pair has the same colors of pairs of nodes besides (2-WL of Cai, Furer and Immerman).
"""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

Colors = Int[Tensor, " nodes"]
Edges = Int[Tensor, "2 edges"]
Ints = NDArray[np.int64]

MOST_NODES = 128
"""Nodes of graphs whose pairs of nodes are colored: a round holds nodes^3 numbers."""


class Coloring(NamedTuple):
    """The colors after a refinement.

    Args:
        colors: 0 .. C-1; equal where the refinement tells two nodes not apart. The numbers are a function of
            the graph up to isomorphism: relabeled nodes keep theirs.
        rounds: Rounds in which a class split; a further one would split none, unless they were limited.
    """

    colors: Colors
    rounds: int


def refined(
    edge_index: Edges,
    num_nodes: int,
    *,
    colors: Colors | None = None,
    labels: Int[Tensor, " edges"] | None = None,
    rounds: int | None = None,
) -> Coloring:
    """The coarsest stable coloring of a graph that refines the given one.

    A round proposes classes by a sum over neighbors of one 64-bit number a color, then compares every node's
    sorted neighbors with those of its class's first. Where two multisets share a sum, by a chance of about
    M^2 / 2^64, they are named instead: pairs of neighbors in the sequence get names, then pairs of those,
    ceil(log2 of the largest degree) times. A round costs O(E log E), and there are at most M - 1.

    Args:
        edge_index: Sources and targets; a node sees the sources of its edges.
        num_nodes: M.
        colors: Colors to begin with, at least 0; None is one for all.
        labels: A label of each edge, at least 0; None is one for all.
        rounds: Rounds at most; None goes on until the coloring is stable.

    Raises:
        ValueError: An edge's node, a color or a label is out of range.

    Reference: Weisfeiler and Leman 1968; Morris et al. 2019, Section 2 (color refinement).
    """
    _check(edge_index, num_nodes, colors, labels)
    source, target = edge_index.numpy().astype(np.int64)
    order = torch.from_numpy(target).sort(stable=True).indices.numpy()  # by digits, which NumPy does not
    near = _Near(source[order], target[order], num_nodes)
    now = np.zeros(num_nodes, np.int64) if colors is None else _named(colors.numpy().astype(np.int64))
    marks = None if labels is None else _named(labels.numpy().astype(np.int64))[order]
    count, done = _count(now), 0
    while (rounds is None or done < rounds) and count < num_nodes:
        seen = now[near.source] if marks is None else _named(_paired(now[near.source], marks))
        after = near.refined(now, seen)
        if _count(after) == count:
            break
        now, count, done = after, _count(after), done + 1
    return Coloring(torch.from_numpy(now), done)


class _Near:
    """The neighbors of every node, one after the other.

    Args:
        source: The nodes that are seen, those of one node consecutive.
        target: Who sees them, ascending.
        num_nodes: M.
    """

    def __init__(self, source: Ints, target: Ints, num_nodes: int) -> None:
        self.source = source
        self.target = target
        self.degrees = np.bincount(target, minlength=num_nodes)
        self.starts = np.concatenate(([0], np.cumsum(self.degrees)[:-1])) if num_nodes else self.degrees
        self.places = np.arange(len(target)) - self.starts[target]

    def refined(self, now: Ints, seen: Ints) -> Ints:
        """Names of the pairs (a node's color, the multiset of what it sees).

        Args:
            now: The color of each node.
            seen: What each edge shows to its target.
        """
        sums = np.zeros(len(now), np.uint64)
        shown = np.flatnonzero(self.degrees)
        if len(shown):
            sums[shown] = np.add.reduceat(scattered(seen), self.starts[shown])
        classes = _named((scattered(now + 1) * np.uint64(3) + sums).view(np.int64))
        first = np.empty(_count(classes), np.int64)
        first[classes[::-1]] = np.arange(len(now))[::-1]
        like = first[classes]
        if not np.array_equal(now, now[like]) or not np.array_equal(self.degrees, self.degrees[like]):
            return self._named(now, seen)
        return classes if self._alike(classes, like, seen) else self._named(now, seen)

    def _alike(self, classes: Ints, like: Ints, seen: Ints) -> bool:
        """Whether every node sees what the first of its class sees; a class of one needs no comparison."""
        shared = (np.bincount(classes) > 1)[classes]
        edges = np.flatnonzero(shared[self.target])
        target, degrees = self.target[edges], np.where(shared, self.degrees, 0)
        starts = np.cumsum(degrees) - degrees
        offset = target * _count(seen)
        row = torch.from_numpy(offset + seen[edges]).sort().values.numpy() - offset  # ascending as keys are
        return np.array_equal(row, row[starts[like[target]] + self.places[edges]])

    def _named(self, now: Ints, seen: Ints) -> Ints:
        return _named(_paired(now, _multisets(seen, self.target, len(now)) + 1))


def scattered(names: Ints) -> NDArray[np.uint64]:
    """A 64-bit number for each name, as if drawn at random: the finalizer of SplitMix64.

    Reference: Steele, Lea and Flood 2014, Figure 16 (mix64variant13).
    """
    z = (names.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _check(edge_index: Tensor, num_nodes: int, colors: Tensor | None, labels: Tensor | None) -> None:
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        low, high = int(edge_index.min()), int(edge_index.max())
        raise ValueError(f"an edge joins nodes 0 .. {num_nodes - 1}: got {low} .. {high}")
    for what, values, count in (
        ("colors", colors, num_nodes),
        ("labels", labels, edge_index.shape[1]),
    ):
        if values is not None and (len(values) != count or bool((values < 0).any())):
            raise ValueError(f"{what} must be {count} whole numbers of at least 0: got {tuple(values.shape)}")


def _count(colors: Ints) -> int:
    return int(colors.max()) + 1 if len(colors) else 0


def _named(keys: Ints) -> Ints:
    """0 .. C-1 in the order of the keys, equal where the keys are."""
    ranked, order = (found.numpy() for found in torch.from_numpy(keys).sort())
    new = np.empty(len(keys), np.int64)
    new[order] = np.cumsum(np.concatenate(([0], ranked[1:] != ranked[:-1]))) if len(keys) else 0
    return new


def _paired(first: Ints, second: Ints) -> Ints:
    """One key a pair, ordered as the pairs are: first (max second + 1) + second, below 2^63 for names."""
    return first * (_count(second) or 1) + second


def _multisets(seen: Ints, target: Ints, num_nodes: int) -> Ints:
    """A name for the multiset of what each node sees, -1 where it sees nothing."""
    names = np.full(num_nodes, -1, np.int64)
    keys = torch.from_numpy(_paired(target, seen)).sort().values.numpy()
    owner, row = np.divmod(keys, _count(seen) or 1)
    while len(row):
        first = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
        sizes = np.diff(np.append(first, len(owner)))
        if sizes.max() == 1:
            names[owner] = row
            break
        place = np.arange(len(owner)) - np.repeat(first, sizes)
        left = np.flatnonzero(place % 2 == 0)
        has_right = place[left] + 1 < np.repeat(sizes, sizes)[left]
        right = np.where(has_right, row[np.minimum(left + 1, len(row) - 1)] + 1, 0)
        owner, row = owner[left], _named(_paired(row[left], right))
    return names


def counts_of(coloring: Coloring, sizes: Int[Tensor, " graphs"]) -> Int[Tensor, "graphs colors"]:
    """How many nodes of each color every graph has, of graphs that were refined together.

    Args:
        coloring: Of the disjoint union of the graphs.
        sizes: Nodes of each graph, which follow each other.
    """
    colors = coloring.colors
    total = int(colors.max()) + 1 if len(colors) else 0
    graph = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return torch.bincount(graph * max(total, 1) + colors, minlength=len(sizes) * total).reshape(-1, total)


def told_apart(one: Edges, other: Int[Tensor, "2 others"], num_nodes: tuple[int, int]) -> bool:
    """Whether color refinement shows that two graphs without labels are not isomorphic.

    Args:
        one: The edges of the first, each direction.
        other: Those of the second.
        num_nodes: Nodes of both.
    """
    both = torch.cat((one, other + num_nodes[0]), 1)
    counts = counts_of(refined(both, sum(num_nodes)), torch.tensor(num_nodes))
    return not torch.equal(counts[0], counts[1])


def told_apart_by_pairs(one: Edges, other: Int[Tensor, "2 others"], num_nodes: tuple[int, int]) -> bool:
    """Whether the colors of pairs of nodes (folklore 2-WL, as strong as 3-WL) tell two graphs apart.

    A pair (i, j) begins with whether i = j and whether there is an edge; then its color is replaced by itself
    with the multiset over w of (color of (i, w), color of (w, j)).

    Args:
        one: The edges of the first, each direction.
        other: Those of the second.
        num_nodes: Nodes of both, at most :data:`MOST_NODES`.

    Raises:
        ValueError: A graph is larger.

    Reference: Cai, Furer and Immerman 1992, Section 5; Morris et al. 2019, Section 4.
    """
    if max(num_nodes) > MOST_NODES:
        raise ValueError(f"pairs are colored of at most {MOST_NODES} nodes: got {max(num_nodes)}")
    if num_nodes[0] != num_nodes[1]:
        return True
    size = num_nodes[0]
    pairs = np.stack([_adjacency(edges, size) for edges in (one, other)])
    while True:
        count = _count(pairs)
        signatures = np.empty((*pairs.shape, size + 1), np.int64)
        signatures[..., 0] = pairs
        for graph in range(2):
            seen = pairs[graph][:, None, :] * count + pairs[graph].T[None, :, :]  # (i, j, w)
            signatures[graph, ..., 1:] = np.sort(seen, -1)
        flat = signatures.reshape(-1, size + 1)
        after = np.unique(flat, axis=0, return_inverse=True)[1].reshape(pairs.shape)
        if not np.array_equal(np.sort(after[0], None), np.sort(after[1], None)):
            return True
        if _count(after) == count:
            return False
        pairs = after


def _adjacency(edges: Tensor, size: int) -> Ints:
    colors = 2 * np.eye(size, dtype=np.int64)
    colors[edges[0].numpy(), edges[1].numpy()] += 1
    return np.minimum(colors, 3)


Undirected = Iterable[tuple[int, int]]


class Twins(NamedTuple):
    """Two graphs of as many nodes each; the edges are held in both directions."""

    name: str
    nodes: int
    one: Int[Tensor, "2 edges"]
    other: Int[Tensor, "2 others"]

    @property
    def union(self) -> Int[Tensor, "2 all"]:
        """Both as one graph, the second's nodes after the first's."""
        return torch.cat((self.one, self.other + self.nodes), 1)


def both_ways(edges: Undirected) -> Int[Tensor, "2 edges"]:
    """Undirected edges in both directions, each once."""
    pairs = torch.tensor(sorted({pair for a, b in edges for pair in ((a, b), (b, a))}), dtype=torch.int64)
    return pairs.reshape(-1, 2).T.contiguous()


def ring(size: int, first: int = 0) -> list[tuple[int, int]]:
    """A cycle of nodes ``first`` .. ``first + size - 1``."""
    return [(first + i, first + (i + 1) % size) for i in range(size)]


def skipping(size: int, skip: int) -> list[tuple[int, int]]:
    """A cycle with a second edge from every node to the one ``skip`` places on (circular skip links)."""
    return ring(size) + [(i, (i + skip) % size) for i in range(size)]


def rook() -> list[tuple[int, int]]:
    """The moves of a rook on a board of 4 x 4."""
    squares = list(product(range(4), repeat=2))
    return [(4 * a + b, 4 * c + d) for (a, b), (c, d) in product(squares, squares) if (a == c) != (b == d)]


def shrikhande() -> list[tuple[int, int]]:
    """Sums of +-(0, 1), +-(1, 0), +-(1, 1) on the torus 4 x 4 (Shrikhande 1959)."""
    steps = ((0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3))
    squares = product(range(4), repeat=2)
    return [(4 * a + b, 4 * ((a + i) % 4) + (b + j) % 4) for (a, b), (i, j) in product(squares, steps)]


def twins() -> tuple[Twins, ...]:
    """The pairs.

    Reference: Murphy et al. 2019 (circular skip links); Sato 2020 (the molecules).
    """
    prism = [*ring(3), *ring(3, 3), (0, 3), (1, 4), (2, 5)]
    bipartite = [(i, 3 + j) for i, j in product(range(3), repeat=2)]
    decalin = [*ring(6), (4, 6), (6, 7), (7, 8), (8, 9), (9, 5)]
    bicyclopentyl = [*ring(5), *ring(5, 5), (4, 5)]
    pairs: tuple[tuple[str, int, Undirected, Undirected], ...] = (
        ("hexagon, two triangles", 6, ring(6), [*ring(3), *ring(3, 3)]),
        ("ring of 7, rings of 3 and 4", 7, ring(7), [*ring(3), *ring(4, 3)]),
        ("prism, bipartite 3 + 3", 6, prism, bipartite),
        ("decalin, bicyclopentyl", 10, decalin, bicyclopentyl),
        ("skips of 2, of 3 on 41 places", 41, skipping(41, 2), skipping(41, 3)),
        ("rook, Shrikhande", 16, rook(), shrikhande()),
    )
    return tuple(Twins(name, n, both_ways(one), both_ways(other)) for name, n, one, other in pairs)


def path_and_star() -> Twins:
    """A path of four nodes and a star of three rays, which color refinement tells apart at once."""
    one, other = [(0, 1), (1, 2), (2, 3)], [(0, 1), (0, 2), (0, 3)]
    return Twins("path, star", 4, both_ways(one), both_ways(other))
