r"""Gradient descent that is stopped early, beside the penalty on squared length that it amounts to.

From 0, gradient flow for a time t on a quadratic loss keeps of each direction of the minimizer the factor
:math:`1 - e^{-\lambda t}`, a penalty mu the factor :math:`\lambda / (\lambda + \mu)`. At mu = 1/t the first
exceeds the second by at most 29.85 % (Ali, Kolter and Tibshirani 2019).
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.theory.dynamics.shrinkage import effective_parameters
from margin.theory.signal.last_layer import Design, in_row_space, last_design

STEPS = (1, 10, 100)
"""Steps of gradient descent after which the claim stops."""

LEAST = 1e-6
"""Directions whose coefficient is a smaller share of the largest one drown in rounding and are left out."""

TOLERANCE = 1e-6


def flow_factor(eigenvalues: Float[Tensor, " n"], time: float) -> Float[Tensor, " n"]:
    r"""The factor :math:`1 - e^{-\lambda t}` of each direction after gradient flow from 0.

    Args:
        eigenvalues: Of H, not negative.
        time: t >= 0.
    """
    return -torch.expm1(-eigenvalues * time)


def descent_factor(eigenvalues: Float[Tensor, " n"], lr: float, steps: int) -> Float[Tensor, " n"]:
    r"""The factor :math:`1 - (1 - \eta \lambda)^T` of each direction after gradient descent from 0.

    Args:
        eigenvalues: Of H, not negative.
        lr: eta > 0.
        steps: T >= 0.

    Reference: Goodfellow, Bengio and Courville 2016, Equation 7.40.
    """
    return 1 - (1 - lr * eigenvalues) ** steps


def ridge_ratio(x: Float[Tensor, " n"], steps: float = math.inf) -> Float[Tensor, " n"]:
    r"""The factor that early stopping keeps over the one that the penalty mu = 1/(T eta) keeps.

    .. math:: \frac{(1 - e^{-x})(1 + x)}x, \quad
        \text{after T steps} \quad \frac{(1 - (1 - x/T)^T)(1 + x)}x, \quad x = \lambda / \mu

    Args:
        x: Eigenvalue over penalty, positive; at most T for T steps of a rate eta <= 1 / lambda.
        steps: T >= 1; infinity is gradient flow.
    """
    kept = -torch.expm1(-x) if math.isinf(steps) else 1 - (1 - x / steps) ** steps
    return kept * (1 + x) / x


def ridge_ratio_bound(steps: float = math.inf) -> float:
    """The largest ratio over all x, for gradient flow 1.2985 at x = 1.793; for T steps over x <= T.

    The least is 1, approached as x goes to 0. After one step the ratio is 1 + x, at most 2.

    Args:
        steps: T >= 1; infinity is gradient flow.

    Raises:
        ValueError: T is less than 1.

    Reference: Ali, Kolter and Tibshirani 2019, Theorem 1 (whose 1.6862 is the square of 1.2985).
    """
    if not steps >= 1:
        raise ValueError(f"steps must be at least 1: got {steps}")

    def negative(x: float) -> float:
        return -float(ridge_ratio(torch.tensor([x], dtype=torch.float64), steps)[0])

    end = min(steps, 4.0)
    found: Any = minimize_scalar(negative, bounds=(1e-3, end), method="bounded", options={"xatol": 1e-10})
    return max(-float(found.fun), -negative(end))


def descend(design: Design, lr: float, steps: int) -> Float[Tensor, "features targets"]:
    """The weights after gradient descent from 0 on half the squared error, step by step.

    Args:
        design: Features and targets.
        lr: The rate.
        steps: Their number.
    """
    H, b = design.X.T @ design.X, design.X.T @ design.Y
    W = torch.zeros_like(b)
    for _ in range(steps):
        W = W - lr * (H @ W - b)
    return W


def against_ridge(subject: Subject) -> Finding:
    """Whether the last map, trained by gradient descent and stopped early, is within the bound of ridge.

    Descent runs from 0 on the squared error of the model's last features, at the rate of one over the largest
    eigenvalue; ridge has the penalty 1 / (rate x steps). Both are compared in every eigendirection.

    Args:
        subject: A model with a last affine map and its training examples.
    """
    design = in_row_space(last_design(subject))
    reasons = _reasons(design)
    high = torch.tensor([ridge_ratio_bound(T) for T in STEPS for _ in range(2)], dtype=torch.float64)
    nothing: tuple[Tensor, str, dict[str, Tensor]] = (torch.full_like(high, math.nan), "", {})
    value, words, curves = nothing if reasons else _measured(design)
    return Finding(
        statement="Gradient descent on the squared error of the last map, stopped after T steps, over ridge "
        f"with the penalty 1 / (rate T): least and largest ratio over eigendirections.{words}",
        value=value,
        range=(0.0, math.inf),
        low=torch.ones_like(value),
        high=high,
        tolerance=TOLERANCE,
        labels=tuple(f"T = {T:,}: {end}" for T in STEPS for end in ("least", "largest")),
        failure=reasons,
        premises=(
            Premise(
                "the loss is quadratic", "proved", "the squared error of an affine map of fixed features"
            ),
            Premise(
                "the rate is at most one over the largest eigenvalue", "proved", "it is set to exactly that"
            ),
        ),
        curves=curves,
    )


def _measured(design: Design) -> tuple[Tensor, str, dict[str, Tensor]]:
    """Both ends of the ratio after each number of steps, how many parameters are left, the last ratios."""
    singular, basis = torch.linalg.svd(design.X, full_matrices=False)[1:]
    lr, steps = float(1 / singular[0] ** 2), STEPS[-1]
    ratios = [_compared(design, basis, lr, T) for T in STEPS]
    value = torch.stack([end for _, ratio in ratios for end in (ratio.min(), ratio.max())])
    eigenvalues = singular.square()
    kept = float(descent_factor(eigenvalues, lr, steps).sum())
    ridge = float(effective_parameters(eigenvalues, 1 / (lr * steps)))
    words = f" After {steps:,} steps descent has {kept:.1f} effective parameters, ridge {ridge:.1f}."
    x, ratio = ratios[-1]
    order = x.argsort()
    curves = {
        "log10 of eigenvalue / penalty": x[order].log10(),
        "descent over ridge": ratio[order],
        "gradient flow over ridge": ridge_ratio(x[order]),
    }
    return value, words, curves


def _reasons(design: Design) -> str:
    if not len(design.X):
        return "no training example has a weight above 0"
    if not bool(design.X.isfinite().all() and design.Y.isfinite().all()):
        return "the features or the targets are not finite"
    moved = design.X.T @ design.Y
    if len(design.X) < 2 or not bool(moved.abs().max() > 0):
        return "the features do not vary with the targets: descent stays at 0"
    return ""


def _compared(
    design: Design, basis: Float[Tensor, "directions features"], lr: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Eigenvalue over penalty, and the ratio of both solutions, in the directions that are not rounding."""
    mu = 1 / (lr * steps)
    X, Y = design
    stopped = basis @ descend(design, lr, steps)
    matrix = X.T @ X + mu * torch.eye(X.shape[1], dtype=X.dtype)
    ridge = basis @ torch.cholesky_solve(X.T @ Y, torch.linalg.cholesky(matrix))
    # Of several targets the one that the direction serves most tells best.
    column = ridge.abs().argmax(1, keepdim=True)
    ours, theirs = (w.gather(1, column)[:, 0] for w in (stopped, ridge))
    kept = theirs.abs() >= LEAST * theirs.abs().max()
    eigenvalues = (X @ basis.T).square().sum(0)
    return eigenvalues[kept] / mu, (ours / theirs)[kept]
