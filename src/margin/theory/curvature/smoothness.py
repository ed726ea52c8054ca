r"""How fast the gradient of the loss can change: its Lipschitz constant, from below, at visited weights.

A twice differentiable loss is L-smooth if and only if every eigenvalue of its Hessian, everywhere, has
magnitude at most L (Nesterov 2004, Lemma 1.2.2). The largest magnitude at the weights that were visited is
therefore a lower estimate of L, and no step length can be promised from it.
"""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.theory.curvature.hessian import MEMORY, risk_hessian
from margin.theory.curvature.lanczos import Extremes, extreme_eigenvalues
from margin.theory.curvature.trained_weights import NO_LOSS, UNIT, differentiated
from margin.theory.curvature.twice_differentiable import twice_differentiable

COLUMN = "smoothness"
"""The column of a history in which the track of curvature writes the largest magnitude."""


def smoothness(
    subject: Subject,
    *,
    tol: float = 1e-2,
    max_iterations: int = 100,
    examples: int | None = 1024,
    memory: int = MEMORY,
) -> Finding:
    """A lower estimate of the Lipschitz constant L of the mean training loss's gradient.

    It is the largest magnitude of an eigenvalue of the Hessian at the weights themselves, at the weights that
    the training began with where they are known, and at the evaluations of a training that tracked it.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        tol: Largest residual, relative to the largest magnitude, above 0.
        max_iterations: Lanczos steps after which the finding fails.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    sample = differentiated(subject, examples)
    models: list[tuple[str, nn.Module]] = [("the weights", subject.model)]
    if subject.initial is not None:
        models.append(("the weights that the training began with", subject.initial))
    magnitudes, failure = [], ""
    for _, model in models:
        with risk_hessian(
            model, sample.batches, subject.objective, independent=subject.independent, memory=memory
        ) as hessian:
            ends = extreme_eigenvalues(hessian, hessian.start(), tol=tol, max_iterations=max_iterations)
        failure = failure or _failure(ends, hessian.finite)
        magnitudes.append(_least_magnitude(ends))
    steps, tracked = _tracked(subject)
    value = torch.stack(magnitudes).max()
    where = " and ".join(name for name, _ in models)
    if len(tracked):
        # Each tracked value is a Rayleigh quotient, which no eigenvalue's magnitude falls short of.
        value = torch.maximum(value, tracked.max())
        where += f" and, over the examples that were tracked, at {len(tracked)} evaluations of the training"
    return Finding(
        statement="The gradient of the mean loss cannot have a smaller Lipschitz constant: the largest "
        f"magnitude of an eigenvalue of the Hessian over {sample.words}, at {where}.",
        value=value,
        unit=UNIT,
        range=(0.0, math.inf),
        premises=(twice_differentiable(subject),),
        sample=sample.mark,
        kind="lower",
        failure=failure,
        curves={"step": steps, COLUMN: tracked} if len(tracked) > 1 else {},
    )


def _least_magnitude(ends: Extremes) -> Tensor:
    """The larger |Rayleigh quotient| of the two ends: no larger than the largest magnitude."""
    return ends.values.abs().max()


def _failure(ends: Extremes, finite: bool) -> str:
    if not finite:
        return NO_LOSS
    if ends.converged:
        return ""
    return f"the residual is {float(ends.residuals.max()):.3g} after {ends.iterations} Lanczos steps"


def _tracked(subject: Subject) -> tuple[Tensor, Tensor]:
    rows = [(row.get("step", i), row.get(COLUMN)) for i, row in enumerate(subject.history)]
    known = [(float(s), float(x)) for s, x in rows if isinstance(x, int | float) and math.isfinite(x)]
    steps = torch.tensor([s for s, _ in known], dtype=torch.float64)
    return steps, torch.tensor([x for _, x in known], dtype=torch.float64)


class Cosine(nn.Module):
    """The function -cos(w) of one weight, whatever the input: its curvature cos(w) is at most 1, at 0.

    Args:
        w: The weight.
    """

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """The same value for every example."""
        return -self.w.cos().expand(len(x))


def demo() -> Subject:
    """The loss -cos(w), from 1 to 0.1 by gradient descent: L is 1, and cos(0.1) = 0.995 is seen of it."""
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    return Subject(
        model=Cosine(0.1),
        initial=Cosine(1.0),
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
        history=[{"step": 0, COLUMN: math.cos(1.0)}, {"step": 1, COLUMN: math.cos(0.5)}],
    )
