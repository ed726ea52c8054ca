"""Pairs of graphs that are not isomorphic and that color refinement does not tell apart, written by hand.

All nodes look alike. The pairs of one degree get one color; decalin and bicyclopentyl, two molecules of ten
carbons, three. The last pair has the same colors of pairs of nodes besides (2-WL of Cai, Furer and Immerman).
"""

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

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
