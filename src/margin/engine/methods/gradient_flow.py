r"""Gradient flow: the curve of steepest descent, of which gradient descent is the Euler discretization.

.. math:: \dot\theta(t) = -\nabla h(\theta(t))

It is integrated by the embedded Runge-Kutta pair of orders 5 and 4 of Dormand and Prince (1980), whose
difference estimates the error of each step and chooses its length.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from margin.core.types import Batch, Metrics, Objective
from margin.engine.batch_loss import BatchLoss, elsewhere, norm_of, put, refuse_clip, refuse_shares
from margin.engine.loop import GradientUpdate, NonFiniteError, State, Step, total_norm

Field = Callable[[list[Tensor]], list[Tensor]]
"""The time derivative at a point."""

A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""The stages' weights; the last row is the solution of order 5."""

E = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
"""The solution of order 5 less that of order 4."""

LIMIT = 1000
"""Most stretches of one integration, the refused ones included."""


def integrate(
    field: Field, start: Sequence[Tensor], time: float, *, tolerance: float
) -> tuple[list[Tensor], int]:
    """Follow a vector field for a time; the point reached, and how often the field was asked.

    Each stretch keeps the estimated error, relative to 1 + |y| coordinate by coordinate, at most the
    tolerance in the root mean square over all coordinates.

    Args:
        field: The derivative at a point.
        start: Where the curve begins: tensors of any shapes.
        time: How long it is followed, > 0.
        tolerance: Of one stretch, > 0; below the rounding of the tensors' type nothing meets it.

    Raises:
        ArithmeticError: The tolerance was not met in ``LIMIT`` stretches.

    Reference: Hairer, Nørsett and Wanner (1993), "Solving ordinary differential equations I", Table 5.2 of
    Section II.5; the choice of the length as in Section II.4.
    """
    y, done, length = list(start), 0.0, time
    slopes, asked = [field(y)], 1
    for _ in range(LIMIT):
        length, point = min(length, time - done), y
        for row in A:
            point = [base + length * move for base, move in zip(y, _combined(row, slopes), strict=True)]
            slopes.append(field(point))
        asked += len(A)
        error = _error(y, point, _combined(E, slopes), length) / tolerance
        if error <= 1:
            done, y = done + length, point
            if done >= time * (1 - 1e-12):
                return y, asked
        slopes = [slopes[-1] if error <= 1 else slopes[0]]
        length *= min(5.0, max(0.2, 0.9 * error**-0.2)) if error > 0 else 5.0
    raise ArithmeticError(f"the flow came to {done:g} of {time:g} in {LIMIT} stretches")


def _combined(weights: Sequence[float], slopes: Sequence[list[Tensor]]) -> list[Tensor]:
    """The weighted sum of the stages, for each tensor."""
    found = [torch.zeros_like(k) for k in slopes[0]]
    for a, slope in zip(weights, slopes, strict=True):
        if a:
            found = [total.add(k, alpha=a) for total, k in zip(found, slope, strict=True)]
    return found


def _error(y: Sequence[Tensor], new: Sequence[Tensor], gap: Sequence[Tensor], length: float) -> float:
    """The root mean square of the estimated errors, each relative to 1 + |y|; inf where it is no number."""
    scaled = [length * g / (1 + a.abs().maximum(b.abs())) for g, a, b in zip(gap, y, new, strict=True)]
    error = total_norm(scaled) / math.sqrt(sum(g.numel() for g in gap))
    return error if math.isfinite(error) else math.inf


def gradient_flow(
    objective: Objective, descend: GradientUpdate, *, time: float | None = None, tolerance: float = 1e-5
) -> Step:
    """Follow the flow of the batch's mean loss for a while, with the error of every stretch controlled.

    In a time eta the flow goes where gradient descent with rate eta goes, but for O(eta^2). The step moves
    the weights itself: of the optimizer only the choice of parameters and, where no time is given, the
    learning rate count; its momentum, scaling and weight decay do not. Every stage sees the same draws, and
    the batch's statistics are counted once. The metrics hold the time and the number of gradients
    (``stages``).

    Args:
        objective: The loss of each term.
        descend: Which parameters, pieces and processes; it must not clip.
        time: How long the flow is followed in a step, > 0; None takes the learning rate.
        tolerance: Error of each stretch relative to 1 + |weight|, > 0, in the root mean square.

    Raises:
        ValueError: An option is out of range, the gradient is to be clipped, or weights are in shares.

    Reference: Hairer, Nørsett and Wanner (1993), Section II.5; Dormand and Prince (1980), "A family of
    embedded Runge-Kutta formulae".
    """
    if time is not None and not 0 < time < math.inf:
        raise ValueError(f"time must be positive and finite: got {time}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be in (0, 1): got {tolerance}")
    refuse_clip("gradient_flow", descend)
    refuse_shares("gradient_flow", descend)

    def step(state: State, batch: Batch) -> Metrics:
        asked = BatchLoss(state, objective, descend, batch)
        lasting = _rate(state) if time is None else time
        seen: list[tuple[float, float]] = []

        def field(point: list[Tensor]) -> list[Tensor]:
            put(asked.parameters, point)
            try:
                grads, loss = asked.gradient()
            except NonFiniteError:
                if not seen:
                    raise
                return [torch.full_like(p, math.nan) for p in point]  # too far: the stretch is refused
            seen.append((loss, norm_of(grads)))
            return [torch.zeros_like(p) if g is None else -g for p, g in zip(point, grads, strict=True)]

        with elsewhere(asked.parameters) as begin:
            try:
                end, stages = integrate(field, begin, lasting, tolerance=tolerance)
            except ArithmeticError as error:
                if isinstance(error, NonFiniteError):
                    raise
                raise ValueError(f"tolerance {tolerance:g} is not met, {error}: raise it") from None
        put(asked.parameters, end)
        return {"loss": seen[0][0], "grad_norm": seen[0][1], "time": lasting, "stages": stages}

    return step


def _rate(state: State) -> float:
    rates = {float(group["lr"]) for group in state.optimizers[""].param_groups}
    if len(rates) > 1:
        raise ValueError(f"a flow has one time for all weights: got the learning rates {sorted(rates)}")
    return rates.pop()
