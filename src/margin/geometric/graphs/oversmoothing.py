r"""Oversmoothing: propagated features forget all but the degree, one number a component (Li et al. 2018).

For an undirected graph of weights at least 0 :math:`\hat A = D^{-1/2} (A + I) D^{-1/2}` has the eigenvalue 1
once a component c, with :math:`u_c = D^{1/2} 1_c`; every other lies in (-1, 1). So

.. math:: \hat A^k X \to \sum_c \frac{u_c u_c^\top}{\lVert u_c \rVert^2} X, \qquad
    \lVert \hat A^k X - \mathrm{limit} \rVert \le r^k \lVert X - \mathrm{limit} \rVert, \quad
    r = \max_{\lambda \ne 1} |\lambda|.

Nodes do not approach one value but one times the root of d_m = 1 + deg(m), in each component its own.

The coupling matrix of graph convolutions (Kipf and Welling 2017).

.. math:: \hat A = D^{-1/2} (A + I) D^{-1/2}, \qquad d_i = 1 + \textstyle\sum_j a_{ij}

Its rows do not sum to 1 unless all degrees are equal, so it does not average; its spectral norm is 1 for
undirected graphs of non-negative weights.

How fast a graph makes its nodes alike, and how alike the layers have made them (Cai and Wang 2020).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.layers import captured_layers, first_inputs
from margin.geometric.graphs.message_passing import components
from margin.geometric.graphs.sparsity import coupling_matrix
from margin.math.evenly import evenly
from margin.theory.curvature.eigenpairs import leading_eigenpairs
from margin.theory.curvature.lanczos import random_direction

Features = Float[Tensor, "nodes features"]

DENSE = 512
"""Nodes of graphs whose whole spectrum is computed."""

TOLERANCE = 1e-6
"""Residual of the eigenvalue that Lanczos finds on larger ones."""


class Smoothing(NamedTuple):
    """A coupling matrix with what its powers tend to.

    Args:
        matrix: A_hat (M, M), sparse, float64.
        root: sqrt(d_m) of each node, the eigenvectors of 1 put together.
        component: The component of each node, 0 .. C-1.
    """

    matrix: Tensor
    root: Float[Tensor, " nodes"]
    component: Int[Tensor, " nodes"]


def smoothing_of(
    edge_index: Int[Tensor, "2 edges"], num_nodes: int, weight: Float[Tensor, " edges"] | None = None
) -> Smoothing:
    """A_hat = D^{-1/2} (A + I) D^{-1/2} of an undirected graph, d_m = 1 + the weights that lead to m.

    A loop of weight w becomes one of w + 1, and several edges between two nodes add up.

    Args:
        edge_index: Sources and targets; every edge in both directions.
        num_nodes: M.
        weight: Of each edge, at least 0; None: 1.

    Raises:
        ValueError: A weight is negative, or an edge has no like in the other direction.
    """
    edges = edge_index.cpu()
    own = (
        torch.ones(edges.shape[1], dtype=torch.float64) if weight is None else weight.detach().cpu().double()
    )
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # else torch warns that it does not
        matrix = coupling_matrix(edges, num_nodes, own)
    back = matrix.t().coalesce()
    alike = torch.equal(back.indices(), matrix.indices())
    if not alike or not torch.allclose(back.values(), matrix.values(), rtol=1e-6, atol=0):
        raise ValueError("the graph must be undirected: an edge has no like in the other direction")
    root = own.new_ones(num_nodes).index_add_(0, edges[1], own).sqrt()
    return Smoothing(matrix, root, components(edges, num_nodes))


def limit(smoothing: Smoothing, x: Features) -> Features:
    """What A_hat^k X tends to: in each component the projection of X on the root of the degrees."""
    _, root, component = smoothing
    count = int(component.max()) + 1 if len(component) else 0
    length = root.new_zeros(count).index_add_(0, component, root.square())
    along = x.new_zeros(count, x.shape[1]).index_add_(0, component, root[:, None] * x)
    return root[:, None] * (along / length[:, None])[component]


def dirichlet_energy(smoothing: Smoothing, x: Features) -> float:
    r"""How unlike neighbors are, each divided by the root of its degree.

    .. math:: E(X) = \frac12 \sum_{mn} a_{mn} \lVert x_m / \sqrt{d_m} - x_n / \sqrt{d_n} \rVert^2

    That is tr X^T (I - A_hat) X with d_m = 1 + deg(m); it is computed so. 0 exactly at the limit.

    Reference: Cai and Wang 2020, Section 3.
    """
    return float((x * (x - smoothing.matrix @ x)).sum())


class Rate(NamedTuple):
    """The largest magnitude of an eigenvalue that is no component's 1, with its error.

    ``signed`` is that eigenvalue; ``error`` its residual, 0 where the whole spectrum was computed.
    """

    value: float
    signed: float
    error: float
    converged: bool


def rate(smoothing: Smoothing) -> Rate:
    """The rate r = max |lambda| over the eigenvalues of A_hat but one 1 for each component.

    The eigenvectors of those ones are known, and projected away. Up to :data:`DENSE` nodes the whole spectrum
    is computed, beyond by Lanczos with restarts. 0 where no other eigenvalue is: all nodes are isolated.
    """
    count = len(smoothing.root)

    def product(v: Tensor) -> Tensor:
        return (smoothing.matrix @ v[:, None] - limit(smoothing, v[:, None]))[:, 0]

    if count <= DENSE:
        eye = torch.eye(count, dtype=torch.float64)
        values = torch.linalg.eigvalsh(smoothing.matrix @ eye - limit(smoothing, eye))
        signed = float(values[values.abs().argmax()])
        return Rate(abs(signed), signed, 0.0, True)
    start = random_direction(count)
    found = leading_eigenpairs(product, start, 1, by="magnitude", tol=TOLERANCE, max_products=3000)
    signed = float(found.values[0])
    return Rate(abs(signed), signed, float(found.residuals[0]), found.converged)


def distances(smoothing: Smoothing, x: Features, depth: int) -> Float[Tensor, " depths"]:
    """|A_hat^k X - limit| in the Frobenius norm for k = 0 .. depth."""
    end = limit(smoothing, x)
    gap, norms = x - end, []
    for _ in range(depth + 1):
        norms.append(gap.norm())
        # the limit is kept by A_hat: what rounding puts back along it is taken away again
        gap = smoothing.matrix @ gap
        gap = gap - limit(smoothing, gap)
    return torch.stack(norms)


DEPTHS = (1, 2, 4, 8, 16, 32, 64)
"""Propagations after which what is left is looked at."""

SIGNALS = 8
"""Random combinations of the features that are followed."""

SHOWN = 160
"""Nodes whose colors are drawn."""

ROUNDING = 1e-9
SMALLEST = 1e-12
"""What is left of features, in parts of them, below which rounding alone is seen."""

NAN = torch.full((1,), math.nan, dtype=torch.float64)


def on_the_graph(subject: Subject) -> tuple[Smoothing | None, Premise]:
    """The coupling matrix of the first batch's graph, every edge of weight 1; None where it is directed."""
    x, edge_index, _, _ = first_inputs(subject)
    text = "the graph is undirected"
    try:
        found = smoothing_of(edge_index, len(x))
    except ValueError as error:
        return None, Premise(text, "refuted", str(error))
    return found, Premise(text, "proved", "every edge has its like in the other direction")


