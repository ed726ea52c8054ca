"""Curvature of the training loss at the trained weights: the ends of the Hessian's spectrum, and its trace.

Hochreiter and Schmidhuber (1997) asked how flat a minimum is; the largest eigenvalue of the Hessian is one
measure. It depends on the parametrization (Dinh et al. 2017): scaling one layer up and the next one down
changes it and not the function.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.findings import Finding, Premise, Subject
from margin.tasks import VALUES
from margin.theory.diagonal import FEW, as_matrix
from margin.theory.hessian import MEMORY, RiskHessian, SquareMap, risk_hessian
from margin.theory.lanczos import Extremes, extreme_eigenvalues
from margin.theory.leading import ROWS, leading_eigenpairs
from margin.theory.trace import deflated_trace, half_width, hutchinson_trace
from margin.types import Batch

UNIT = "loss / weight^2"
SMOOTH = Premise(
    "the loss is twice differentiable at the weights",
    "assumed",
    "kinks (ReLU, max pooling) have a second derivative of 0 almost everywhere and none on the kink",
)


NO_LOSS = "the loss is not finite"


class Sample(NamedTuple):
    """The examples whose risk is differentiated, and how a statement calls them."""

    batches: Sequence[Batch]
    words: str


def differentiated(subject: Subject, examples: int | None) -> Sample:
    """The training batches, or the held-out ones where those are not known; at most about ``examples``.

    Of many batches, whole ones at equal distances are taken.

    Raises:
        ValueError: ``examples`` is below 1, or the subject has no batch.
    """
    if examples is not None and examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    batches = subject.train or subject.test
    kind = "training" if subject.train else "held-out (the training ones are not known)"
    if not len(batches):
        raise ValueError("curvature needs examples: the subject has none")
    size = len(batches[0].inputs[0])
    taken = len(batches) if examples is None else max(1, examples // max(size, 1))
    if taken >= len(batches):
        return Sample(batches, f"all {kind} examples")
    batches = [batches[i * len(batches) // taken] for i in range(taken)]
    count = sum(len(batch.inputs[0]) for batch in batches)
    return Sample(batches, f"{count:,} of the {kind} examples")


@contextmanager
def hessian_of(subject: Subject, examples: int | None, memory: int) -> Iterator[tuple[RiskHessian, str]]:
    """The Hessian of a subject's mean loss, and how a statement calls its examples.

    The arguments are those of :func:`sharpness`.
    """
    sample = differentiated(subject, examples)
    with risk_hessian(
        subject.model, sample.batches, subject.objective, independent=subject.independent, memory=memory
    ) as hessian:
        yield hessian, sample.words


def vectors_within(dim: int, memory: int, itemsize: int, *, least: int, most: int) -> int:
    """How many vectors fit in half of the memory, between ``least`` and ``most``."""
    return min(most, max(least, memory // 2 // max(dim * itemsize, 1)))


def sharpness(
    subject: Subject,
    *,
    tol: float = 1e-2,
    max_iterations: int = 100,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """The largest and smallest eigenvalues of the Hessian of the mean training loss.

    Each comes with the residual |Hv - lambda v|, within which an eigenvalue lies. A negative smallest
    eigenvalue says that the weights are not at a minimum.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        tol: Largest residual, relative to the larger magnitude of the two, above 0.
        max_iterations: Lanczos steps after which the finding fails.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    with hessian_of(subject, examples, memory) as (hessian, words):
        start = hessian.start()
        found = extreme_eigenvalues(hessian, start, tol=tol, max_iterations=max_iterations, share=0.5)
    return Finding(
        statement=f"The extreme eigenvalues of the Hessian of the mean loss over {words}, by "
        f"{hessian.dim:,} parameters, after {found.iterations} Lanczos steps.",
        value=found.values,
        unit=UNIT,
        range=(-math.inf, math.inf),
        premises=(SMOOTH, _extreme(found)),
        reference="Parlett 1980, Theorem 4.5.1 (an eigenvalue lies within the residual); Lanczos 1950",
        kind="estimate",
        interval=(found.values - found.residuals, found.values + found.residuals),
        failure=_failure(found, tol) if hessian.finite else NO_LOSS,
        labels=("largest", "smallest"),
        curves={"ritz values": found.ritz, "weights": found.weights},
    )


def _extreme(found: Extremes) -> Premise:
    text = "no eigenvalue lies beyond the ends found"
    if found.missed == 0:
        return Premise(text, "proved", "the Krylov space is the whole space")
    return Premise(
        text,
        "assumed" if math.isinf(found.missed) else "sampled",
        f"with probability 0.9999 over the start vector none lies further than {found.missed:.3g} beyond, "
        "whatever the spectrum (Kuczynski and Wozniakowski 1992, Theorem 4.2)",
    )


def _failure(found: Extremes, tol: float) -> str:
    if found.converged:
        return ""
    if not bool(found.values.isfinite().all()):
        return "a product with the Hessian is not finite"
    worst = float(found.residuals.max())
    return f"the residual is {worst:.3g} after {found.iterations} Lanczos steps, above the tolerance {tol:g}"


