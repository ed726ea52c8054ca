"""Means and covariances: of finite laws, of affine maps and of sums (Casella and Berger 2002, Chapter 4).

Finite laws: tensors of probabilities, at least 0, that sum to 1 (Kolmogorov 1933).

Densities of scaled variables and of sums (Casella and Berger 2002, Theorems 3.5.1 and 5.2.9).
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, finfo

from margin.math.calculus.derivatives import integrate

ROUNDING = 1e-5
"""How far a sum may be from 1: laws that were rounded to single precision pass in double too."""


def check_law(probabilities: Float[Tensor, "..."], axes: int = 1, name: str = "probabilities") -> None:
    """Refuse what is no law along the last ``axes`` axes.

    Args:
        probabilities: One law, or a batch of laws.
        axes: Number of axes over which one law extends.
        name: How a message calls it.

    Raises:
        ValueError: An axis is missing, an entry is negative or not finite, or a sum is not 1.
    """
    if axes < 1 or probabilities.ndim < axes:
        raise ValueError(
            f"{name} must have an axis for each variable: got shape {tuple(probabilities.shape)}"
        )
    bad = ~(probabilities >= 0) | probabilities.isinf()
    if bool(bad.any()):
        index = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name} must be finite and >= 0: got {probabilities[index].item():g} at {index}")
    totals = probabilities.flatten(-axes).sum(-1)
    off = (totals - 1).abs() > max(ROUNDING, 100 * finfo(probabilities.dtype).eps)
    if bool(off.any()):
        worst = totals.flatten()[(totals - 1).abs().argmax()]
        raise ValueError(f"{name} must sum to 1: got {worst.item():.6g}; divide by the sum")


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


Density = Callable[[Tensor], Tensor]


def scaled(density: Density, a: float) -> Density:
    r"""The density of a Y: the modulus of a keeps the integral 1 where a is negative.

    .. math:: f_{aY}(z) = f_Y(z / a) / |a|

    Args:
        density: f_Y.
        a: The factor, not 0.

    Raises:
        ValueError: ``a`` is 0: the law of 0 has no density.

    Reference: Casella and Berger 2002, Theorem 3.5.1.
    """
    if a == 0:
        raise ValueError("a factor must not be 0, or a Y has no density: got a=0")
    return lambda z: density(z / a) / abs(a)


def of_sum(
    f: Density,
    g: Density,
    z: Float[Tensor, "*batch"],
    *,
    f_support: tuple[float, float],
    g_support: tuple[float, float],
) -> Float[Tensor, "*batch"]:
    r"""The density of X + Y for independent X and Y: the convolution of theirs, by quadrature in float64.

    .. math:: f_{X+Y}(z) = \int f_X(x)\, f_Y(z - x)\, dx

    Args:
        f: Density of X.
        g: Density of Y.
        z: Where the density of the sum is wanted.
        f_support: The interval outside which f is 0 or negligible; inside, f is smooth.
        g_support: The same for g.

    Raises:
        ValueError: A support is no finite interval.

    Reference: Casella and Berger 2002, Theorem 5.2.9.
    """
    for start, end in (f_support, g_support):
        if not -math.inf < start < end < math.inf:
            raise ValueError(f"a support must be a finite interval, low < high: got ({start:g}, {end:g})")
    z = z.double()
    low = (z - g_support[1]).clamp_min(f_support[0])
    high = torch.maximum((z - g_support[0]).clamp_max(f_support[1]), low)
    return integrate(lambda x: f(x) * g(z[..., None] - x), low, high)
