"""The rows of a least-squares problem in float64: centered, scaled by their weights, their Gram matrix."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from margin.core.findings import Subject
from margin.core.types import Batch
from margin.engine import weighted_rows
from margin.engine.loop import State
from margin.engine.weighted_rows import batch_rows

CHUNK = 2048
"""Rows that are centered at a time: they stay in the cache."""

Matrix = Float[Tensor, "rows features"]
Vector = Float[Tensor, " rows"]


class Rows(NamedTuple):
    """Examples that count, as a model's core sees them, in float64.

    Args:
        x: Features, one example a row.
        y: Targets; labels as numbers; empty where a model asks for none.
        weight: How much each counts, positive.
    """

    x: Matrix
    y: Float[Tensor, " targets"]
    weight: Vector


def rows_of(state: State, batch: Batch, *, learner: str, targets: bool = True) -> Rows:
    """The rows of a batch whose weight is not 0, as :func:`batch_rows` reads them, in float64."""
    return Rows(*batch_rows(state, batch, learner=learner, targets=targets).double()[:3])


def training_rows(subject: Subject, *, targets: bool = True) -> Rows:
    """The training examples of a subject, as its core sees them, in float64."""
    return Rows(*weighted_rows.training_rows(subject, targets=targets).double()[:3])


def centered(values: Float[Tensor, "rows ..."], weight: Vector | None = None) -> tuple[Tensor, Tensor]:
    """The values less their weighted mean, and the mean; a column of one value becomes exactly 0.

    Args:
        values: One example a row, at least one.
        weight: How much each counts; None: 1.
    """
    # relative to the first row: a large mean would leave its rounding behind where nothing varies
    shifted = torch.sub(values, values[0], out=_room_for(values))
    mean = shifted.mean(0) if weight is None else torch.tensordot(weight / weight.sum(), shifted, 1)
    shifted -= mean
    return shifted, values[0] + mean


def _room_for(values: Tensor) -> Tensor:
    """An empty tensor like ``values``: of NumPy's memory, whose large pages cost less when first written."""
    if values.device.type != "cpu":
        return torch.empty_like(values)
    return torch.from_numpy(np.empty(values.shape, dtype=str(values.dtype).removeprefix("torch.")))


def scaled(values: Float[Tensor, "rows ..."], weight: Vector | None) -> Tensor:
    """Each row times the root of its weight: sums of squares of the result are weighted sums."""
    if weight is None:
        return values
    return values * weight.sqrt().reshape(-1, *[1] * (values.ndim - 1))


def gram(X: Matrix) -> Float[Tensor, "features features"]:
    """X^T X. On the CPU by NumPy, which computes one half and mirrors it; torch computes both."""
    if X.device.type != "cpu":
        return X.T @ X
    rows = X.detach().numpy()
    return torch.from_numpy(rows.T @ rows)


def eigenvectors(
    S: Float[Tensor, "dim dim"],
) -> tuple[Float[Tensor, " dim"], Float[Tensor, "dim dim"]]:
    """The eigenvalues of a symmetric matrix, rising, and its eigenvectors, one a column.

    On the CPU by NumPy, whose LAPACK takes three quarters of the time of torch's.
    """
    if S.device.type != "cpu":
        return torch.linalg.eigh(S)
    values, vectors = np.linalg.eigh(S.detach().numpy())
    return torch.from_numpy(values), torch.from_numpy(vectors)


def covariance(
    X: Matrix, weight: Vector | None = None
) -> tuple[Float[Tensor, " features"], Float[Tensor, "features features"]]:
    r"""The mean and the covariance sum_i a_i (x_i - m)(x_i - m)^T / sum_i a_i of rows, in one type.

    Rows are centered a chunk at a time, so it takes no memory; a column of one value has variance 0.

    Args:
        X: Features, one example a row.
        weight: a, positive; None: 1.
    """
    share = torch.full_like(X[:, 0], 1 / len(X)) if weight is None else weight / weight.sum()
    chunks = list(zip(X.split(CHUNK), share.split(CHUNK), strict=True))
    mean = X[0] + torch.stack([a @ (rows - X[0]) for rows, a in chunks]).sum(0)
    S = X.new_zeros(X.shape[1], X.shape[1])
    for rows, a in chunks:
        S += gram(scaled(rows - mean, a))
    return mean, S


def even(weight: Vector) -> Vector | None:
    """The weights, or None where all are equal and so change no minimizer of a mean."""
    return None if bool((weight == weight[0]).all()) else weight
