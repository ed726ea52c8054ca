"""Kernel ridge regression (Saunders, Gammerman and Vovk 1998): ridge in the feature space of a kernel."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.rows import Vector, rows_of
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step

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
