"""Stationary kernels, functions of the squared distance of scaled inputs: Gaussian (RBF) and Matern's.

Rasmussen and Williams (2006), Sections 4.2.1 and 5.1. A kernel is written once, with its derivative in the
squared distance: from that one matrix the derivative of the evidence in every length scale is two products,
O(n^2 d), where the derivative of the kernel matrix in each would be d matrices.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Kernel = Literal["rbf", "matern12", "matern32", "matern52"]
"""exp(-r^2/2), and Matern's kernels of smoothness 1/2, 3/2 and 5/2."""

Rows = Float[Tensor, "rows features"]
Square = Float[Tensor, "rows rows"]


class Hyperparameters(NamedTuple):
    """What the evidence decides.

    Args:
        scales: Length scale of each feature, or one of all, (1,).
        signal: Variance of the function at a point, positive.
        noise: Variance of a value about the function, at least 0.
    """

    scales: Float[Tensor, " scales"]
    signal: Float[Tensor, ""]
    noise: Float[Tensor, ""]

    def log(self) -> Float[Tensor, " numbers"]:
        """Their logarithms as one vector: scales, signal, noise."""
        return torch.cat((self.scales, torch.stack((self.signal, self.noise)))).log()

    @staticmethod
    def of_log(values: Float[Tensor, " numbers"]) -> "Hyperparameters":
        """Those of which ``values`` are the logarithms."""
        found = values.exp()
        return Hyperparameters(found[:-2], found[-2], found[-1])


def squared_distances(x: Rows, z: Float[Tensor, "others features"]) -> Float[Tensor, "rows others"]:
    """|x_i - z_j|^2 of every pair, by one product; what rounding makes negative is 0."""
    found = torch.addmm(z.square().sum(1)[None, :], x, z.T, alpha=-2)
    return found.add_(x.square().sum(1)[:, None]).clamp_min_(0)


def correlation(square: Float[Tensor, "*shape"], kernel: Kernel) -> Float[Tensor, "*shape"]:
    """The kernel of signal variance 1 at a squared distance.

    Args:
        square: r^2 of inputs that are divided by their length scales.
        kernel: Which.

    Raises:
        ValueError: There is no such kernel.

    Reference: Rasmussen and Williams 2006, Equations 4.9, 4.17 and 4.18 (here r carries the length scale).
    """
    if kernel == "rbf":
        return (square / -2).exp_()
    if kernel == "matern12":
        return (-square.sqrt()).exp()
    if kernel == "matern32":
        r = (3 * square).sqrt()
        return (1 + r) * (-r).exp()
    if kernel == "matern52":
        r = (5 * square).sqrt()
        return (1 + r + r.square() / 3) * (-r).exp()
    raise ValueError(f"kernel must be rbf, matern12, matern32 or matern52: got {kernel!r}")


def slope(square: Float[Tensor, "*shape"], kernel: Kernel) -> Float[Tensor, "*shape"]:
    """The derivative of :func:`correlation` in r^2; of matern12 at r = 0, where there is none, 0."""
    if kernel == "rbf":
        return (square / -2).exp() / -2
    if kernel == "matern12":
        r = square.sqrt()
        return torch.where(r > 0, (-r).exp() / (-2 * r.where(r > 0, 1)), 0)
    if kernel == "matern32":
        return -1.5 * (-(3 * square).sqrt()).exp()
    if kernel == "matern52":
        r = (5 * square).sqrt()
        return -5 / 6 * (1 + r) * (-r).exp()
    raise ValueError(f"kernel must be rbf, matern12, matern32 or matern52: got {kernel!r}")


def gram(
    x: Rows, z: Float[Tensor, "others features"], found: Hyperparameters, kernel: Kernel
) -> Float[Tensor, "rows others"]:
    """The covariance of the function at every pair of points, without noise."""
    return found.signal * correlation(squared_distances(x / found.scales, z / found.scales), kernel)


def gradient(
    weight: Square, x: Rows, found: Hyperparameters, kernel: Kernel, square: Square, K: Square
) -> Float[Tensor, " numbers"]:
    r"""(1/2) sum_ij W_ij dK_ij / d log theta of the length scales and the signal variance.

    With S_ij = W_ij s^2 k'(r_ij^2) and z = x / l the derivative in log l_f is
    -sum_ij S_ij (z_if - z_jf)^2 = -2 (sum_i z_if^2 sum_j S_ij - (z^T S z)_ff).

    Args:
        weight: W, symmetric: of the evidence of regression a a^T - (K + noise)^-1.
        x: The rows.
        found: Where the derivative is taken.
        kernel: Which.
        square: The squared distances of the scaled rows.
        K: Their kernel matrix.

    Reference: Rasmussen and Williams 2006, Equation 5.9.
    """
    S = slope(square, kernel).mul_(found.signal).mul_(weight)
    z = x / found.scales
    each = -2 * (S.sum(1) @ z.square() - (z * (S @ z)).sum(0))
    scales = each if len(found.scales) > 1 or x.shape[1] == 1 else each.sum()[None]
    return torch.cat((scales, torch.tensordot(weight, K, 2)[None] / 2))


def initial(features: int, shared: bool, lengthscale: float | None, noise: float) -> Hyperparameters:
    """Where a search begins: length scale sqrt(d) of d standardized features, signal variance 1.

    Raises:
        ValueError: A length scale is not positive, or a noise variance negative.
    """
    scale = math.sqrt(features) if lengthscale is None else lengthscale
    if not 0 < scale < math.inf:
        raise ValueError(f"lengthscale must be positive and finite: got {lengthscale}")
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise must be at least 0 and finite: got {noise}")
    one = torch.ones((), dtype=torch.float64)
    return Hyperparameters(scale * one.expand(1 if shared else features).clone(), one, noise * one)
