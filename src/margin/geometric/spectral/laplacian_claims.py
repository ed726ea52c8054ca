"""What a graph's Laplacian promises (Chung 1997): its spectrum counts components, and the bipartite ones."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from torch import Generator, Tensor

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode, in_double
from margin.engine.loop import risk
from margin.geometric.graphs.layers import first_inputs, is_node_model
from margin.geometric.spectral.chebnet import chebnet
from margin.geometric.spectral.graph_fourier import MOST_NODES, eigenspaces, spectrum, transform
from margin.geometric.spectral.laplacian import Symmetric, cycle, dirichlet_energy, laplacian, path
from margin.geometric.spectral.subjects import EPS, TWO, ZERO, Asked, asked, unfounded

BOOK = "Chung 1997, Spectral Graph Theory"


def _csr(A: Symmetric) -> csr_array:
    parts = (A.values, A.where.column, A.where.starts)
    values, column, starts = (part.detach().cpu().numpy() for part in parts)
    return csr_array((values, column, starts), shape=(A.num_nodes, A.num_nodes))


def components_of(A: Symmetric) -> tuple[int, Tensor]:
    """The number of connected components, and that of each node; by a search, without a spectrum."""
    count, labels = connected_components(_csr(A), directed=False)
    return int(count), torch.from_numpy(labels.astype(np.int64))


def bipartite_components(A: Symmetric) -> int:
    """How many components have an edge and fall into two halves without an edge inside, by a search."""
    matrix, labels = _csr(A), components_of(A)[1].numpy()
    side = np.zeros(A.num_nodes, dtype=np.int64)
    for first in np.unique(labels, return_index=True)[1]:
        order, before = breadth_first_order(matrix, int(first), directed=False)
        for node in order[1:]:
            side[node] = 1 - side[before[node]]
    row, column = A.where.row.cpu().numpy(), A.where.column.cpu().numpy()
    inside = set(labels[row[side[row] == side[column]]].tolist())
    return len(set(labels[row].tolist()) - inside)


def _values(A: Symmetric, how: str) -> Tensor:
    L = laplacian(A, normalization="symmetric" if how == "symmetric" else "none")
    return torch.linalg.eigvalsh(L.dense())


def components(subject: Subject) -> Finding:
    """Whether 0 is as often an eigenvalue of D - A as the graph has components.

    Args:
        subject: A model of graphs, of a limited number of nodes.
    """
    graph, reference = asked(subject), f"{BOOK}, Lemma 1.7"
    if graph.A is None:
        return unfounded(graph, "0 is an eigenvalue of D - A once for each component.", reference)
    values, (count, _) = _values(graph.A, "none"), components_of(graph.A)
    zeros = int((values.abs() <= _rounding(values)).sum())
    least = values[values > _rounding(values)]
    above = f"The least other eigenvalue is {float(least[0]):.4g}." if len(least) else "There is no other."
    promised = torch.tensor(float(count), dtype=torch.float64)
    return Finding(
        statement=f"0 is an eigenvalue of D - A once for each component of the graph. {above}",
        value=torch.tensor(float(zeros), dtype=torch.float64),
        unit="eigenvalues",
        range=(0.0, float(graph.A.num_nodes)),
        equals=promised,
        tolerance=1e-9,
        premises=(graph.premise,),
        reference=reference,
        failure="" if bool(values.isfinite().all()) else "an eigenvalue is not finite",
    )


def _rounding(values: Tensor) -> float:
    """Below this an eigenvalue is 0: the error of LAPACK's, with room."""
    return 10 * len(values) * EPS * max(1.0, float(values.abs().max())) if len(values) else 0.0


def interval(subject: Subject) -> Finding:
    """Whether the normalized Laplacian's spectrum lies in [0, 2].

    Args:
        subject: A model of graphs, of a limited number of nodes.
    """
    graph, reference = asked(subject), f"{BOOK}, Lemma 1.7"
    statement = "The eigenvalues of the normalized Laplacian lie between 0 and 2: the least and the largest."
    if graph.A is None:
        return unfounded(graph, statement, reference)
    values = _values(graph.A, "symmetric")
    return Finding(
        statement=statement,
        value=values[[0, -1]],
        range=(-math.inf, math.inf),
        low=ZERO,
        high=TWO,
        tolerance=10 * len(values) * EPS,
        labels=("least", "largest"),
        premises=(graph.premise,),
        reference=reference,
    )


def bipartite(subject: Subject) -> Finding:
    """Whether 2 is as often an eigenvalue of the normalized Laplacian as components are bipartite.

    Args:
        subject: A model of graphs, of a limited number of nodes.
    """
    graph, reference = asked(subject), f"{BOOK}, Lemma 1.7"
    statement = (
        "2 is an eigenvalue of the normalized Laplacian once for each component whose nodes fall into "
    )
    statement += "two halves without an edge inside."
    if graph.A is None:
        return unfounded(graph, statement, reference)
    values = _values(graph.A, "symmetric")
    promised = torch.tensor(float(bipartite_components(graph.A)), dtype=torch.float64)
    return Finding(
        statement=statement,
        value=((values - 2).abs() <= _rounding(values)).sum().double(),
        unit="eigenvalues",
        range=(0.0, float(graph.A.num_nodes)),
        equals=promised,
        tolerance=1e-9,
        premises=(graph.premise,),
        reference=reference,
        failure="" if bool(values.isfinite().all()) else "an eigenvalue is not finite",
    )


