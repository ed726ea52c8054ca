"""Curvature of the training loss at the trained weights: the ends of the Hessian's spectrum, and its trace.

Hochreiter and Schmidhuber (1997) asked how flat a minimum is; the largest eigenvalue of the Hessian is one
measure. It depends on the parametrization (Dinh et al. 2017): scaling one layer up and the next one down
changes it and not the function.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, NotAsked, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.evaluation import sample_examples
from margin.theory.curvature.convex import eigenvalue_range
from margin.theory.curvature.eigenpairs import ROWS, leading_eigenpairs
from margin.theory.curvature.hessian import MEMORY, Products, RiskHessian, SquareMap, risk_hessian
from margin.theory.curvature.hutchinson import (
    FEW,
    as_matrix,
    deflated_trace,
    half_width,
    hutchinson_trace,
)
from margin.theory.curvature.lanczos import FEWEST, Extremes, extreme_eigenvalues
from margin.theory.curvature.twice_differentiable import twice_differentiable
from margin.theory.prediction.held_out import Terms, kept, limits_of

UNIT = "loss / weight^2"
NO_LOSS = "the loss is not finite"


MOST = 2048
"""Examples up to which curvature is that of the whole training loss."""

DRAWN = 1024
"""Examples that are drawn where there are more: the same for every claim, so that all are of one matrix."""

GROUPS = 8
"""Random samples from which the error of a trace is estimated, where not all examples are taken."""


class Sample(NamedTuple):
    """The examples whose risk is differentiated, how a statement calls them, and how a table does."""

    batches: Sequence[Batch]
    words: str
    mark: str = ""
    whole: bool = True


def differentiated(subject: Subject, examples: int | None, *, seed: int = 0) -> Sample:
    """The training batches, or the held-out ones where those are not known.

    All of up to 2,048 examples where ``examples`` is 1,024; else ``examples`` of them, drawn at random, or as
    many as the subject allows (``Subject.most``). The mark is "" for all training examples, and else says
    which: "held-out, 1,024 drawn".

    Args:
        subject: The model with its examples.
        examples: Examples to draw where there are more than twice as many; None: all.
        seed: Another seed draws others.

    Raises:
        ValueError: ``examples`` is below 1, or the subject has no batch.
    """
    if examples is not None and examples < 1:
        raise ValueError(f"examples must be at least 1: got {examples}")
    batches = subject.train or subject.test
    kind = "training" if subject.train else "held-out"
    if not len(batches):
        raise ValueError("curvature needs examples: the subject has none")
    few = subject.at_most(examples)
    found = sample_examples(batches, few, seed=seed, whole_batches=not subject.independent)
    if examples is not None and found.among <= min(examples * MOST // DRAWN, subject.most or found.among):
        found = sample_examples(batches, None)
    unknown = "" if subject.train else " (the training ones are not known)"
    marks = ("" if subject.train else "held-out", "" if found.whole else f"{found.taken:,} drawn")
    return Sample(found.batches, found.words(kind) + unknown, ", ".join(filter(None, marks)), found.whole)


@contextmanager
def hessian_of(
    subject: Subject, examples: int | None, memory: int, *, seed: int = 0
) -> Iterator[tuple[RiskHessian, Sample]]:
    """The Hessian of a subject's mean loss, and its examples.

    What one claim found of it is kept for the next: its gradient and its products.
    The arguments are those of :func:`sharpness`; another seed draws other examples.
    """
    sample = differentiated(subject, examples, seed=seed)
    known = kept(subject, f"products {subject.at_most(examples)} {seed}", Products, lambda _: 0)
    with risk_hessian(
        subject.model,
        sample.batches,
        subject.objective,
        independent=subject.independent,
        memory=memory,
        known=known,
    ) as hessian:
        yield hessian, sample


def vectors_within(dim: int, memory: int, itemsize: int, *, least: int, most: int) -> int:
    """How many vectors fit in half of the memory, between ``least`` and ``most``."""
    return min(most, max(least, memory // 2 // max(dim * itemsize, 1)))


def lanczos_steps(hessian: RiskHessian, most: int) -> int:
    """How many steps of the Lanczos process fit in half of the memory, at most so many: a vector a step.

    Raises:
        NotAsked: Too few do for an end of the spectrum to be found.
    """
    fit = MEMORY // 2 // (hessian.dim * hessian.dtype.itemsize)
    if fit < min(most, FEWEST, hessian.dim):
        raise NotAsked(
            f"the vectors of {FEWEST} Lanczos steps of {hessian.dim:,} weights do not fit in memory"
        )
    return min(most, fit)


def sharpness(
    subject: Subject,
    *,
    tol: float = 1e-2,
    max_iterations: int = 100,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """The largest and smallest eigenvalues of the Hessian of the mean training loss.

    Each comes with the residual |Hv - lambda v|, within which an eigenvalue lies. A negative smallest
    eigenvalue says that the weights are not at a minimum.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        tol: Largest residual, relative to the larger magnitude of the two, above 0; a tenth is tried for.
        max_iterations: Lanczos steps after which a larger one fails the finding.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    with hessian_of(subject, examples, memory) as (hessian, sample):
        steps = lanczos_steps(hessian, max_iterations)
        start = hessian.start()
        found = extreme_eigenvalues(hessian, start, tol=tol / 10, max_iterations=steps, share=0.5)
    scale = float(found.values.abs().max())
    settled = found.converged or bool((found.residuals <= tol * scale).all())
    # An eigenvalue lies within the residual; that none lies beyond it, twice as far, is a premise.
    out = found.residuals * torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=found.residuals.dtype)
    out = out + rounding(hessian, found.values)
    return Finding(
        statement=f"The extreme eigenvalues of the Hessian of the mean loss over {sample.words}, by "
        f"{hessian.dim:,} parameters, after {found.iterations} Lanczos steps.",
        value=found.values,
        unit=UNIT,
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject), _extreme(found)),
        kind="estimate",
        interval=(found.values - out[0], found.values + out[1]),
        failure=("" if settled else _failure(found, tol)) if hessian.finite else NO_LOSS,
        labels=("largest", "smallest"),
        sample=sample.mark,
        curves={"ritz values": found.ritz, "weights": found.weights},
    )


