"""Least squares (Gauss 1809), solved exactly: the affine map of smallest squared error and norm."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.rows import Matrix, Vector, centered, even, rows_of, scaled
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step


class LinearRegression(nn.Module):
    """The affine map x -> w . x + b from a row of features to one real number.

    Args:
        in_features: Number of features; an input of more axes is flattened.
    """

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(in_features))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return x.flatten(1) @ self.weight + self.bias


def minimum_norm_solution(
    X: Matrix, y: Vector, weight: Vector | None = None
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""], int]:
    r"""The (w, b) of least squared error; among several, that of smallest \|w\|.

    .. math:: \min_{w, b} \sum_i a_i (w \cdot x_i + b - y_i)^2: \quad
        w = (A^{1/2} X_c)^+ A^{1/2} y_c, \quad b = \bar y - \bar x \cdot w

    with X_c and y_c less their means, weighted by a. The bias is not penalized, hence the centering.
    Singular values below ``max(rows, features) * eps`` times the largest count as 0, as in
    ``numpy.linalg.matrix_rank``. Time is O(rows features min(rows, features)).

    Args:
        X: Features, one example a row.
        y: The value of each row.
        weight: a, positive: how much each row counts; None: 1.

    Returns:
        w, b and the rank of the centered matrix, all computed in float64.

    Reference:
        Penrose 1956, Theorem (best approximate solution); Golub and Van Loan 2013, Section 5.5.
    """
    X, y = X.double(), y.double()
    weight = None if weight is None else weight.double()
    Xc, center = centered(X, weight)
    yc, mean = centered(y, weight)
    U, S, Vh = torch.linalg.svd(scaled(Xc, weight), full_matrices=False)
    kept = cutoff(S, X) < S
    inverse = torch.where(kept, 1 / S.where(kept, 1), 0)
    w = Vh.T @ (inverse * (U.T @ scaled(yc, weight)))
    return w, mean - center @ w, int(kept.sum())


def cutoff(S: Float[Tensor, " values"], X: Matrix) -> Float[Tensor, ""]:
    """The singular value of X, in float64, up to which the others count as 0."""
    return max(X.shape) * torch.finfo(torch.float64).eps * S.max()


class Errors(NamedTuple):
    """Standard errors of a least-squares fit, and the degrees of freedom of its residuals.

    Args:
        weight: Of each coefficient.
        bias: Of the intercept.
        noise: The estimated standard deviation of an example of weight 1.
        freedom: Rows less coefficients less 1.
    """

    weight: Float[Tensor, " features"]
    bias: Float[Tensor, ""]
    noise: Float[Tensor, ""]
    freedom: int


def standard_errors(X: Matrix, y: Vector, weight: Vector | None = None) -> Errors:
    r"""The standard errors of the coefficients of :func:`minimum_norm_solution`.

    .. math:: \hat\sigma^2 = \frac{\sum_i a_i r_i^2}{n - d - 1}, \quad
        \mathrm{Cov}(w) = \hat\sigma^2 (X_c^\top A X_c)^{-1}, \quad
        \mathrm{Var}(b) = \hat\sigma^2 / \textstyle\sum_i a_i + \bar x^\top \mathrm{Cov}(w)\, \bar x

    They hold for y_i = w . x_i + b + e_i with independent errors of mean 0 and variance sigma^2 / a_i.

    Args:
        X: Features, one example a row.
        y: The value of each row.
        weight: a, positive; None: 1.

    Raises:
        ValueError: The columns and a constant are linearly dependent, or there are not more rows than
            coefficients: then the errors are not determined.

    Reference: Hastie, Tibshirani and Friedman 2009, Equations 3.8 and 3.10; Seber and Lee 2003, Section 3.10.
    """
    X, y = X.double(), y.double()
    weight = torch.ones_like(y) if weight is None else weight.double()
    w, b, rank = minimum_norm_solution(X, y, weight)
    freedom = len(X) - X.shape[1] - 1
    if rank < X.shape[1] or freedom < 1:
        raise ValueError(
            "standard errors need independent columns and more rows than coefficients: "
            f"got {len(X)} rows, {X.shape[1]} columns and a constant, rank {rank} without the constant"
        )
    Xc, center = centered(X, weight)
    _, S, Vh = torch.linalg.svd(scaled(Xc, weight), full_matrices=False)
    root = Vh.T / S  # Cov(w) = noise^2 root root^T
    noise = ((weight * (X @ w + b - y).square()).sum() / freedom).sqrt()
    shift = (1 / weight.sum() + (center @ root).square().sum()).sqrt()
    return Errors(noise * root.norm(dim=1), noise * shift, noise, freedom)


def gaussian_log_likelihood(
    X: Matrix, y: Vector, w: Float[Tensor, " features"], b: Float[Tensor, ""], variance: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    r"""The log-likelihood, in nats, of an affine map for values with Gaussian noise.

    .. math:: \log p(y) = -\frac{\|Xw + b - y\|^2}{2 s^2} - \frac n2 \log(2 \pi s^2)

    For any variance s^2 it is largest at the least-squares (w, b), and there at s^2 = mean squared residual.

    Args:
        X: Features, one example a row.
        y: The value of each row.
        w: Coefficients.
        b: Intercept.
        variance: s^2 > 0.

    Reference: Bishop 2006, Equations 3.11 and 3.21.
    """
    squares = (X @ w + b - y).square().sum()
    return -squares / (2 * variance) - len(y) / 2 * (2 * math.pi * variance).log()


def least_squares() -> Step:
    """One exact solve on the batch: the weights of smallest squared error, and of those the shortest."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight = rows_of(state, batch, learner="least squares")
        w, b, rank = minimum_norm_solution(x, y, even(weight))
        return {"loss": write_solution(state, w, b, x, y, weight), "rank": float(rank)}

    return step


def write_solution(  # 6 parameters: a solution and the rows that it is judged on
    state: State, w: Tensor, b: Tensor, x: Matrix, y: Vector, weight: Vector
) -> Tensor:
    """Put (w, b) into the core of a state; the mean squared error of the core, as rounded, on the rows."""
    model: Any = state.core
    model.weight.copy_(w)
    model.bias.copy_(b)
    residual = x @ model.weight.double() + model.bias.double() - y
    return (weight * residual.square()).sum() / weight.sum()
