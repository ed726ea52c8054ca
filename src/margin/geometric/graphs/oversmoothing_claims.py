"""How fast a graph makes its nodes alike, and how alike the layers have made them (Cai and Wang 2020)."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional as F

from margin.core.findings import Finding, Premise, Subject
from margin.geometric.graphs.layers import captured_layers, first_inputs
from margin.geometric.graphs.oversmoothing import (
    Smoothing,
    dirichlet_energy,
    distances,
    limit,
    rate,
    smoothing_of,
)

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
    chosen = order[torch.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().long()]
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
        reference="Li, Han and Wu 2018, Theorem 1; Oono and Suzuki 2020, Section 3",
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
        reference="Cai and Wang 2020, Section 3",
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
