r"""The Laplacian of calculus: how much a function's mean around a point exceeds its value there.

.. math:: \Delta f = \sum_{i=1}^{d} \frac{\partial^2 f}{\partial x_i^2} = \mathrm{tr} \nabla^2 f, \qquad
    \frac{1}{|B_r|} \int_{B_r(x)} f - f(x) = \frac{r^2}{2 (d + 2)} \Delta f(x) + O(r^4)

The Laplacian of a graph, D - A, has the opposite sign.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

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