def energy(subject: Subject) -> Finding:
    """Whether x' L x is the sum of a (x_n - x_m)^2 over the edges, for features and for random signals.

    Args:
        subject: A model of graphs.
    """
    graph, reference = asked(subject), f"{BOOK}, Section 1.2"
    statement = (
        "x' L x is the sum of the squared differences along edges: the error, in parts of x' D x, of the "
    )
    statement += "features of the nodes and of random signals."
    if graph.A is None:
        return unfounded(graph, statement, reference)
    drawn = torch.randn(len(graph.x), 8, dtype=torch.float64, generator=Generator().manual_seed(0))
    x = torch.cat((graph.x, drawn.to(graph.x)), 1)
    through, along = (x * (laplacian(graph.A) @ x)).sum(0), dirichlet_energy(graph.A, x)
    scale = (graph.A.row_sums()[:, None] * x.square()).sum(0)
    error = (through - along).abs() / torch.where(scale > 0, scale, 1.0)
    return Finding(
        statement=statement,
        value=error.max().cpu(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-12,
        premises=(graph.premise,),
        reference=reference,
    )


def orthogonality(subject: Subject) -> Finding:
    """Whether the graph Fourier transform keeps lengths, is inverted, and diagonalizes the Laplacian.

    Args:
        subject: A model of graphs, of a limited number of nodes.
    """
    graph = asked(subject)
    reference = "Shuman et al. 2013, Section II.C"
    if graph.A is None:
        return unfounded(graph, "U' U = I and L = U Lambda U'.", reference)
    L = laplacian(graph.A, normalization="symmetric")
    values, U = spectrum(L)
    x = torch.randn(len(U), 4, dtype=torch.float64, generator=Generator().manual_seed(0)).to(U)
    dense, several = L.dense(), eigenspaces(values)
    repeated = int(several[several > 1].sum())
    errors = (
        (U.T @ U - torch.eye(len(U)).to(U)).abs().max(),
        (U * values @ U.T - dense).abs().max(),
        (transform(U, x).norm(dim=0) / x.norm(dim=0) - 1).abs().max(),
    )
    return Finding(
        statement="The eigenvectors of the normalized Laplacian are orthonormal, give it back, and their "
        f"transform keeps lengths: the largest errors. {repeated:,} of {len(U):,} eigenvalues repeat: there "
        "the basis is free, and with it the convolution of two signals, though no filter.",
        value=torch.stack(errors).cpu(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=10 * max(len(U), 10) * EPS,
        labels=("U' U - I", "U Lambda U' - L", "|U' x| / |x| - 1"),
        premises=(graph.premise,),
        reference=reference,
    )


def frequency(subject: Subject) -> Finding:
    """How quickly features, labels and outputs change along edges: their mean eigenvalue, weighted by energy.

    That is tr X' L X / tr X' X with the normalized Laplacian, 0 for what is constant up to the root of the
    degree, about 1 for noise, 2 for what changes sign along every edge. Labels and outputs are taken where
    a batch has a node's label; of both, and of the features, the mean over nodes is taken away first.

    Args:
        subject: A model of graphs.
    """
    graph = asked(subject)
    reference = "Shuman et al. 2013, Section II.D"
    statement = "How quickly signals change along edges: the mean eigenvalue of the normalized Laplacian, "
    statement += "weighted by their energy (0 smooth, about 1 noise, 2 opposite along every edge)."
    if graph.A is None:
        return unfounded(graph, statement, reference)
    L = laplacian(graph.A, normalization="symmetric")
    found = {name: _centered(signal) for name, signal in signals_of(subject, graph).items()}
    kept = {name: signal for name, signal in found.items() if float(signal.square().sum()) != 0}
    means = [(signal * (L @ signal)).sum() / signal.square().sum() for signal in kept.values()]
    curves: dict[str, Tensor] = {}
    if L.num_nodes <= MOST_NODES and kept:
        values, U = spectrum(L)
        curves["graph eigenvalue"] = values
        for name, signal in kept.items():
            curves[f"energy of {name}"] = transform(U, signal).square().sum(1) / signal.square().sum()
    return Finding(
        statement=statement,
        value=torch.stack(means).cpu() if means else torch.full((), math.nan, dtype=torch.float64),
        unit="eigenvalue",
        range=(0.0, 2.0),
        labels=tuple(kept),
        premises=(graph.premise,),
        reference=reference,
        curves=curves,
        failure="" if kept else "the features of all nodes are alike",
    )


def _centered(x: Tensor) -> Tensor:
    return x - x.mean(0)


@torch.no_grad()
def signals_of(subject: Subject, graph: Asked) -> Mapping[str, Tensor]:
    """Features, and of a model of nodes its outputs and the labels as far as the batch tells them."""
    found, batch = {"features": graph.x}, subject.test[0]
    if not is_node_model(subject):
        return found
    model = in_double(subject.model)
    with eval_mode(model):
        outputs = model(*first_inputs(subject))
    found["outputs"] = outputs.reshape(len(graph.x), -1)
    if subject.task.classes is not None and batch.targets is not None and batch.weight is not None:
        known = batch.weight > 0
        if bool(known.all()):
            found["labels"] = torch.nn.functional.one_hot(batch.targets.long()).to(graph.x)
    return found


def demo() -> Subject:
    """A small ChebNet on a circle of 6 nodes, one of 5, a path of 4 and a node alone."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = chebnet(3, 0, 2, hidden=4).eval()
    edge_index = torch.cat((cycle(6), cycle(5) + 6, path(4) + 11), 1)
    x = torch.randn(16, 3, generator=Generator().manual_seed(0))
    inputs = (x, edge_index, torch.zeros(edge_index.shape[1], 0), torch.tensor([16]))
    batch = Batch(inputs, torch.arange(16) % 2, torch.ones(16))
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES), independent=False)
