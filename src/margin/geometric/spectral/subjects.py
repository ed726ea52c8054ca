"""The graph that spectral questions are put to: that of the first held-out batch."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.layers import first_inputs, is_graph
from margin.geometric.spectral import graph_fourier
from margin.geometric.spectral.laplacian import Symmetric, adjacency

ZERO, TWO = (torch.tensor(value, dtype=torch.float64) for value in (0.0, 2.0))

EPS = torch.finfo(torch.float64).eps


class Asked(NamedTuple):
    """The graph that a question is put to.

    Args:
        A: Its adjacency matrix without loops, float64; None where it is not undirected.
        x: Features of its nodes, float64.
        premise: Whether it is undirected with weights of at least 0.
    """

    A: Symmetric | None
    x: Float[Tensor, "nodes features"]
    premise: Premise


def asked(subject: Subject) -> Asked:
    """The graph of the first held-out batch; an edge weighs as much as the model's first filter says."""
    x, edge_index, edge_attr, _ = first_inputs(subject)
    ways = [getattr(module, "edge_weight", None) for module in subject.model.modules()]
    said = [way for way in ways if isinstance(way, str)]
    weighted = said[:1] == ["first"] and edge_attr.shape[1] > 0
    text = "the graph is undirected, with weights of at least 0"
    weights = "the first number of an edge" if weighted else "1 an edge"
    try:
        A = adjacency(edge_index, len(x), edge_attr[:, 0] if weighted else None, dtype=torch.float64)
    except ValueError as error:
        return Asked(None, x, Premise(text, "refuted", str(error)))
    return Asked(A, x, Premise(text, "proved", f"every edge has its counterpart; weights: {weights}"))


def is_small_graph(subject: Subject) -> bool:
    """Whether the model reads graphs, and its first one is small enough for eigenvectors."""
    return is_graph(subject) and 0 < len(subject.test[0].inputs[0]) <= graph_fourier.MOST_NODES


def unfounded(asked: Asked, statement: str, reference: str) -> Finding:
    """What is answered of a graph that is not undirected."""
    return Finding(
        statement=statement,
        value=torch.full((), torch.nan, dtype=torch.float64),
        range=(0.0, float("inf")),
        premises=(asked.premise,),
        reference=reference,
    )
