"""The inequalities of the field as functions: Chebyshev, Jensen, Cauchy-Schwarz, powers and geometric sums.

A bound is what theory promises; a gap is the side that is larger less the other, at least 0 but for rounding.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.moments import mean


def chebyshev_bound(variance: Float[Tensor, "*batch"], epsilon: float) -> Float[Tensor, "*batch"]:
    r"""The most that a law of this variance puts epsilon or farther from its mean.

    .. math:: P(|X - \mu| \ge \epsilon) \le \sigma^2 / \epsilon^2

    Equality for the law that puts p/2 at -epsilon and epsilon each, 1 - p at 0.

    Args:
        variance: sigma^2, at least 0.
        epsilon: The distance, above 0.

    Returns:
        The bound, at most 1.

    Raises:
        ValueError: ``epsilon`` or a variance is out of range.

    Reference: Casella and Berger 2002, Theorem 3.6.1 and Example 3.6.2.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0: got {epsilon:g}")
    if not bool((variance >= 0).all()):
        raise ValueError(f"a variance must be >= 0: got {variance.min().item():g}")
    return (variance / epsilon**2).clamp_max(1.0)


def jensen_gap(
    f: Callable[[Tensor], Tensor], points: Float[Tensor, " points *shape"], weights: Float[Tensor, " points"]
) -> Float[Tensor, ""]:
    r"""The mean of f less f of the mean: >= 0 for convex f, <= 0 for concave f.

    .. math:: \sum_i \lambda_i f(x_i) - f\Big(\sum_i \lambda_i x_i\Big)

    0 exactly where f is affine on the points of positive weight.

    Args:
        f: A function of one point that returns a scalar tensor.
        points: The x_i.
        weights: The lambda_i, a law.

    Raises:
        ValueError: The weights are no law.

    Reference: Jensen 1906; Cover and Thomas 2006, Theorem 2.6.2.
    """
    middle = mean(points, weights)
    values = torch.stack([f(point) for point in points])
    # where a law puts nothing, f may be infinite
    return torch.where(values.isfinite() | (weights > 0), weights * values, 0).sum() - f(middle)


def cauchy_schwarz_gap(
    u: Float[Tensor, "*batch dim"], v: Float[Tensor, "*batch dim"]
) -> Float[Tensor, "*batch"]:
    """The gap |u| |v| - |<u, v>| >= 0, which is 0 exactly where u and v are parallel.

    The inner product itself may be negative: v = -u. With a law's root as a factor of each coordinate this
    is E[XY]^2 <= E X^2 E Y^2.

    Reference: Horn and Johnson 2013, Theorem 5.1.4.
    """
    inner = torch.linalg.vecdot(u, v)
    return torch.linalg.vector_norm(u, dim=-1) * torch.linalg.vector_norm(v, dim=-1) - inner.abs()


def power_bound(epsilon: Float[Tensor, "*batch"], n: int) -> Float[Tensor, "*batch"]:
    """The bound e^(-n epsilon) >= (1 - epsilon)^n, from 1 - x <= e^-x, for epsilon <= 1.

    Args:
        epsilon: At most 1: above, 1 - epsilon is negative, and its even powers can exceed the bound.
        n: At least 0.

    Raises:
        ValueError: ``epsilon`` or ``n`` is out of range.

    Reference: Shalev-Shwartz and Ben-David 2014, Section 2.3.1.
    """
    if n < 0 or not bool((epsilon <= 1).all()):
        raise ValueError(f"the bound needs epsilon <= 1 and n >= 0: got {epsilon.max().item():g}, n={n}")
    return (-n * epsilon).exp()


def geometric_sum(a: float, r: Float[Tensor, "*batch"], terms: int) -> Float[Tensor, "*batch"]:
    r"""The sum a + a r + ... of ``terms`` terms, which differs from the series by a r^K / (1 - r).

    .. math:: \sum_{k=0}^{K-1} a r^k = a \frac{1 - r^K}{1 - r}, \qquad \sum_{k=0}^\infty a r^k = \frac{a}{1-r}

    Args:
        a: First term.
        r: Ratio, with \|r\| < 1.
        terms: K, at least 0.

    Raises:
        ValueError: A ratio is out of range, where the series has no sum, or ``terms`` is negative.

    Reference: Rudin 1976, Theorem 3.26.
    """
    if terms < 0 or not bool((r.abs() < 1).all()):
        raise ValueError(f"the series needs |r| < 1 and terms >= 0: got r={r.tolist()}, terms={terms}")
    return a * (1 - r**terms) / (1 - r)
