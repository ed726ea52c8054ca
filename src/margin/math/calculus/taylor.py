"""Taylor's theorem with the remainder as an integral, by automatic differentiation and quadrature."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.calculus.functions import integrate

Function = Callable[[Tensor], Tensor]


class Expansion(NamedTuple):
    """Taylor's polynomial at x and the integral remainder: their sum is f(x)."""

    polynomial: Float[Tensor, "*batch"]
    remainder: Float[Tensor, "*batch"]


def taylor(
    f: Function, center: float, x: Float[Tensor, "*batch"], *, order: int, panels: int = 32
) -> Expansion:
    r"""Taylor's polynomial of f about a, and the exact remainder.

    .. math:: f(x) = \sum_{k=0}^{n} \frac{f^{(k)}(a)}{k!} (x - a)^k
        + \int_a^x \frac{f^{(n+1)}(t)}{n!} (x - t)^n \, dt

    Derivatives are taken by nesting automatic differentiation, whose cost doubles with each: orders up to
    about 8.

    Args:
        f: An elementwise function with n + 1 continuous derivatives between a and x.
        center: a, finite.
        x: Where it is expanded to, finite; computed in float64.
        order: n >= 0.
        panels: Into how many parts the way from a to x is cut for the integral.

    Raises:
        ValueError: The order is negative, or a point is not finite.

    Reference: Rudin 1976, Theorem 5.15 (Taylor's theorem); Apostol 1967, Chapter 7 (integral remainder).
    """
    if order < 0:
        raise ValueError(f"order must be at least 0: got {order}")
    x = x.double()
    a = torch.full_like(x, center)
    derivative = f
    polynomial = f(a)
    for k in range(1, order + 1):
        derivative = _slope(derivative)
        polynomial = polynomial + derivative(a) * (x - a) ** k / math.factorial(k)
    last = _slope(derivative)
    end = x[..., None]  # the nodes of the quadrature stand last
    remainder = integrate(lambda t: last(t) * (end - t) ** order, a, x, panels=panels)
    return Expansion(polynomial, remainder / math.factorial(order))


def _slope(f: Function) -> Function:
    """The derivative of an elementwise function."""
    return torch.func.grad(lambda t: f(t).sum())
