"""Ridge regression (Hoerl and Kennard 1970): least squares with a penalty on the squared length of w."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.regression import write_solution
from margin.classic.linear.rows import Matrix, Vector, centered, gram, rows_of, scaled
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

Scaling = Literal["mean", "sum", "undivided"]
"""Which of the three losses in use a penalty belongs to; see :func:`ridge_loss`."""


class Ridge(nn.Module):
    r"""The affine map x -> w . x + b of least penalized squared error; b is not penalized.

    A training standardizes the features of a table or of an estimator first, so the penalty weighs all
    alike; ``--scale none`` takes them as they are, as scikit-learn's Ridge does.

    Args:
        in_features: Number of features; an input of more axes is flattened.
        penalty: lambda > 0.
        scaling: The loss to which it belongs: mean, 1/(2n) \|r\|^2 + (lambda/2) \|w\|^2; sum,
            (1/2) \|r\|^2 + (lambda/2) \|w\|^2; undivided, 1/(2n) \|r\|^2 + lambda \|w\|^2.

    Raises:
        ValueError: The penalty is not positive, or the scaling is none of these.

    Reference:
        Hoerl and Kennard 1970, Equation 2.1; Hastie, Tibshirani and Friedman 2009, Equation 3.44.
    """

    def __init__(self, in_features: int, *, penalty: float = 0.1, scaling: Scaling = "mean") -> None:
        super().__init__()
        effective_penalty(penalty, scaling, 1.0)
        self.penalty, self.scaling = penalty, scaling
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return x.flatten(1) @ self.weight + self.bias


def effective_penalty(penalty: float, scaling: Scaling, count: float) -> float:
    """The k of the solution (X^T X + k I)^-1 X^T y: n lambda, lambda or 2 n lambda.

    Args:
        penalty: lambda.
        scaling: The loss to which it belongs.
        count: n, the sum of the weights.

    Raises:
        ValueError: The penalty is not positive and finite, or the scaling is none of the three.
    """
    factors = {"mean": count, "sum": 1.0, "undivided": 2 * count}
    if scaling not in factors:
        raise ValueError(f"scaling must be one of {', '.join(factors)}: got {scaling!r}")
    if not 0 < penalty < float("inf"):
        raise ValueError(f"penalty must be positive and finite: got {penalty}; linear_regression has none")
    return factors[scaling] * penalty


def ridge_loss(  # more than 7 parameters: the loss of three conventions, with weights
    X: Matrix,
    y: Vector,
    w: Float[Tensor, " features"],
    b: Float[Tensor, ""],
    *,
    penalty: float,
    scaling: Scaling = "mean",
    weight: Vector | None = None,
) -> Float[Tensor, ""]:
    r"""The penalized loss of an affine map, with residuals r = X w + b - y and n = sum of the weights a.

    .. math:: \text{mean: } \frac{\sum_i a_i r_i^2}{2 n} + \frac\lambda2 \|w\|^2, \quad
        \text{sum: } \frac{\sum_i a_i r_i^2}{2} + \frac\lambda2 \|w\|^2, \quad
        \text{undivided: } \frac{\sum_i a_i r_i^2}{2 n} + \lambda \|w\|^2

    Args:
        X: Features, one example a row.
        y: The value of each row.
        w: Coefficients.
        b: Intercept.
        penalty: lambda.
        scaling: Which of the three.
        weight: a; None: 1.
    """
    weight = torch.ones_like(y) if weight is None else weight
    squares = (weight * (X @ w + b - y).square()).sum()
    risk = squares / 2 if scaling == "sum" else squares / (2 * weight.sum())
    return risk + (penalty if scaling == "undivided" else penalty / 2) * w.square().sum()


def ridge_solution(
    X: Matrix, y: Vector, k: float, weight: Vector | None = None
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""]]:
    r"""The (w, b) that minimize sum_i a_i (w . x_i + b - y_i)^2 + k \|w\|^2, by one Cholesky factor.

    .. math:: w = (X_c^\top A X_c + k I)^{-1} X_c^\top A y_c
        = X_c^\top A^{1/2} (A^{1/2} X_c X_c^\top A^{1/2} + k I)^{-1} A^{1/2} y_c

    The second form is taken where there are fewer rows than features. Time is
    O(rows features min(rows, features)).

    Args:
        X: Features, one example a row.
        y: The value of each row.
        k: The penalty, positive; :func:`effective_penalty` gives it.
        weight: a, positive; None: 1.

    Returns:
        w and b, in float64.

    Raises:
        ValueError: The matrix is singular to working precision.

    Reference:
        Hoerl and Kennard 1970, Equation 2.1; Saunders, Gammerman and Vovk 1998, Equation 9 (the dual form).
    """
    X, y = X.double(), y.double()
    weight = None if weight is None else weight.double()
    Xc, center = centered(X, weight)
    yc, mean = centered(y, weight)
    Xc, yc = scaled(Xc, weight), scaled(yc, weight)
    w = _solve(gram(Xc), k, Xc.T @ yc) if X.shape[1] <= len(X) else Xc.T @ _solve(gram(Xc.T), k, yc)
    return w, mean - center @ w


def _solve(matrix: Float[Tensor, "n n"], k: float, b: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The solution x of (matrix + k I) x = b; ``matrix`` is overwritten."""
    matrix.diagonal().add_(k)
    factor, info = torch.linalg.cholesky_ex(matrix)
    least = len(matrix) * torch.finfo(matrix.dtype).eps * matrix.diagonal().max()
    if int(info) or bool(factor.diagonal().min() ** 2 <= least):
        raise ValueError(
            f"the penalty must exceed the rounding of X^T X: got {k:g} beside a largest entry of "
            f"{float(matrix.diagonal().max()):g}; linear_regression needs no penalty"
        )
    return torch.cholesky_solve(b[:, None], factor)[:, 0]


def ridge() -> Step:
    """One exact solve on the batch: the weights of least penalized squared error."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight = rows_of(state, batch, learner="ridge regression")
        core: Any = state.core
        k = effective_penalty(core.penalty, core.scaling, float(weight.sum()))
        w, b = ridge_solution(x, y, k, None if bool((weight == 1).all()) else weight)
        return {"loss": write_solution(state, w, b, x, y, weight)}

    return step
