"""Curvature of the training loss at the trained weights: the ends of the Hessian's spectrum, and its trace.

Hochreiter and Schmidhuber (1997) asked how flat a minimum is; the largest eigenvalue of the Hessian is one
measure. It depends on the parametrization (Dinh et al. 2017): scaling one layer up and the next one down
changes it and not the function.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from margin.findings import Finding, Premise, Subject
from margin.tasks import VALUES
from margin.theory.hessian import MEMORY, risk_hessian
from margin.theory.lanczos import Extremes, extreme_eigenvalues
from margin.theory.trace import hutchinson_trace
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
    sample = differentiated(subject, examples)
    with risk_hessian(
        subject.model, sample.batches, subject.objective, independent=subject.independent, memory=memory
    ) as hessian:
        start = hessian.start()
        found = extreme_eigenvalues(hessian, start, tol=tol, max_iterations=max_iterations, share=0.5)
    return Finding(
        statement=f"The extreme eigenvalues of the Hessian of the mean loss over {sample.words}, by "
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


def _broken(forms: Tensor) -> str:
    return "" if bool(forms.isfinite().all()) else "a product with the Hessian is not finite"


def trace(
    subject: Subject, *, probes: int = 20, examples: int | None = 1024, memory: int = MEMORY
) -> Finding:
    """The trace of the Hessian of the mean training loss: the sum of its eigenvalues, with its error.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        probes: Random sign vectors, at least 2; their seed is fixed.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    sample = differentiated(subject, examples)
    with risk_hessian(
        subject.model, sample.batches, subject.objective, independent=subject.independent, memory=memory
    ) as hessian:
        generator = Generator().manual_seed(1990)
        value, stderr, forms = hutchinson_trace(
            hessian, hessian.dim, generator, probes=probes, dtype=hessian.dtype, device=hessian.device
        )
    return Finding(
        statement=f"The trace of the Hessian of the mean loss over {sample.words}, by {hessian.dim:,} "
        f"parameters, from {probes} probes.",
        value=value,
        unit=UNIT,
        range=(-math.inf, math.inf),
        premises=(SMOOTH,),
        reference="Hutchinson 1990, Proposition 1 (Avron and Toledo 2011, Lemma 1)",
        kind="estimate",
        stderr=stderr,
        failure=_broken(forms) if hessian.finite else NO_LOSS,
        curves={"quadratic forms": forms},
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
