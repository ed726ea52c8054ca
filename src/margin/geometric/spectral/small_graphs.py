"""Graphs whose spectra are known: paths, cycles, and random ones, as lists of edges in both directions."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

Edges = Int[Tensor, "2 edges"]


def undirected(pairs: Sequence[tuple[int, int]]) -> Edges:
    """Each of some pairs of nodes as an edge in both directions, all first ones before the second."""
    edges = torch.tensor([*pairs], dtype=torch.int64).reshape(-1, 2).T
    return torch.cat((edges, edges.flip(0)), 1)


def path(size: int) -> Edges:
    """Nodes in a row; the eigenvalues of D - A are 2 - 2 cos(pi k / M) for k = 0 .. M - 1."""
    return undirected([(i, i + 1) for i in range(size - 1)])


def cycle(size: int) -> Edges:
    """Nodes in a circle, at least 3; the eigenvalues of D - A are 2 - 2 cos(2 pi k / M), k = 0 .. M - 1."""
    if size < 3:
        raise ValueError(f"a cycle has at least 3 nodes: got {size}")
    return undirected([(i, (i + 1) % size) for i in range(size)])


def weighted_random(size: int, share: float, seed: int) -> tuple[Edges, Float[Tensor, " edges"]]:
    """Each pair of nodes but the last, which has no edge, joined with a probability, weighing 0.1 to 1.1.

    Args:
        size: Nodes.
        share: The probability.
        seed: Of what is drawn.
    """
    generator = Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(size - 1))
    pairs = pairs[torch.rand(len(pairs), generator=generator) < share].T
    weight = torch.rand(pairs.shape[1], generator=generator, dtype=torch.float64) + 0.1
    return torch.cat((pairs, pairs.flip(0)), 1), torch.cat((weight, weight))
