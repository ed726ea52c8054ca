"""The lasso (Tibshirani 1996): least squares with a penalty on the absolute coefficients, and its path.

The solver is scikit-learn's coordinate descent (Friedman, Hastie and Tibshirani 2010); what is added are the
conditions of optimality and the duality gap that certifies a solution.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.regression import write_solution
from margin.classic.linear.rows import Matrix, Vector, centered, rows_of, scaled
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

Weights = Float[Tensor, " features"]

GAP = 1e-10
"""The duality gap at which the solver stops, as a share of the loss at w = 0."""

MOST_PASSES = 100_000
"""Passes of coordinate descent that the solver is given."""


class Lasso(nn.Module):
    r"""The affine map x -> w . x + b that minimizes 1/(2n) \|Xw + b - y\|^2 + lambda \|w\|_1; b is free.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        penalty: lambda > 0, in the unit of the target for standardized features.

    Raises:
        ValueError: The penalty is not positive.

    Reference:
        Tibshirani 1996, Equation 1; Hastie, Tibshirani and Friedman 2009, Equation 3.52.
    """

    def __init__(self, in_features: int, *, penalty: float = 0.1) -> None:
        super().__init__()
        if not 0 < penalty < float("inf"):
            raise ValueError(
                f"penalty must be positive and finite: got {penalty}; linear_regression has none"
            )
        self.penalty = penalty
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return x.flatten(1) @ self.weight + self.bias


class Path(NamedTuple):
    """The solutions for a falling sequence of penalties.

    Args:
        penalty: lambda of each.
        weight: w of each.
        bias: b of each.
        gap: The duality gap of each: its loss exceeds the least by at most this.
    """

    penalty: Float[Tensor, " penalties"]
    weight: Float[Tensor, "penalties features"]
    bias: Float[Tensor, " penalties"]
    gap: Float[Tensor, " penalties"]


class Standard(NamedTuple):
    """A weighted problem with an intercept, as one without both: 1/(2n) |Z w - t|^2 + lambda |w|_1.

    Args:
        Z: Rows less their mean, times the root of n a_i / sum(a).
        t: The targets likewise.
        center: The mean row.
        mean: The mean target.
    """

    Z: Matrix
    t: Vector
    center: Float[Tensor, " features"]
    mean: Float[Tensor, ""]


def standard_problem(X: Matrix, y: Vector, weight: Vector | None = None) -> Standard:
    """The problem without weights and intercept that has the same w, in float64."""
    X, y = X.double(), y.double()
    if weight is not None:
        weight = weight.double() / weight.double().mean()
    Xc, center = centered(X, weight)
    yc, mean = centered(y, weight)
    return Standard(scaled(Xc, weight), scaled(yc, weight), center, mean)


def soft_threshold(a: Float[Tensor, "*shape"], t: float) -> Float[Tensor, "*shape"]:
    r"""sign(a) max(\|a\| - t, 0): the lasso's w from the least-squares w where X^T X = n I.

    Args:
        a: Numbers.
        t: The threshold, at least 0.

    Reference: Tibshirani 1996, Equation 3.
    """
    return a.sign() * (a.abs() - t).clamp(min=0)


def largest_penalty(X: Matrix, y: Vector, weight: Vector | None = None) -> Float[Tensor, ""]:
    r"""The least lambda at which w = 0 is a solution: max_j \|x_j . y\| / n of the centered data."""
    problem = standard_problem(X, y, weight)
    return (problem.Z.T @ problem.t).abs().max() / len(y)


def lasso_loss(problem: Standard, w: Weights, penalty: float) -> Float[Tensor, ""]:
    r"""1/(2n) \|Z w - t\|^2 + lambda \|w\|_1."""
    return (problem.Z @ w - problem.t).square().sum() / (2 * len(problem.t)) + penalty * w.abs().sum()


def violation(problem: Standard, w: Weights, penalty: float) -> Weights:
    r"""By how much each coefficient breaks the conditions of optimality, in the unit of lambda.

    .. math:: \tfrac1n z_j^\top (t - Z w) = \lambda\,\mathrm{sign}(w_j) \text{ where } w_j \ne 0, \quad
        \text{else } |\tfrac1n z_j^\top (t - Z w)| \le \lambda

    Args:
        problem: The standard problem.
        w: Coefficients.
        penalty: lambda.

    Reference: Hastie, Tibshirani and Wainwright 2015, Equation 2.6.
    """
    correlation = problem.Z.T @ (problem.t - problem.Z @ w) / len(problem.t)
    inactive = (correlation.abs() - penalty).clamp(min=0)
    return torch.where(w == 0, inactive, (correlation - penalty * w.sign()).abs())


def duality_gap(problem: Standard, w: Weights, penalty: float) -> Float[Tensor, ""]:
    r"""How far the loss of w is above the least possible, at most: primal less dual value.

    .. math:: G = P(w) - D(\theta), \quad D(\theta) = \tfrac1{2n}\|t\|^2 - \tfrac1{2n}\|t - \theta\|^2, \quad
        \theta = r \min\Big(1, \frac{n \lambda}{\|Z^\top r\|_\infty}\Big), \quad r = t - Z w

    theta is r shrunk into the dual's feasible set, so D is at most the least loss, and 0 <= P(w) - P* <= G.

    Args:
        problem: The standard problem.
        w: Coefficients, any.
        penalty: lambda > 0.

    Reference: Kim, Koh, Lustig, Boyd and Gorinevsky 2007, Equation 12.
    """
    Z, t = problem.Z, problem.t
    residual = t - Z @ w
    largest = (Z.T @ residual).abs().max()
    theta = residual * (len(t) * penalty / largest).clamp(max=1) if bool(largest > 0) else residual
    dual = (t.square().sum() - (t - theta).square().sum()) / (2 * len(t))
    return lasso_loss(problem, w, penalty) - dual


def lasso_path(
    X: Matrix,
    y: Vector,
    penalties: Sequence[float] | Float[Tensor, " penalties"],
    weight: Vector | None = None,
) -> Path:
    """The lasso's solutions for several penalties, each begun at the one before it.

    Args:
        X: Features, one example a row.
        y: The value of each row.
        penalties: Positive, in any order.
        weight: How much each row counts, positive; None: 1.

    Returns:
        The path, its penalties falling, in float64.

    Raises:
        ValueError: A penalty is not positive, or the solver did not reach the gap GAP.

    Reference: Friedman, Hastie and Tibshirani 2010, Section 2.5; Tibshirani 1996, Equation 1.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lasso_path as wrapped

    falling = torch.as_tensor(penalties, dtype=torch.float64).sort(descending=True).values
    if not len(falling) or not bool((falling > 0).all()):
        raise ValueError(f"penalties must be positive, at least one: got {falling.tolist()}")
    problem = standard_problem(X, y, weight)
    Z, t = problem.Z.cpu().numpy(), problem.t.cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap below says it more sharply
        _, found, _ = wrapped(
            Z, t, alphas=falling.numpy(), tol=GAP / 10, max_iter=MOST_PASSES, random_state=0
        )
    w = torch.from_numpy(found.T.copy()).to(problem.Z)
    gaps = torch.stack([duality_gap(problem, one, float(k)) for one, k in zip(w, falling, strict=True)])
    bound = GAP * problem.t.square().sum() / (2 * len(problem.t))
    if not bool((gaps <= bound).all()):
        row = int(gaps.argmax())
        raise ValueError(
            f"coordinate descent must reach a duality gap of {float(bound):.2g} in {MOST_PASSES} passes: "
            f"got {float(gaps[row]):.2g} at penalty {float(falling[row]):g}; raise it"
        )
    return Path(falling, w, problem.mean - w @ problem.center, gaps)


def lasso() -> Step:
    """One solve on the batch: the weights of least loss, certified by their duality gap."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight = rows_of(state, batch, learner="the lasso")
        core: Any = state.core
        path = lasso_path(x, y, [core.penalty], weight)
        loss = write_solution(state, path.weight[0], path.bias[0], x, y, weight)
        nonzero = float((path.weight[0] != 0).sum())
        return {"loss": loss, "gap": path.gap[0], "nonzero": nonzero}

    return step
