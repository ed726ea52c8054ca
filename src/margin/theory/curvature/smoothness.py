r"""How fast the gradient of the loss can change: its Lipschitz constant, from below, at visited weights.

A twice differentiable loss is L-smooth if and only if every eigenvalue of its Hessian, everywhere, has
magnitude at most L (Nesterov 2004, Lemma 1.2.2). The largest magnitude at the weights that were visited is
therefore a lower estimate of L, and no step length can be promised from it.

Along the gradient itself the curvature says when a step stops helping: to second order :math:`h(\theta - \eta
g) = h(\theta) - \eta |g|^2 + \tfrac{\eta^2}{2} g^\top H g` (Goodfellow, Bengio and Courville 2016, Section
4.3): the loss falls if and only if :math:`\eta\, g^\top H g / (2 |g|^2) < 1`. That is exact for a quadratic
loss.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, NotAsked, Subject
from margin.core.types import Batch, Objective
from margin.engine.loop import State
from margin.theory.curvature.convex import eigenvalue_range
from margin.theory.curvature.hessian import MEMORY, RiskHessian, risk_hessian
from margin.theory.curvature.lanczos import SEED, Extremes, extreme_eigenvalues
from margin.theory.curvature.trained_weights import (
    NO_LOSS,
    UNIT,
    Quadratic,
    differentiated,
    hessian_of,
    of_weights,
)
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
    history = [{"step": 0, COLUMN: math.cos(1.0)}, {"step": 1, COLUMN: math.cos(0.5)}]
    return of_weights(Cosine(0.1), initial=Cosine(1.0), history=history)


TRACKED = 1024
"""Examples of which the curvature is followed during a training, about."""

STATIONARY = "the gradient of the loss is 0: there is no direction of descent"


class AlongGradient(NamedTuple):
    """Norm of the gradient g, and g'Hg / |g|^2: NaN where g is 0 or not finite."""

    norm: float
    curvature: float

    def ratio(self, eta: float) -> float:
        """The ratio eta g'Hg / (2 |g|^2): above 1 a step of that length raises the loss, to second order."""
        return eta * self.curvature / 2

    @property
    def largest_eta(self) -> float:
        """The step length from which the loss no longer falls; infinite where no curvature stops it."""
        if self.curvature > 0:
            return 2 / self.curvature
        return math.nan if math.isnan(self.curvature) else math.inf


def along_gradient(hessian: RiskHessian) -> AlongGradient:
    """The Rayleigh quotient of a risk's Hessian along the risk's gradient; one product."""
    g = hessian.risk_gradient()
    norm = float(g.double().norm())
    if not (math.isfinite(norm) and norm > 0):
        return AlongGradient(norm, math.nan)
    unit = (g.double() / norm).to(g)
    return AlongGradient(norm, float((unit * hessian(unit)).sum(dtype=torch.float64)))


def along_gradient_claim(subject: Subject, *, examples: int | None = 1024, memory: int = MEMORY) -> Finding:
    """The curvature g'Hg / |g|^2 of the mean training loss along its gradient, and the step that it allows.

    Args:
        subject: A model with parameters that require a gradient, and an objective.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.
    """
    with hessian_of(subject, examples, memory) as (hessian, sample):
        found = along_gradient(hessian)
    if found.norm == 0:
        raise NotAsked(STATIONARY)
    eta = found.largest_eta
    step = (
        "to second order, a step of gradient descent lowers the loss at every learning rate"
        if math.isinf(eta)
        else f"to second order, a step of gradient descent lowers the loss at learning rates below {eta:.4g}"
    )
    return Finding(
        statement=f"The curvature along the gradient of the mean loss over {sample.words} (its norm: "
        f"{found.norm:.3g}); {step}.",
        value=torch.tensor(found.curvature, dtype=torch.float64),
        unit=UNIT,
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject),),
        sample=sample.mark,
        failure=_step_failure(found, hessian.finite),
        kind="estimate",
        interval=_rounded(found.curvature, hessian),
    )