def grey(smoothing: Smoothing, states: list[Tensor], scale: list[float]) -> dict[str, Tensor]:
    """Colors of nodes, a row a depth: three directions in which they differ from the limit; grey is none.

    Args:
        smoothing: The graph.
        states: Features of all nodes at each depth.
        scale: What counts as a full color at each depth.
    """
    order = torch.argsort(smoothing.component, stable=True)
    chosen = order[evenly(len(order), SHOWN)]
    rows, before = [], None
    for state, unit in zip(states, scale, strict=True):
        gap = (state - limit(smoothing, state)) / smoothing.root[:, None]
        _, axes = torch.linalg.eigh(gap.T @ gap)
        colors = F.pad(
            gap @ axes[:, -3:] / unit if unit > 0 else 0 * gap[:, :3], (0, max(0, 3 - gap.shape[1]))
        )
        if before is not None:  # directions have no order and no sign: as near to the row above as can be
            U, _, V = torch.linalg.svd(colors.T @ before)
            colors = colors @ (U @ V)
        before = colors
        rows.append(0.5 + 0.5 * colors[chosen].clamp(-1, 1))
    return {"smoothing colors": torch.stack(rows)}


def spread(smoothing: Smoothing, state: Tensor) -> float:
    """The typical size of a node's features, divided by the root of its degree."""
    return 2 * float((state / smoothing.root[:, None]).square().sum(1).mean().sqrt())


