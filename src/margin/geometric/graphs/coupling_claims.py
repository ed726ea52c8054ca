"""The coupling matrix of graph convolutions has norm 1: it enlarges no features (Kipf and Welling 2017)."""

import math

import torch
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.geometric.graphs.coupling import coupling_matrix, weights_of
from margin.geometric.graphs.gcn import GCN, GCNLayer
from margin.geometric.graphs.layers import Heard, Listened, listened
from margin.geometric.graphs.subjects import is_graph
from margin.geometric.graphs.twin_graphs import both_ways, ring
from margin.theory.curvature.lanczos import random_direction
from margin.theory.curvature.leading import leading_eigenpairs

DENSE = 512
"""Nodes of graphs whose whole spectrum is computed."""

EXACT = 1e-12
"""What rounding may do to an eigenvalue of a symmetric matrix of norm 1, in float64."""

TOLERANCE = 1e-8
"""Residual at which the Lanczos process stops on larger graphs."""

ONE = torch.ones((), dtype=torch.float64)


def is_gcn(subject: Subject) -> bool:
    """Whether the model reads graphs and holds layers of a graph convolutional network."""
    return is_graph(subject) and any(isinstance(module, GCNLayer) for module in subject.model.modules())


def convolutions(found: Listened) -> list[tuple[Heard, GCNLayer]]:
    """The calls of layers of a graph convolutional network."""
    return [(call, call.layer) for call in found.calls if isinstance(call.layer, GCNLayer)]


def matrix_of(layer: GCNLayer, found: Listened) -> Tensor:
    """A_hat (M, M) of a layer on the graph that the model was asked on, sparse.

    Raises:
        ValueError: A weight is negative.
    """
    x, edge_index, edge_attr, _ = found.inputs
    weight = weights_of(edge_attr, layer.edge_weight).detach()
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # else torch warns that it does not
        return coupling_matrix(edge_index, len(x), weight)


def is_symmetric(matrix: Tensor) -> bool:
    """Whether a sparse matrix equals its transpose, up to float32's rounding of weights."""
    back = matrix.t().coalesce()
    same = torch.equal(back.indices(), matrix.indices())
    return same and torch.allclose(back.values(), matrix.values(), rtol=1e-6, atol=0)


def undirected(matrix: Tensor) -> Premise:
    """The premise that a coupling matrix is symmetric."""
    text = "the graph is undirected"
    if is_symmetric(matrix):
        return Premise(text, "proved", "every edge has its like in the other direction, of the same weight")
    return Premise(text, "refuted", "an edge has no like in the other direction of the same weight")


def spectral_norm(matrix: Tensor) -> tuple[float, float]:
    """The largest singular value of a sparse matrix, and the residual of its square.

    Up to :data:`DENSE` rows from all of them, beyond by the Lanczos process on A^T A.
    """
    if len(matrix) <= DENSE:
        return float(torch.linalg.matrix_norm(matrix.to_dense(), ord=2)), 0.0
    back = matrix.t()

    def product(v: Tensor) -> Tensor:
        image: Tensor = back @ (matrix @ v[:, None])
        return image[:, 0]

    start = random_direction(len(matrix), device=matrix.device)
    found = leading_eigenpairs(product, start, 1, by="largest", tol=TOLERANCE, max_products=3000)
    if not found.converged:
        return math.nan, math.inf
    return float(found.values[0].clamp_min(0).sqrt()), float(found.residuals[0])


def norm(subject: Subject) -> Finding:
    """The spectral norm of the coupling matrix of each layer, on the first held-out batch's graph.

    Args:
        subject: A model with layers of a graph convolutional network.
    """
    found = listened(subject)
    values, errors, premises, labels = [], [0.0], [], []
    for call, layer in convolutions(found):
        weights = weights_of(found.inputs[2], layer.edge_weight)
        text = f"the weights that {call.name} reads are at least 0"
        good = bool((weights >= 0).all())
        low = float(weights.min()) if len(weights) else 0.0
        premises.append(Premise(text, "proved" if good else "refuted", f"the least is {low:.3g}"))
        matrix = matrix_of(layer, found)
        value, error = spectral_norm(matrix)
        premises.append(undirected(matrix))
        values.append(value)
        errors.append(error)
        labels.append(call.name)
    return Finding(
        statement="The coupling matrix D^(-1/2) (A + I) D^(-1/2) has norm 1: no convolution enlarges the "
        "features of the nodes together, and the roots of the degrees it keeps.",
        value=torch.tensor(values or [math.nan], dtype=torch.float64),
        unit="1",
        range=(0.0, math.inf),
        low=ONE,
        high=ONE,
        tolerance=EXACT + max(errors),
        labels=tuple(labels),
        failure="" if values else "the model does not call its convolutions with features and edges",
        premises=tuple(dict.fromkeys(premises)),
        reference="Kipf and Welling 2017, Section 2.2 (renormalization)",
    )


def small_gcn(*, layers: int = 2) -> Subject:
    """Layers of graph convolution on a ring of 9 nodes beside a path of 3, as they begin.

    Args:
        layers: How many.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = GCN(4, 3, hidden=5, layers=layers)
        x = torch.randn(12, 4)
    edges = both_ways([*ring(9), (9, 10), (10, 11)])
    inputs = (x, edges, torch.zeros(edges.shape[1], 0), torch.tensor([12]))
    batch = Batch(inputs, torch.arange(12) % 3)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), independent=False)
