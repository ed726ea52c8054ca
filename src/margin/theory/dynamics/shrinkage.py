r"""What a penalty on squared length does to a quadratic loss: shrinkage, effective parameters, a radius.

The loss is :math:`\frac12 (\theta - \theta^*)^\top H (\theta - \theta^*)`, a least-squares problem with
H = X^T X in particular; the penalty :math:`\frac\mu2 \|\theta\|^2` (Hoerl and Kennard 1970).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

STEPS = 100
"""Newton steps after which a radius is given up; a few are usual."""


class Constrained(NamedTuple):
    """The minimizer in a ball, and the multiplier of its constraint."""

    theta: Float[Tensor, " n"]
    multiplier: float


def shrinkage(eigenvalues: Float[Tensor, " n"], mu: float) -> Float[Tensor, " n"]:
    r"""The factor :math:`\lambda / (\lambda + \mu)` by which each direction of the minimizer shrinks.

    Args:
        eigenvalues: Of H, not negative.
        mu: The penalty, positive.

    Raises:
        ValueError: The penalty is not positive and finite, or an eigenvalue is negative.

    Reference: Goodfellow, Bengio and Courville 2016, Section 7.1.1; Hoerl and Kennard 1970, Section 2.
    """
    _check_penalty(mu)
    if bool((eigenvalues < 0).any()):
        raise ValueError(f"eigenvalues must not be negative: got {float(eigenvalues.min()):g}")
    return eigenvalues / (eigenvalues + mu)


def effective_parameters(eigenvalues: Float[Tensor, " n"], mu: float) -> Float[Tensor, ""]:
    r"""The effective degrees of freedom :math:`\sum_i \lambda_i / (\lambda_i + \mu)`: the smoother's trace.

    Args:
        eigenvalues: Of H, not negative.
        mu: The penalty, positive.

    Reference: Hastie, Tibshirani and Friedman 2009, Equation 3.50.
    """
    return shrinkage(eigenvalues, mu).sum()


def penalized_minimizer(
    H: Float[Tensor, "n n"], theta: Float[Tensor, " n"], mu: float
) -> Float[Tensor, " n"]:
    r"""The minimizer :math:`(H + \mu I)^{-1} H \theta^*` of the penalized quadratic loss.

    Args:
        H: Symmetric, positive semidefinite.
        theta: theta*, a minimizer of the loss alone.
        mu: The penalty, positive.

    Raises:
        ValueError: The penalty is not positive and finite.

    Reference: Goodfellow, Bengio and Courville 2016, Section 7.1.1.
    """
    _check_penalty(mu)
    solved: Tensor = torch.linalg.solve(H + mu * torch.eye(len(H), dtype=H.dtype, device=H.device), H @ theta)
    return solved


def _check_penalty(mu: float) -> None:
    if not 0 < mu < math.inf:
        raise ValueError(f"the penalty must be positive and finite: got {mu}")


def constrained_minimizer(H: Float[Tensor, "n n"], theta: Float[Tensor, " n"], radius: float) -> Constrained:
    r"""The minimizer of the quadratic loss in the ball :math:`\|\theta\| \le r`, with its multiplier.

    .. math:: H (\theta - \theta^*) + \mu \theta = 0, \quad \mu \ge 0, \quad \mu (\|\theta\| - r) = 0

    Outside of the ball mu solves the secular equation 1 / |theta(mu)| = 1 / r, whose left side is concave and
    increases: Newton's method from 0 comes nearer from one side.

    Args:
        H: Symmetric, positive semidefinite.
        theta: theta*, the minimizer of the loss alone; of several, the shortest.
        radius: r > 0.

    Returns:
        The minimizer and mu in float64; mu is 0 where theta* lies in the ball.

    Raises:
        ValueError: The radius is not positive and finite, or Newton's method did not converge.

    Reference:
        Boyd and Vandenberghe 2004, Section 5.5.3 (KKT conditions); Moré and Sorensen 1983, Section 3 (the
        secular equation).
    """
    if not 0 < radius < math.inf:
        raise ValueError(f"the radius must be positive and finite: got {radius}")
    eigenvalues, basis = torch.linalg.eigh(H.double())
    eigenvalues = eigenvalues.clamp(min=0)
    b = eigenvalues * (basis.T @ theta.double())  # H theta* in the eigenbasis
    null = eigenvalues <= len(H) * torch.finfo(torch.float64).eps * eigenvalues.max()
    b = torch.where(null, 0, b)
    free = torch.where(null, 0, b / eigenvalues.where(~null, 1))
    if float(free.norm()) <= radius:
        return Constrained(basis @ free, 0.0)
    mu = 0.0
    for _ in range(STEPS):
        shifted = (eigenvalues + mu).where(~null, 1)
        point = b / shifted
        length = float(point.norm())
        slope = float((point.square() / shifted).sum()) / length**3  # of 1 / |theta(mu)|
        step = (1 / radius - 1 / length) / slope
        mu += step
        if step <= 1e-14 * mu:
            return Constrained(basis @ (b / (eigenvalues + mu).where(~null, 1)), mu)
    raise ValueError(f"the secular equation did not converge in {STEPS} steps for radius {radius:g}")


def optimal_decay(noise_variance: float, prior_variance: float) -> float:
    r"""The penalty :math:`\mu = s^2 / u^2` of least expected squared error, and of the Gaussian MAP.

    Of a least-squares problem with summed loss :math:`\frac12 \|y - X \theta\|^2`, noise of variance s^2 and
    coefficients of variance u^2 and mean 0. In every eigendirection of X^T X it minimizes
    :func:`shrinkage_risk`; where noise and coefficients are Gaussian it makes the penalized minimizer the
    mean, and the mode, of the posterior.

    Args:
        noise_variance: s^2 > 0.
        prior_variance: u^2 > 0.

    Raises:
        ValueError: A variance is not positive and finite.

    Reference: Hoerl and Kennard 1970, Section 5; Bishop 2006, Equations 3.52 to 3.55.
    """
    for name, variance in (("noise_variance", noise_variance), ("prior_variance", prior_variance)):
        if not 0 < variance < math.inf:
            raise ValueError(f"{name} must be positive and finite: got {variance}")
    return noise_variance / prior_variance


def shrinkage_risk(
    eigenvalues: Float[Tensor, " n"], mu: float, noise_variance: float, prior_variance: float
) -> Float[Tensor, " n"]:
    r"""The expected squared error of each coefficient of the penalized least-squares estimate.

    .. math:: \frac{\lambda s^2 + \mu^2 u^2}{(\lambda + \mu)^2}

    the variance of the estimate and the square of its bias, in the eigenbasis of X^T X.

    Args:
        eigenvalues: Of X^T X, positive.
        mu: The penalty, not negative.
        noise_variance: s^2, of a target.
        prior_variance: u^2, the mean square of a coefficient.

    Reference: Hoerl and Kennard 1970, Section 4.
    """
    return (eigenvalues * noise_variance + mu**2 * prior_variance) / (eigenvalues + mu).square()
