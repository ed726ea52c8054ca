"""Least squares (Gauss 1809), solved exactly: the affine map of smallest squared error and norm."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.engine.state import State, Step
from margin.tasks import squared_error
from margin.types import Batch, Metrics


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
    X: Float[Tensor, "rows features"], y: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " features"], Float[Tensor, ""], int]:
    r"""The (w, b) of least squared error; among several, that of smallest \|w\|.

    .. math:: w = X_c^+ (y - \bar y), \quad b = \bar y - \bar x \cdot w, \quad X_c = X - 1 \bar x^\top

    The bias is not penalized, hence the centering. Singular values below
    ``max(rows, features) * eps`` times the largest count as 0, as in ``numpy.linalg.matrix_rank``.

    Returns:
        w, b and the rank of the centered matrix, all computed in float64.

    Reference:
        Penrose 1956, Theorem (best approximate solution); Golub and Van Loan 2013, Section 5.5.
    """
    X, y = X.double(), y.double()
    center, mean = X.mean(0), y.mean()
    U, S, Vh = torch.linalg.svd(X - center, full_matrices=False)
    cutoff = max(X.shape) * torch.finfo(torch.float64).eps * S.max()
    kept = cutoff < S
    inverse = torch.where(kept, 1 / S.where(kept, 1), 0)
    w = Vh.T @ (inverse * (U.T @ (y - mean)))
    return w, mean - center @ w, int(kept.sum())


def least_squares() -> Step:
    """One exact solve on the batch: the weights of smallest squared error, and of those the shortest."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("least squares needs targets: the data have none")
        x = state.features(batch).flatten(1)
        w, b, rank = minimum_norm_solution(x, batch.targets)
        model: Any = state.core
        model.weight.copy_(w)
        model.bias.copy_(b)
        return {"loss": squared_error(model(x), batch.targets).mean(), "rank": float(rank)}

    return step
