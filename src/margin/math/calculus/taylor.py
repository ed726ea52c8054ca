r"""Taylor's theorem with the remainder as an integral, by automatic differentiation and quadrature.

The Laplacian of calculus: how much a function's mean around a point exceeds its value there.

.. math:: \Delta f = \sum_{i=1}^{d} \frac{\partial^2 f}{\partial x_i^2} = \mathrm{tr} \nabla^2 f, \qquad
    \frac{1}{|B_r|} \int_{B_r(x)} f - f(x) = \frac{r^2}{2 (d + 2)} \Delta f(x) + O(r^4)

The Laplacian of a graph, D - A, has the opposite sign.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.math.calculus.derivatives import integrate

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


Point = Float[Tensor, " dim"]


def laplacian(f: Callable[[Tensor], Tensor], x: Point) -> Float[Tensor, ""]:
    """The trace of the Hessian of a scalar function, the derivative of its gradient.

    Args:
        f: Twice differentiable, of a point to a scalar; for complex values ask real and imaginary part.
        x: The point.

    Reference: Evans 2010, Partial Differential Equations, Section 2.2.
    """
    trace: Tensor = torch.func.jacrev(torch.func.grad(f))(x).trace()
    return trace


class BallMean(NamedTuple):
    """How much the mean over a ball exceeds the value at its center, with its standard error."""

    excess: Float[Tensor, ""]
    stderr: Float[Tensor, ""]


def ball_mean(
    f: Callable[[Tensor], Tensor], x: Point, radius: float, count: int, *, generator: Generator
) -> BallMean:
    """The mean of f over the ball of a radius about x, less f(x), from points drawn in opposite pairs.

    A pair x + z, x - z leaves out what is odd about x, a slope above all.

    Args:
        f: Of a point to a scalar.
        x: The center.
        radius: Positive.
        count: Pairs, at least 2.
        generator: Where they are drawn from.

    Raises:
        ValueError: The radius or the count is out of range.

    Reference: Evans 2010, Partial Differential Equations, Section 2.2.2 (the mean-value formulas).
    """
    if not radius > 0 or count < 2:
        raise ValueError(f"a mean needs a positive radius and 2 pairs: got {radius:g} and {count}")
    direction = torch.randn(count, len(x), generator=generator, dtype=x.dtype).to(x.device)
    share = torch.rand(count, 1, generator=generator, dtype=x.dtype).to(x.device) ** (1 / len(x))
    z = radius * share * direction / direction.norm(dim=1, keepdim=True)
    values = torch.stack([0.5 * (f(x + step) + f(x - step)) for step in z]) - f(x)
    return BallMean(values.mean(), values.std() / count**0.5)