def rounding(hessian: SquareMap, values: Tensor) -> Tensor:
    """What rounding adds to the error of an eigenvalue: of a product, a sum over all weights."""
    return math.sqrt(hessian.dim) * torch.finfo(hessian.dtype).eps * values.abs().max()


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


CLOSER = 100
"""Of the tolerance of leading eigenvalues, the part that is tried for."""


def leading(
    subject: Subject,
    *,
    count: int = 5,
    tol: float = 1e-2,
    max_products: int = 300,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """The eigenvalues of largest magnitude of the Hessian of the mean training loss.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        count: How many, at least 1; all, where the model has fewer parameters.
        tol: Largest residual, relative to the largest magnitude, above 0; a hundredth is tried for, because
            the smaller of the leading ones are often a hundredth of the first.
        max_products: Products with the Hessian after which a larger one fails the finding.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    with hessian_of(subject, examples, memory) as (hessian, sample):
        start = hessian.start()
        count = min(count, hessian.dim)
        least = count + 2
        if least * start.nbytes > MEMORY:
            raise NotAsked(f"{least} vectors of {hessian.dim:,} weights do not fit in memory")
        rows = vectors_within(hessian.dim, memory, start.element_size(), least=least, most=ROWS)
        found = leading_eigenpairs(
            hessian, start, count, tol=tol / CLOSER, max_products=max_products, rows=rows
        )
    settled = found.converged or bool((found.residuals <= tol * found.values.abs().max()).all())
    failure = "" if settled else _unsettled(found.values, found.residuals, found.products, tol)
    error = found.residuals + rounding(hessian, found.values)
    return Finding(
        statement=f"The {count} eigenvalues of largest magnitude of the Hessian of the mean loss over "
        f"{sample.words}, by {hessian.dim:,} parameters, after {found.products} products with it.",
        value=found.values,
        unit=UNIT,
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject),),
        kind="estimate",
        interval=(found.values - error, found.values + error),
        failure=failure if hessian.finite else NO_LOSS,
        labels=tuple(f"eigenvalue {i + 1}" for i in range(count)),
        sample=sample.mark,
        curves={"leading eigenvalues": found.values},
    )


def _unsettled(values: Tensor, residuals: Tensor, products: int, tol: float) -> str:
    if not bool(values.isfinite().all()):
        return "a product with the Hessian is not finite"
    worst = float(residuals.max())
    return f"the residual is {worst:.3g} after {products} products, above the tolerance {tol:g}"


class Summed(NamedTuple):
    """A trace, half of the verdict's interval, both ends of the printed one, how it was found, its draws."""

    value: Tensor
    half: Tensor
    low: Tensor
    high: Tensor
    words: str
    draws: Tensor


def trace_of(hessian: SquareMap, rank: int, probes: int, memory: int, *, seed: int = 1990) -> Summed:
    """The trace of a curvature matrix: exact for few parameters, else with large eigenvalues deflated."""
    dim, dtype, device = hessian.dim, hessian.dtype, hessian.device
    if dim <= FEW:
        A = as_matrix(hessian, dim, dtype=dtype, device=device)
        # What rounding leaves antisymmetric says how large it is.
        value, rounding = A.trace(), (A - A.T).norm()
        return Summed(value, rounding, value - rounding, value + rounding, "written down", torch.zeros(0))
    generator = Generator().manual_seed(seed)
    rank = vectors_within(3 * dim, memory, dtype.itemsize, least=0, most=rank)
    if rank == 0:
        value, _, draws = hutchinson_trace(hessian, dim, generator, probes=probes, dtype=dtype, device=device)
        return _summed(value, draws, f"from {probes} probes")
    value, _, draws = deflated_trace(
        hessian, dim, generator, rank=rank, probes=probes, dtype=dtype, device=device
    )
    words = f"{rank} of its directions taken exactly, the rest from {probes} probes"
    return _summed(value, draws, words)


def _summed(value: Tensor, draws: Tensor, words: str) -> Summed:
    """A trace whose error is that of a mean of draws, which a few large eigenvalues skew.

    Of 400 simulated traces of eigenvalues k^-1.5 the printed intervals of 8 random signs hold 93 %, where
    Student's hold 88 %.
    """
    terms = Terms(draws.double().cpu(), torch.ones(len(draws)).double(), torch.arange(len(draws)))
    low, high = (value + (end - terms.values.mean()).to(value) for end in limits_of(terms))
    return Summed(value, half_width(draws), low, high, words, draws)


def trace(
    subject: Subject,
    *,
    rank: int = 16,
    probes: int = 48,
    examples: int | None = DRAWN,
    memory: int = MEMORY,
) -> Finding:
    """The trace of the Hessian of the mean training loss: the sum of its eigenvalues, with its error.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        rank: Directions whose part is taken exactly, where they fit in memory; at least 1.
        probes: Random sign vectors for the rest, at least 2; their seed is fixed.
        examples: Examples drawn where there are more than twice as many; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about, and the vectors.
    """
    found, sample, finite = _trace(subject, rank, probes, examples, memory)
    broken = "" if bool(found.value.isfinite()) else "a product with the Hessian is not finite"
    return Finding(
        statement=f"The trace of the Hessian of the mean loss over {sample.words}, {found.words}.",
        value=found.value,
        unit=UNIT,
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject),),
        kind="estimate",
        interval=(found.value - found.half, found.value + found.half),
        printed=(found.low, found.high),
        sample=sample.mark,
        failure=broken if finite else NO_LOSS,
        curves={"quadratic forms": found.draws} if len(found.draws) else {},
    )