def contraction(subject: Subject, *, seed: int = 2018) -> Finding:
    """The factor by which a propagation brings the features nearer to their limit, against the graph's rate.

    Args:
        subject: A model of graphs; the graph and the features are those of the first held-out batch.
        seed: Seed of the random combinations of features that are followed.
    """
    smoothing, premise = on_the_graph(subject)
    value, high, error, failure, curves = NAN.expand(len(DEPTHS)), math.nan, 0.0, "", {}
    words = ""
    if smoothing is not None:
        x = first_inputs(subject)[0].detach().cpu()
        mix = torch.randn(x.shape[1], SIGNALS, generator=Generator().manual_seed(seed), dtype=x.dtype)
        x = x @ mix
        found = rate(smoothing)
        gaps = distances(smoothing, x, max(DEPTHS))
        high, error = found.value, found.error
        value = torch.stack([(gaps[k] / gaps[0]) ** (1 / k) for k in DEPTHS])
        failure = "" if found.converged else "the Lanczos process has not converged"
        if float(gaps[0]) <= SMALLEST * float(x.norm()):
            failure = "the features are at their limit already"
        curves = _curves(smoothing, x, gaps, found.value)
        parts = int(smoothing.component.max()) + 1
        half = math.log(2) / -math.log(found.value) if 0 < found.value < 1 else 0.0
        words = (
            f" The graph has {parts:,} components and the rate {found.value:.5f}: what tells nodes apart is "
            f"halved in {half:.3g} propagations at the slowest."
        )
    return Finding(
        statement="Propagated by the coupling matrix, features approach the root of the degree times one "
        f"number a component, a propagation by at most the rate, the largest |eigenvalue| below 1.{words}",
        value=value,
        unit="factor a propagation",
        range=(0.0, 1.0),
        high=torch.tensor(high, dtype=torch.float64),
        tolerance=ROUNDING + error,
        labels=tuple(f"in {k}" for k in DEPTHS),
        failure=failure,
        premises=(premise,),
        curves=curves,
    )


def _curves(smoothing: Smoothing, x: Tensor, gaps: Tensor, slowest: float) -> dict[str, Tensor]:
    states, state, depths = [x], x, (0, *DEPTHS)
    for k in range(1, max(DEPTHS) + 1):
        state = smoothing.matrix @ state
        states += [state] if k in DEPTHS else []
    unit = spread(smoothing, x - limit(smoothing, x))
    steps = torch.arange(len(gaps), dtype=torch.float64)
    return {
        "propagations": steps,
        "left of the differences": gaps / gaps[0],
        "rate to that power": slowest**steps,
        **grey(smoothing, states, [unit] * len(states)),
        "smoothing depths": torch.tensor(depths),
    }


def energy(subject: Subject) -> Finding:
    """What a propagation leaves of the Dirichlet energy of each layer's features; energy by depth is drawn.

    Args:
        subject: A model of graphs with layers that pass messages.
    """
    calls = captured_layers(subject).calls
    smoothing, premise = on_the_graph(subject)
    states: list[Tensor] = [
        *(call.x.cpu() for call in calls),
        *(call.gave.detach().cpu() for call in calls[-1:]),
    ]
    labels = [f"read by {call.name}" for call in calls] + [f"given by {call.name}" for call in calls[-1:]]
    value, high, error, failure, curves, words = NAN.expand(len(states)), math.nan, 0.0, "", {}, ""
    if smoothing is not None:
        found = rate(smoothing)
        high, error = found.value**2, 2 * found.error
        value = torch.tensor([_left(smoothing, state) for state in states], dtype=torch.float64)
        shares = torch.tensor([_share(smoothing, state) for state in states], dtype=torch.float64)
        failure = "" if found.converged else "the Lanczos process has not converged"
        first, last = shares[0].item(), shares[-1].item()
        words = f" In parts of their square the energy is {first:.3g} at first, {last:.3g} at last."
        curves = {
            "layers": torch.arange(len(states), dtype=torch.float64),
            "energy in parts of the square": shares,
            **grey(smoothing, states, [spread(smoothing, state) for state in states]),
            "smoothing depths": torch.arange(len(states)),
        }
    return Finding(
        statement="A propagation leaves of the Dirichlet energy, how unlike neighbors are, at most the "
        f"square of the graph's rate, whatever the features: those of each layer.{words}",
        value=value,
        unit="energy before",
        range=(0.0, 1.0),
        high=torch.tensor(high, dtype=torch.float64),
        tolerance=ROUNDING + error,
        labels=tuple(labels),
        failure=failure,
        premises=(premise,),
        curves=curves,
    )


def _left(smoothing: Smoothing, state: Float[Tensor, "nodes features"]) -> float:
    """E(A_hat X) / E(X): 0 where nothing but rounding is left of the energy."""
    gap = state - limit(smoothing, state)
    if not bool(state.isfinite().all()):
        return math.nan
    if float(gap.norm()) <= SMALLEST * float(state.norm()):
        return 0.0
    return dirichlet_energy(smoothing, smoothing.matrix @ gap) / dirichlet_energy(smoothing, gap)


def _share(smoothing: Smoothing, state: Float[Tensor, "nodes features"]) -> float:
    """E(X) / |X|^2, in [0, 2)."""
    total = float(state.square().sum())
    return dirichlet_energy(smoothing, state - limit(smoothing, state)) / total if total else 0.0
