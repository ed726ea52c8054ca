"""Algebra of Gaussian vectors: affine maps, sums, marginals, conditionals, maximum likelihood.

Density, entropy and divergence are ``torch.distributions.MultivariateNormal``'s. Bishop (2006), Section 2.3.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.moments import affine_moments

Matrix = Float[Tensor, "dim dim"]


class Gaussian(NamedTuple):
    """The law N(mean, covariance) of a vector.

    Args:
        mean: The mean.
        covariance: A symmetric positive semidefinite matrix.
    """

    mean: Float[Tensor, " dim"]
    covariance: Matrix


def maximum_likelihood(x: Float[Tensor, "samples dim"]) -> Gaussian:
    r"""The Gaussian under which the samples are most probable; the covariance is divided by n, not n - 1.

    .. math:: \hat m = \tfrac1n \sum_i x_i, \quad \hat S = \tfrac1n \sum_i (x_i - \hat m)(x_i - \hat m)^\top

    Args:
        x: Samples, one a row. With more than ``dim`` of them in general position S is positive definite.

    Raises:
        ValueError: There is no sample.

    Reference: Anderson 2003, Theorem 3.2.1; Bishop 2006, Equations 2.121 and 2.122.
    """
    if len(x) == 0:
        raise ValueError("a maximum-likelihood fit needs a sample: got 0 rows")
    mean = x.mean(0)
    return Gaussian(mean, second_moment(x - mean))


def affine(x: Gaussian, M: Float[Tensor, "out dim"], b: Float[Tensor, " out"]) -> Gaussian:
    """The law N(M m + b, M S M^T) of M x + b.

    Args:
        x: The law N(m, S) of x.
        M: A linear map.
        b: A shift.

    Reference: Anderson 2003, Section 2.4.
    """
    return Gaussian(*affine_moments(x.mean, x.covariance, M, b))


def independent_sum(x: Gaussian, y: Gaussian) -> Gaussian:
    """The law of x + y for independent x and y: means and covariances add.

    Without independence the sum may be anything: y = -x has the law of -x, and x + y = 0.

    Args:
        x: One law.
        y: Another, of the same dimension.

    Raises:
        ValueError: The dimensions differ.
    """
    if x.mean.shape != y.mean.shape:
        raise ValueError(f"a sum needs one dimension: got {len(x.mean)} and {len(y.mean)}")
    return Gaussian(x.mean + y.mean, x.covariance + y.covariance)


def marginal(x: Gaussian, coordinates: Sequence[int]) -> Gaussian:
    """The law of some coordinates, in the order given: their entries of mean and covariance.

    Args:
        x: The law of all coordinates.
        coordinates: Which to keep, each once.

    Raises:
        ValueError: A coordinate does not exist or comes twice, or none is given.

    Reference: Bishop 2006, Equation 2.98.
    """
    index = torch.tensor(_checked(coordinates, len(x.mean)), device=x.mean.device)
    return Gaussian(x.mean[index], x.covariance[index][:, index])


def conditional(
    x: Gaussian, known: Sequence[int], values: Float[Tensor, "*batch known"]
) -> tuple[Float[Tensor, "*batch rest"], Float[Tensor, "rest rest"]]:
    r"""The law of the other coordinates given the values of the ``known``.

    .. math:: N\big(m_1 + S_{12} S_{22}^{-1} (x_2 - m_2),\; S_{11} - S_{12} S_{22}^{-1} S_{21}\big)

    The covariance, a Schur complement, does not depend on the values. Computed in float64.

    Args:
        x: The law of all coordinates.
        known: Which are known (block 2), each once; not all.
        values: Their values x_2, a batch of them.

    Returns:
        The mean for each batch of values, and the covariance, of the other coordinates in their order.

    Raises:
        ValueError: A coordinate does not exist or comes twice, none or all are known, the number of values is
            another, or the covariance of the known is not positive definite.

    Reference: Bishop 2006, Equations 2.81 and 2.82.
    """
    chosen = _checked(known, len(x.mean))
    rest = [i for i in range(len(x.mean)) if i not in chosen]
    if not rest or values.shape[-1] != len(chosen):
        raise ValueError(
            f"some coordinates are known, not all {len(x.mean)}, with a value each: "
            f"got {len(chosen)} known, {values.shape[-1]} values"
        )
    one, two = marginal(x, rest), marginal(x, chosen)
    cross = x.covariance[rest][:, chosen].double()
    factor = _cholesky(two.covariance.double(), "the covariance of the known coordinates")
    half = torch.linalg.solve_triangular(factor, cross.mT, upper=False)
    gain = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    mean = one.mean.double() + (values - two.mean).double() @ gain
    covariance = one.covariance.double() - half.mT @ half
    return mean.to(x.mean), covariance.to(x.covariance)


def second_moment(x: Float[Tensor, "samples dim"]) -> Matrix:
    """The matrix S = X^T X / n of samples of mean 0: the covariance under which they are most probable.

    Args:
        x: Samples, one a row.

    Raises:
        ValueError: There is no sample.
    """
    if len(x) == 0:
        raise ValueError("a second moment needs a sample: got 0 rows")
    return x.mT @ x / len(x)


def covariance_log_likelihood(S: Matrix, A: Matrix, samples: int) -> Float[Tensor, ""]:
    r"""The log-likelihood, in nats, of the covariance A for samples of mean 0 with second moment S.

    .. math:: \log p = -\tfrac n2 \big(\mathrm{tr}(S A^{-1}) + \log\det A + d \log 2\pi\big)

    Largest at A = S. With the sign of log det A turned it would grow without bound.

    Args:
        S: (1/n) X^T X.
        A: A positive definite matrix.
        samples: n.

    Raises:
        ValueError: A is not positive definite.

    Reference: Anderson 2003, Theorem 3.2.1 and Lemma 3.2.2; Bishop 2006, Equation 2.118.
    """
    factor = _cholesky(A, "A")
    log_det = 2 * factor.diagonal().log().sum()
    misfit = torch.cholesky_solve(S, factor).trace()
    return -samples / 2 * (misfit + log_det + len(A) * math.log(2 * math.pi))


def covariance_score(S: Matrix, A: Matrix, samples: int) -> Matrix:
    r"""The gradient of the log-likelihood in A: 0 at A = S.

    .. math:: -\tfrac n2 \big(A^{-\top} - (A^{-1} S A^{-1})^\top\big)

    Args:
        S: (1/n) X^T X.
        A: A positive definite matrix.
        samples: n.

    Raises:
        ValueError: A is not positive definite.

    Reference: Petersen and Pedersen 2012, Equations 57 and 63.
    """
    inverse = torch.cholesky_inverse(_cholesky(A, "A"))
    return -samples / 2 * (inverse - inverse @ S @ inverse).mT


def _cholesky(matrix: Matrix, name: str) -> Matrix:
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) or not bool(factor.isfinite().all()):
        raise ValueError(f"{name} must be positive definite: the minor of order {int(info)} is not > 0")
    return factor


def _checked(coordinates: Sequence[int], dim: int) -> list[int]:
    chosen = list(coordinates)
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= i < dim for i in chosen):
        raise ValueError(f"coordinates must lie in 0 to {dim - 1}, each once, at least one: got {chosen}")
    return chosen
