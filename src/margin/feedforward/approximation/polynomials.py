"""Weierstrass's theorem (1885) by Bernstein's polynomials (1912), exact and uniform on [a, b]."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def bernstein(
    function: Callable[[Tensor], Tensor],
    degree: int,
    x: Float[Tensor, "*batch"],
    *,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "*batch"]:
    r"""The Bernstein polynomial of f: the mean of f(K / n) for K binomial with n trials of probability x.

    .. math:: B_n f(x) = \sum_{k=0}^n f(k/n) \binom nk x^k (1-x)^{n-k}

    It converges to every continuous f uniformly: x^2 becomes x^2 + x (1 - x) / n. Computed in float64 with
    logarithms, so that large n neither overflows nor cancels: all terms of the law are positive.

    Args:
        function: f, elementwise, on [low, high].
        degree: n, at least 1.
        x: Points of [low, high].
        low: Left end.
        high: Right end.

    Raises:
        ValueError: The degree is below 1, the interval is empty, or a point lies outside of it.

    Reference: Bernstein 1912; Lorentz 1986, Section 1.1.
    """
    if degree < 1 or not low < high:
        raise ValueError(
            f"Bernstein's polynomial needs degree >= 1 and low < high: got {degree}, {low:g}, {high:g}"
        )
    p = (x.double() - low) / (high - low)
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError(f"Bernstein's polynomial is taken in [{low:g}, {high:g}]: got a point outside")
    n, k = degree, torch.arange(degree + 1, dtype=torch.float64)
    log_choose = math.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    p = p[..., None]
    law = (log_choose + torch.xlogy(k, p) + torch.xlogy(n - k, 1 - p)).exp()
    return law @ function(low + (high - low) * k / n).double()


def bernstein_bound(modulus: Callable[[float], float], degree: int, *, length: float = 1.0) -> float:
    r"""A bound of the uniform error: 5/4 times what f moves over length / sqrt(n).

    .. math:: \|B_n f - f\|_\infty \le \tfrac54\, \omega_f\big((b - a) / \sqrt n\big)

    Args:
        modulus: omega_f: the most that f moves over a distance.
        degree: n, at least 1.
        length: b - a.

    Raises:
        ValueError: The degree is below 1 or the length not positive.

    Reference: Lorentz 1986, Theorem 1.6.1.
    """
    if degree < 1 or not length > 0:
        raise ValueError(f"the bound needs degree >= 1 and length > 0: got {degree}, {length:g}")
    return 1.25 * modulus(length / math.sqrt(degree))