def _trace(
    subject: Subject, rank: int, probes: int, examples: int | None, memory: int
) -> tuple[Summed, Sample, bool]:
    """The trace over all examples, or the mean of those of random samples; whether every loss was finite.

    The trace is a mean over examples: the spread of its values on samples that were drawn apart from each
    other, with probes of their own, is all of its error. So each needs few probes: of examples there are few.
    """
    sample = differentiated(subject, examples)
    if sample.whole:
        with hessian_of(subject, examples, memory) as (hessian, sample):
            return trace_of(hessian, rank, probes, memory), sample, hessian.finite
    values, finite, size = [], True, max(1, (subject.at_most(examples) or DRAWN) // GROUPS)
    for seed in range(1, GROUPS + 1):
        few = differentiated(subject, size, seed=seed)
        with risk_hessian(
            subject.model, few.batches, subject.objective, independent=subject.independent, memory=memory
        ) as hessian:
            found = trace_of(hessian, max(1, rank // 4), max(2, probes // 6), memory, seed=1990 + seed)
            values.append(found.value.double().cpu())
            finite &= hessian.finite
    draws = torch.stack(values)
    words = f"the mean of those of {GROUPS} samples of {size:,} each, whose spread is its error"
    return _summed(draws.mean(), draws, words), sample, finite


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


def of_weights(
    model: nn.Module,
    *,
    examples: int = 3,
    history: Sequence[Mapping[str, Any]] = (),
    initial: nn.Module | None = None,
) -> Subject:
    """A subject whose loss is what its model gives, a function of the weights alone.

    Args:
        model: It gives each example the same value.
        examples: How many there are, all 0.
        history: The rows of a training's history.
        initial: The model with the weights that a training began with.
    """
    zeros = torch.zeros(examples, dtype=torch.float64)
    batches = [Batch((zeros,), zeros)]
    return Subject(
        model=model,
        test=batches,
        train=batches,
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
        history=history,
        initial=initial,
    )


def demo() -> Subject:
    """The spectrum {3, -3, 0.1}, on axes that are not the coordinates': trace 0.1."""
    u = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64) / 3
    reflection = torch.eye(3, dtype=torch.float64) - 2 * torch.outer(u, u)
    A = reflection @ torch.diag(torch.tensor([3.0, -3.0, 0.1], dtype=torch.float64)) @ reflection
    return of_weights(Quadratic(A), examples=4)
