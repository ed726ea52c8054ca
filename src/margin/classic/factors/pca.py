"""Principal component analysis (Pearson 1901; Hotelling 1933): the subspace nearest to the centered rows."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.classic.linear.rows import Matrix, Vector, centered, covariance, eigenvectors, rows_of, scaled
from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step


class PCA(nn.Module):
    """The projection onto top eigenvectors of the covariance: codes z = A (x - mean), decoded A^T z + mean.

    Args:
        in_features: Number of features d; an input of more axes is flattened.
        components: Number of eigenvectors m, from 1 to d.

    Raises:
        ValueError: The number of components is out of range.

    Reference:
        Hotelling 1933, Section 4; Hastie, Tibshirani and Friedman 2009, Section 14.5.1.
    """

    def __init__(self, in_features: int, *, components: int = 2) -> None:
        super().__init__()
        if not 1 <= components <= in_features:
            raise ValueError(
                f"components must be from 1 to the number of features, {in_features}: got {components}"
            )
        self.mean = nn.Parameter(torch.zeros(in_features))
        self.axes = nn.Parameter(torch.eye(components, in_features))
        self.spectrum: Tensor
        self.register_buffer("spectrum", torch.zeros(in_features))

    def encode(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The coordinates of each row along the axes."""
        return (x.flatten(1) - self.mean) @ self.axes.T

    def decode(self, codes: Float[Tensor, "batch components"]) -> Float[Tensor, "batch dim"]:
        """The point of the subspace that has these coordinates."""
        return codes @ self.axes + self.mean

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, "batch components"]:
        """The codes of each row."""
        return self.encode(x)


def principal_axes(
    X: Matrix, components: int, weight: Vector | None = None
) -> tuple[Float[Tensor, " features"], Float[Tensor, "components features"], Float[Tensor, " features"]]:
    r"""The mean, the top eigenvectors of the covariance, and all its eigenvalues, falling; in float64.

    .. math:: S = \frac{\sum_i a_i (x_i - \bar x)(x_i - \bar x)^\top}{\sum_i a_i}

    With more rows than features S is formed, and eigenvalues below the largest's eps are noise; else the
    singular values of the rows are taken. Time is O(rows features min(rows, features)). The largest
    coordinate of an eigenvector is positive.

    Args:
        X: Features, one example a row.
        components: Number of eigenvectors, at most rows and features.
        weight: a, positive; None: 1.

    Raises:
        ValueError: There are fewer rows or features than components.

    Reference: Hastie, Tibshirani and Friedman 2009, Equation 14.54; divided by n, not n - 1.
    """
    rows, features = X.shape
    if not 1 <= components <= min(rows, features):
        raise ValueError(
            f"components must be from 1 to the rows and features, {rows} and {features}: got {components}"
        )
    X = X.double()
    weight = None if weight is None else weight.double() / weight.double().mean()
    if rows >= features:
        mean, S = covariance(X, weight)
        values, vectors = eigenvectors(S)
        spectrum, axes = values.flip(0).clamp(min=0), vectors.T.flip(0)[:components]
    else:
        Xc, mean = centered(X, weight)
        _, S, Vh = torch.linalg.svd(scaled(Xc, weight), full_matrices=False)
        spectrum, axes = torch.cat((S.square() / rows, S.new_zeros(features - rows))), Vh[:components]
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return mean, axes * torch.where(largest < 0, -1.0, 1.0), spectrum


def principal_components() -> Step:
    """One exact solve on the batch: the mean and the axes of largest variance."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        x, _, weight = rows_of(state, batch, learner="PCA", targets=False)
        model: Any = state.core
        mean, axes, spectrum = principal_axes(x, len(model.axes), weight)
        for place, value in ((model.mean, mean), (model.axes, axes), (model.spectrum, spectrum)):
            place.copy_(value)
        top = spectrum[: len(axes)].sum()
        return {"loss": spectrum.sum() - top, "explained": top / spectrum.sum().clamp(min=1e-300)}

    return step
