r"""When a gradient step stops helping: the curvature of the loss along its own gradient.

To second order :math:`h(\theta - \eta g) = h(\theta) - \eta |g|^2 + \tfrac{\eta^2}{2} g^\top H g`
(Goodfellow, Bengio and Courville 2016, Section 4.3): the loss falls if and only if
:math:`\eta\, g^\top H g / (2 |g|^2) < 1`. That is exact for a quadratic loss.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch, Objective
from margin.engine.loop import State
from margin.theory.curvature.hessian import MEMORY, RiskHessian, risk_hessian
from margin.theory.curvature.lanczos import SEED, extreme_eigenvalues
from margin.theory.curvature.trained_weights import NO_LOSS, UNIT, Quadratic, hessian_of
from margin.theory.curvature.twice_differentiable import twice_differentiable

REFERENCE = "Goodfellow, Bengio and Courville 2016, Section 4.3 (Equation 4.9)"
TRACKED = 1024
"""Examples of which the curvature is followed during a training, about."""

STATIONARY = Premise("the gradient is not 0", "refuted", "there is no direction of descent")


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
        range=(-math.inf, math.inf),
        premises=(twice_differentiable(subject), STATIONARY)
        if found.norm == 0
        else (twice_differentiable(subject),),
        reference=REFERENCE,
        sample=sample.mark,
        failure=_failure(found, hessian.finite),
        kind="estimate",
        interval=_rounded(found.curvature, hessian),
    )


def _rounded(curvature: float, hessian: RiskHessian) -> tuple[torch.Tensor, torch.Tensor]:
    # A sum over the parameters, of numbers rounded to the model's type.
    width = math.sqrt(hessian.dim) * torch.finfo(hessian.dtype).eps * abs(curvature)
    ends = (curvature - width, curvature + width)
    return torch.tensor(ends[0], dtype=torch.float64), torch.tensor(ends[1], dtype=torch.float64)


def _failure(found: AlongGradient, finite: bool) -> str:
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
    ratio = found.ratio(eta)
    says = "raise" if ratio > 1 else "lower"
    low, high = _rounded(found.curvature, hessian)
    return Finding(
        statement=f"A step of gradient descent at the last learning rate, {eta:g}, on the mean loss over "
        f"{sample.words}, would {says} it, to second order; the loss rises where the ratio exceeds 1. "
        "(Momentum and adaptive optimizers take other steps.)",
        value=torch.tensor(ratio, dtype=torch.float64),
        unit="1",
        range=(-math.inf, math.inf),
        premises=(twice_differentiable(subject), STATIONARY)
        if found.norm == 0
        else (twice_differentiable(subject),),
        reference=REFERENCE,
        sample=sample.mark,
        kind="estimate",
        interval=(low * eta / 2, high * eta / 2),
        failure=_failure(found, hessian.finite),
    )


def demo() -> Subject:
    """The loss x^2 - y^2 / 2 at (1, 1), after a training at the rate 1: g = (2, -1), g'Hg / |g|^2 = 7 / 5."""
    A = torch.diag(torch.tensor([2.0, -1.0], dtype=torch.float64))
    zeros = torch.zeros(3, dtype=torch.float64)
    batch = Batch((zeros,), zeros)
    return Subject(
        model=Quadratic(A),
        test=[batch],
        train=[batch],
        task=VALUES,
        objective=lambda model, batch, generator: model(*batch.inputs),
        history=[{"step": 1, "lr": 1.0}],
    )


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
