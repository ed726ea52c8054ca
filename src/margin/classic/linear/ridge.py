"""Ridge regression (Hoerl and Kennard 1970): least squares with a penalty on the squared length of w.

Kernel ridge regression (Saunders, Gammerman and Vovk 1998): ridge in the feature space of a kernel.
"""

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


Kernel = Literal["gaussian", "polynomial", "linear"]


class KernelRidge(nn.Module):
    r"""The function f(x) = sum_i c_i k(x_i, x) + b of least penalized squared error on the training examples.

    .. math:: \min_{f, b} \frac{\sum_i a_i (f(x_i) + b - y_i)^2}{2 \sum_i a_i} + \frac\lambda2 \|f\|_k^2

    Args:
        in_features: Number of features; an input of more axes is flattened.
        num_examples: Number of training examples, which the model keeps; a solve takes time n^3, memory n^2.
        kernel: gaussian, exp(-\|x - x'\|^2 / (2 d width^2)) of d features; polynomial,
            (x . x' / d + 1)^degree; linear, x . x'.
        penalty: lambda > 0.
        width: Width of the Gaussian, of a feature.
        degree: Degree of the polynomial, at least 1.

    Raises:
        ValueError: An option is out of range.

    Reference:
        Saunders, Gammerman and Vovk 1998, Equation 9; Suykens et al. 2002, Equation 3.5 (the intercept).
    """

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        kernel: Kernel = "gaussian",
        penalty: float = 0.01,
        width: float = 1.0,
        degree: int = 3,
    ) -> None:
        super().__init__()
        if kernel not in ("gaussian", "polynomial", "linear"):
            raise ValueError(f"kernel must be gaussian, polynomial or linear: got {kernel!r}")
        if not penalty > 0 or not width > 0 or degree < 1:
            got = f"penalty={penalty}, width={width}, degree={degree}"
            raise ValueError(f"kernel ridge needs penalty > 0, width > 0 and degree >= 1: got {got}")
        self.kernel, self.penalty, self.width, self.degree = kernel, penalty, width, degree
        self.examples: Tensor
        self.register_buffer("examples", torch.zeros(num_examples, in_features))
        self.coefficients = nn.Parameter(torch.zeros(num_examples))
        self.bias = nn.Parameter(torch.zeros(()))

    def gram(
        self, x: Float[Tensor, "rows features"], z: Float[Tensor, "others features"]
    ) -> Float[Tensor, "rows others"]:
        """k(x, z) of every pair."""
        dim = x.shape[1]
        if self.kernel == "linear":
            return x @ z.T
        if self.kernel == "polynomial":
            return (x @ z.T / dim + 1) ** self.degree
        distance = torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")
        return (distance.square() / (-2 * dim * self.width**2)).exp()

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row."""
        return self.gram(x.flatten(1), self.examples) @ self.coefficients + self.bias


def dual_solution(
    K: Float[Tensor, "rows rows"], y: Vector, penalty: float, weight: Vector
) -> tuple[Vector, Float[Tensor, ""]]:
    r"""The coefficients c and the intercept b of least penalized squared error.

    .. math:: M = K + n \lambda A^{-1}, \quad b = \frac{1^\top M^{-1} y}{1^\top M^{-1} 1}, \quad
        c = M^{-1}(y - b 1), \quad n = \textstyle\sum_i a_i

    Setting the derivative in b to 0 gives 1^T c = 0: the intercept is not penalized.

    Args:
        K: k(x_i, x_j), positive semidefinite.
        y: The value of each row.
        penalty: lambda > 0.
        weight: a, positive.

    Raises:
        ValueError: M is singular to working precision.

    Reference: Suykens et al. 2002, Equation 3.5.
    """
    M = K + torch.diag(weight.sum() * penalty / weight)
    factor, info = torch.linalg.cholesky_ex(M)
    if int(info):
        raise ValueError(f"the penalty must exceed the rounding of the kernel matrix: got {penalty:g}")
    solved = torch.cholesky_solve(torch.stack((y, torch.ones_like(y)), 1), factor)
    b = solved[:, 0].sum() / solved[:, 1].sum()
    return solved[:, 0] - b * solved[:, 1], b


def kernel_ridge() -> Step:
    """One exact solve on all training examples, which the model then holds."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, y, weight = rows_of(state, batch, learner="kernel ridge")
        model: Any = state.core
        K = model.gram(x, x)
        c, b = dual_solution(K, y, model.penalty, weight)
        # an example of weight 0 is not among the rows: its place stays empty, with coefficient 0
        model.examples.zero_()[: len(x)] = x.to(model.examples)
        model.coefficients.zero_()[: len(x)] = c.to(model.coefficients)
        model.bias.copy_(b)
        return {"loss": (weight * (K @ c + b - y).square()).sum() / weight.sum()}

    return step
