"""Densities of scaled variables and of sums (Casella and Berger 2002, Theorems 3.5.1 and 5.2.9)."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.calculus.functions import integrate

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