def leading(
    subject: Subject,
    *,
    count: int = 5,
    tol: float = 1e-2,
    max_products: int = 300,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """The eigenvalues of largest magnitude of the Hessian of the mean training loss.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        count: How many, at least 1; all, where the model has fewer parameters.
        tol: Largest residual, relative to the largest magnitude, above 0.
        max_products: Products with the Hessian after which the finding fails.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    with hessian_of(subject, examples, memory) as (hessian, words):
        start = hessian.start()
        count = min(count, hessian.dim)
        rows = vectors_within(hessian.dim, memory, start.element_size(), least=count + 2, most=ROWS)
        found = leading_eigenpairs(
            hessian, start, count, tol=tol, max_products=max_products, rows=max(rows, count + 2)
        )
    failure = "" if found.converged else _unsettled(found.values, found.residuals, found.products, tol)
    return Finding(
        statement=f"The {count} eigenvalues of largest magnitude of the Hessian of the mean loss over "
        f"{words}, by {hessian.dim:,} parameters, after {found.products} products with it.",
        value=found.values,
        unit=UNIT,
        range=(-math.inf, math.inf),
        premises=(SMOOTH,),
        reference="Wu and Simon 2000, Algorithm 3; Parlett 1980, Theorem 4.5.1",
        kind="estimate",
        interval=(found.values - found.residuals, found.values + found.residuals),
        failure=failure if hessian.finite else NO_LOSS,
        labels=tuple(f"eigenvalue {i + 1}" for i in range(count)),
        curves={"leading eigenvalues": found.values},
    )


def _unsettled(values: Tensor, residuals: Tensor, products: int, tol: float) -> str:
    if not bool(values.isfinite().all()):
        return "a product with the Hessian is not finite"
    worst = float(residuals.max())
    return f"the residual is {worst:.3g} after {products} products, above the tolerance {tol:g}"


class Summed(NamedTuple):
    """A trace with an interval, how it was found, and the draws of which it is the mean, if any."""

    value: Tensor
    half: Tensor
    words: str
    draws: Tensor


def trace_of(hessian: SquareMap, rank: int, probes: int, memory: int) -> Summed:
    """The trace of a curvature matrix: exact for few parameters, else with large eigenvalues deflated."""
    dim, dtype, device = hessian.dim, hessian.dtype, hessian.device
    if dim <= FEW:
        A = as_matrix(hessian, dim, dtype=dtype, device=device)
        # What rounding leaves antisymmetric says how large it is.
        return Summed(A.trace(), (A - A.T).norm(), "written down", torch.zeros(0))
    generator = Generator().manual_seed(1990)
    rank = vectors_within(3 * dim, memory, dtype.itemsize, least=0, most=rank)
    if rank == 0:
        value, stderr, draws = hutchinson_trace(
            hessian, dim, generator, probes=probes, dtype=dtype, device=device
        )
        return Summed(value, half_width(stderr, probes), f"from {probes} probes", draws)
    value, stderr, draws = deflated_trace(
        hessian, dim, generator, rank=rank, probes=probes, dtype=dtype, device=device
    )
    words = f"{rank} of its directions taken exactly, the rest from {probes} probes"
    return Summed(value, half_width(stderr, probes), words, draws)


def trace(
    subject: Subject,
    *,
    rank: int = 16,
    probes: int = 48,
    examples: int | None = 256,
    memory: int = MEMORY,
) -> Finding:
    """The trace of the Hessian of the mean training loss: the sum of its eigenvalues, with its error.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        rank: Directions whose part is taken exactly, where they fit in memory; at least 1.
        probes: Random sign vectors for the rest, at least 2; their seed is fixed.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    with hessian_of(subject, examples, memory) as (hessian, words):
        found = trace_of(hessian, rank, probes, memory)
    broken = "" if bool(found.value.isfinite()) else "a product with the Hessian is not finite"
    return Finding(
        statement=f"The trace of the Hessian of the mean loss over {words}, by {hessian.dim:,} "
        f"parameters, {found.words}.",
        value=found.value,
        unit=UNIT,
        range=(-math.inf, math.inf),
        premises=(SMOOTH,),
        reference="Meyer, Musco, Musco and Woodruff 2021, Algorithm 1; Hutchinson 1990, Proposition 1",
        kind="estimate",
        interval=(found.value - found.half, found.value + found.half),
        failure=broken if hessian.finite else NO_LOSS,
        curves={"quadratic forms": found.draws} if len(found.draws) else {},
    )


class Quadratic(nn.Module):
    """The function w' A w / 2 of its weights, whatever the input: its Hessian is A.

    Args:
        A: A symmetric matrix.
    """

    def __init__(self, A: Tensor) -> None:
        super().__init__()
        self.register_buffer("A", A)
        self.w = nn.Parameter(torch.ones(len(A), dtype=A.dtype))

    def forward(self, x: Tensor) -> Tensor:
        """The same value for every example."""
        return (self.w @ self.get_buffer("A") @ self.w / 2).expand(len(x))


def demo() -> Subject:
    """The spectrum {3, -3, 0.1}, on axes that are not the coordinates': trace 0.1."""
    u = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64) / 3
    reflection = torch.eye(3, dtype=torch.float64) - 2 * torch.outer(u, u)
    A = reflection @ torch.diag(torch.tensor([3.0, -3.0, 0.1], dtype=torch.float64)) @ reflection
    zeros = torch.zeros(4, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    return Subject(
        model=Quadratic(A),
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
    )