def _rounded(curvature: float, hessian: RiskHessian) -> tuple[torch.Tensor, torch.Tensor]:
    # A sum over the parameters, of numbers rounded to the model's type.
    width = math.sqrt(hessian.dim) * torch.finfo(hessian.dtype).eps * abs(curvature)
    ends = (curvature - width, curvature + width)
    return torch.tensor(ends[0], dtype=torch.float64), torch.tensor(ends[1], dtype=torch.float64)


def _step_failure(found: AlongGradient, finite: bool) -> str:
    return "" if finite and math.isfinite(found.norm) else NO_LOSS


def last_rate(subject: Subject) -> float | None:
    """The last learning rate that the history of the training holds."""
    rates = [row["lr"] for row in subject.history if isinstance(row.get("lr"), int | float)]
    return float(rates[-1]) if rates else None


def has_learning_rate(subject: Subject) -> bool:
    """Whether the history of the training holds a learning rate."""
    return last_rate(subject) is not None


def step_ratio(subject: Subject, *, examples: int | None = 1024, memory: int = MEMORY) -> Finding:
    """The ratio eta g'Hg / (2 |g|^2) at the last learning rate of the training: above 1, a step overshoots.

    Args:
        subject: A model with parameters that require a gradient, an objective, and a history with ``lr``.
        examples: About how many examples the risk is taken over; None: all.
        memory: Bytes that the graphs of a chunk of examples may hold, about.

    Raises:
        ValueError: The history holds no learning rate.
    """
    eta = last_rate(subject)
    if eta is None:
        raise ValueError("a ratio needs a learning rate: the history holds none")
    with hessian_of(subject, examples, memory) as (hessian, sample):
        found = along_gradient(hessian)
    if found.norm == 0:
        raise NotAsked(STATIONARY)
    ratio = found.ratio(eta)
    says = "raise" if ratio > 1 else "lower"
    low, high = _rounded(found.curvature, hessian)
    return Finding(
        statement=f"A step of gradient descent at the last learning rate, {eta:g}, on the mean loss over "
        f"{sample.words}, would {says} it, to second order; the loss rises where the ratio exceeds 1. "
        "(Momentum and adaptive optimizers take other steps.)",
        value=torch.tensor(ratio, dtype=torch.float64),
        range=eigenvalue_range(subject),
        premises=(twice_differentiable(subject),),
        sample=sample.mark,
        kind="estimate",
        interval=(low * eta / 2, high * eta / 2),
        failure=_step_failure(found, hessian.finite),
    )


def step_demo() -> Subject:
    """The loss x^2 - y^2 / 2 at (1, 1), after a training at the rate 1: g = (2, -1), g'Hg / |g|^2 = 7 / 5."""
    A = torch.diag(torch.tensor([2.0, -1.0], dtype=torch.float64))
    return of_weights(Quadratic(A), history=[{"step": 1, "lr": 1.0}])


def track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """Curvature during a training, on about 1,024 examples; leaves no trace.

    Args:
        state: Of the training; the model that a user gets is asked.
        objective: The loss of each term.
        batches: The training part in order.

    Returns:
        ``smoothness``, the largest magnitude of an eigenvalue of the Hessian, a lower estimate of the
        gradient's Lipschitz constant; ``gradient_norm``; and ``curvature_ratio``, eta g'Hg / (2 |g|^2) at
        the learning rate of the first optimizer, where there is one.
    """
    taken = max(1, TRACKED // max(len(batches[0].inputs[0]), 1))
    if taken < len(batches):
        batches = [batches[i * len(batches) // taken] for i in range(taken)]
    # Nothing is known here of how the examples of a batch depend on each other: none is cut.
    with risk_hessian(state.usable, batches, objective, independent=False) as hessian:
        found = along_gradient(hessian)
        ends = extreme_eigenvalues(hessian, hessian.start(SEED), tol=1e-2)
    settled = ends.converged and hessian.finite
    columns = {
        "smoothness": float(ends.values.abs().max()) if settled else math.nan,
        "gradient_norm": found.norm,
    }
    rates = [group["lr"] for optimizer in state.optimizers.values() for group in optimizer.param_groups]
    return columns | ({"curvature_ratio": found.ratio(float(rates[0]))} if rates else {})
