"""Means and covariances: of finite laws, of affine maps and of sums (Casella and Berger 2002, Chapter 4)."""

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.laws import check_law


def mean(points: Float[Tensor, " points *shape"], p: Float[Tensor, " points"]) -> Float[Tensor, "*shape"]:
    """The mean E X = sum_i p_i x_i of a finite law.

    Args:
        points: The values x_i that X takes.
        p: Their probabilities.

    Raises:
        ValueError: ``p`` is no law.
    """
    check_law(p, name="p")
    return torch.tensordot(p, points, 1)


def covariance(points: Float[Tensor, "points dim"], p: Float[Tensor, " points"]) -> Float[Tensor, "dim dim"]:
    """The covariance E (X - E X)(X - E X)^T of a finite law, the variances on its diagonal.

    Args:
        points: The vectors x_i that X takes.
        p: Their probabilities.

    Raises:
        ValueError: ``p`` is no law.
    """
    centered = points - mean(points, p)
    return centered.mT @ (p[:, None] * centered)


def affine_moments(
    mean: Float[Tensor, " dim"],
    covariance: Float[Tensor, "dim dim"],
    A: Float[Tensor, "out dim"],
    b: Float[Tensor, " out"],
) -> tuple[Float[Tensor, " out"], Float[Tensor, "out out"]]:
    """Mean and covariance (A m + b, A S A^T) of A X + b, whatever the law of X; a shift moves no variance.

    Args:
        mean: m = E X.
        covariance: S = Cov X.
        A: A linear map.
        b: A shift.
    """
    return A @ mean + b, A @ covariance @ A.mT


def variance_of_sum(
    coefficients: Float[Tensor, " dim"], covariance: Float[Tensor, "dim dim"]
) -> Float[Tensor, ""]:
    r"""The variance of a linear combination: every pair counts twice.

    .. math:: \mathrm{Var}\Big(\sum_i a_i X_i\Big)
        = \sum_i a_i^2\, \mathrm{Var}\, X_i + 2 \sum_{i<j} a_i a_j\, \mathrm{Cov}(X_i, X_j) = a^\top S a

    Args:
        coefficients: The a_i.
        covariance: S, the covariance of the X_i.

    Reference: Casella and Berger 2002, Theorem 4.5.6.
    """
    return coefficients @ covariance @ coefficients
