"""What graph filters promise (Defferrard et al. 2016): form in the eigenbasis, reach, scale."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import expm_multiply
from torch import Generator, Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.layers import probed
from margin.geometric.graphs.message_passing import steps_to
from margin.geometric.spectral.chebnet import ChebConv
from margin.geometric.spectral.filter_calls import Asked, filters, gain, spectral_output
from margin.geometric.spectral.filters import spectral_filter
from margin.geometric.spectral.graph_fourier import spectrum
from margin.geometric.spectral.laplacian import Symmetric, laplacian
from margin.geometric.spectral.laplacian_claims import demo as laplacian_demo
from margin.geometric.spectral.operators import rescaled_of
from margin.geometric.spectral.subjects import EPS, ZERO, asked, unfounded
from margin.theory.curvature.lanczos import End, extreme_eigenvalues, random_direction

TIME = 1.0
"""For which heat diffuses."""


@torch.no_grad()
def spectral_form(subject: Subject) -> Finding:
    """Whether each filter is what its response in the eigenbasis says.

    Args:
        subject: A model with filters, on a graph of a limited number of nodes.
    """
    reference = "Defferrard et al. 2016, Section 2.1"
    statement = "A filter is U g(Lambda) U' of its input, g the polynomial or spline that its coefficients "
    statement += "say: the largest difference, in parts of the largest output."
    if (graph := asked(subject)).A is None:
        return unfounded(graph, statement, reference)
    errors, names = [], []
    for one in filters(subject):
        expected = spectral_output(one)
        own = one.call.ask(one.call.x)
        errors.append((own - expected).abs().max() / expected.abs().max().clamp(min=1.0))
        names.append(one.name)
    return Finding(
        statement=statement,
        value=torch.stack(errors).cpu(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-8,
        labels=tuple(names),
        premises=(graph.premise,),
        reference=reference,
    )


@torch.no_grad()
def passed(subject: Subject) -> Finding:
    """Which frequencies each filter lets through: the mean eigenvalue, weighted by its squared gain.

    Args:
        subject: A model with filters, on a graph of a limited number of nodes.
    """
    reference = "Shuman et al. 2013, Section III.A"
    statement = "Which frequencies a filter lets through: the mean eigenvalue, weighted by the square of the "
    statement += "most that it multiplies a signal of this eigenvalue by."
    if (graph := asked(subject)).A is None:
        return unfounded(graph, statement, reference)
    means, names = [], []
    curves: dict[str, Tensor] = {}
    for one in filters(subject):
        values = torch.linalg.eigvalsh(one.L.dense())
        own = gain(one, values)
        means.append((own.square() @ values / own.square().sum()).cpu())
        names.append(one.name)
        curves[f"response of {one.name}"] = own.cpu()
        curves.setdefault("graph eigenvalue", values.cpu())
    return Finding(
        statement=statement,
        value=torch.stack(means),
        unit="eigenvalue",
        range=(0.0, math.inf),
        labels=tuple(names),
        premises=(graph.premise,),
        reference=reference,
        curves=curves,
    )


def reach(subject: Subject) -> Finding:
    """From how far away each filter reads: the most edges to a node with a derivative that is not exactly 0.

    Args:
        subject: A model with filters.
    """
    reference = "Hammond, Vandergheynst and Gribonval 2011, Lemma 5.2; Defferrard et al. 2016, Section 2.1"
    statement = "A polynomial of degree K in the Laplacian reads nodes at most K edges away: the farthest "
    statement += "with a derivative that is not exactly 0, at a few nodes."
    if (graph := asked(subject)).A is None:
        return unfounded(graph, statement, reference)
    farthest, names, orders, premises = [], [], [], []
    for one in filters(subject):
        farthest.append(farthest_read(one))
        names.append(one.name)
        orders.append(float(getattr(one.layer, "hops", math.inf)))
        premises.append(_is_polynomial(one))
    return Finding(
        statement=statement,
        value=torch.stack(farthest).double(),
        unit="edges",
        range=(0.0, math.inf),
        low=ZERO,
        high=torch.tensor(orders, dtype=torch.float64),
        labels=tuple(names),
        premises=(graph.premise, *premises),
        tolerance=1e-9,
        reference=reference,
    )


def farthest_read(one: Asked) -> Tensor:
    """The most edges from a node to one with a derivative that is not exactly 0; 0 where it reads none."""
    nodes = probed(len(one.call.x))
    steps = steps_to(torch.tensor(nodes, dtype=torch.int64), one.edges[0], len(one.call.x))
    x = one.call.x.requires_grad_()
    with torch.enable_grad():
        answer = one.call.ask(x)
        v = torch.randn(answer.shape[1], generator=Generator().manual_seed(0), dtype=answer.dtype).to(answer)
        rows = [
            torch.autograd.grad(answer[node] @ v, x, retain_graph=True)[0].abs().amax(1) for node in nodes
        ]
    read = torch.stack(rows).cpu()
    if bool(read.isnan().any()):
        return steps.new_full((), math.nan)
    reached = steps[read > 0]
    return reached.amax() if len(reached) else steps.new_zeros(())


def _is_polynomial(one: Asked) -> Premise:
    text = f"{one.name} is a polynomial of the Laplacian"
    if hasattr(one.layer, "hops"):
        return Premise(text, "proved", f"of degree {one.layer.hops}")
    return Premise(text, "refuted", f"{one.name} is a spline of the eigenvalue: it reads its component")


def rescaling(subject: Subject) -> Finding:
    """Whether the rescaled Laplacian's spectrum lies in [-1, 1], where no Chebyshev polynomial exceeds 1.

    Args:
        subject: A model with Chebyshev filters.
    """
    reference = "Defferrard et al. 2016, Section 2.1"
    statement = "The spectrum of the rescaled Laplacian lies in [-1, 1], where T_k is at most 1: its ends."
    if (graph := asked(subject)).A is None:
        return unfounded(graph, statement, reference)
    values, errors, names, failure = [], [], [], ""
    for one in filters(subject):
        if not isinstance(one.layer, ChebConv):
            continue
        ends, error, converged = _ends(_rescaled(one, one.layer))
        values.append(ends)
        errors.append(error)
        names += [f"{one.name}, {end}" for end in ("least", "largest")]
        failure = failure if converged else f"the eigenvalues of {one.name} have not converged"
    value, error = torch.cat(values), torch.cat(errors)
    return Finding(
        statement=statement,
        value=value,
        range=(-math.inf, math.inf),
        kind="estimate",
        interval=(value - error, value + error),
        low=-torch.ones((), dtype=torch.float64),
        high=torch.ones((), dtype=torch.float64),
        tolerance=1e-3,
        labels=tuple(names),
        premises=(graph.premise,),
        reference=reference,
        failure=failure,
    )


def _rescaled(one: Asked, layer: ChebConv) -> Symmetric:
    """The rescaled Laplacian as the layer makes it, in float64."""
    return rescaled_of(
        *one.edges,
        len(one.call.x),
        torch.float64,
        edge_weight=layer.edge_weight,
        normalization=layer.normalization,
        largest=layer.largest,
    )


def _ends(S: Symmetric) -> tuple[Tensor, Tensor, bool]:
    """The least and the largest eigenvalue, their errors, and whether they were found."""
    if S.num_nodes <= 512:
        values = torch.linalg.eigvalsh(S.dense())[[0, -1]].cpu()
        return values, torch.full_like(values, S.num_nodes * EPS), True
    start = random_direction(S.num_nodes, device=S.values.device)
    ends: tuple[End, End] = ("smallest", "largest")
    found = extreme_eigenvalues(
        lambda v: (S @ v[:, None])[:, 0], start, ends=ends, tol=2e-4, max_iterations=400
    )
    return found.values.cpu(), found.residuals.cpu(), found.converged


@torch.no_grad()
def heat(subject: Subject) -> Finding:
    """Whether the filter exp(-t lambda) is the exponential of the Laplacian.

    The exponential is applied by Al-Mohy and Higham's scaling of Taylor polynomials, without eigenvectors.

    Args:
        subject: A model of graphs, of a limited number of nodes.
    """
    graph, reference = (
        asked(subject),
        "Al-Mohy and Higham 2011, Algorithm 3.2; Shuman et al. 2013, Section III.A",
    )
    statement = (
        f"Filtering by exp(-t lambda) is the diffusion of heat exp(-t L) for t = {TIME:g}: the largest "
    )
    statement += "difference for random signals."
    if graph.A is None:
        return unfounded(graph, statement, reference)
    L = laplacian(graph.A, normalization="symmetric")
    x = torch.randn(L.num_nodes, 4, dtype=torch.float64, generator=Generator().manual_seed(0)).to(graph.x)
    respond: Callable[[Tensor], Tensor] = lambda values: torch.exp(-TIME * values)
    found = spectral_filter(spectrum(L), x, respond).cpu()
    parts = (part.cpu().numpy() for part in (-TIME * L.values, L.where.column, L.where.starts))
    values, column, starts = parts
    matrix = csr_array((values, column, starts), shape=(L.num_nodes, L.num_nodes))
    expected = torch.from_numpy(np.asarray(expm_multiply(matrix, x.cpu().numpy())))
    return Finding(
        statement=statement,
        value=(found - expected).abs().max(),
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=1e-9,
        premises=(graph.premise,),
        reference=reference,
    )


def demo() -> Subject:
    """A small ChebNet on a graph of four components."""
    return laplacian_demo()
