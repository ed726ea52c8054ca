r"""Convex functions, their testers, and strong convexity (Jensen 1906; Polyak 1966).

.. math:: f(t x + (1 - t) y) \le t f(x) + (1 - t) f(y) \iff f(y) \ge f(x) + \nabla f(x) \cdot (y - x)
    \iff \nabla^2 f \succeq 0

A search can refute convexity, by a segment or a point, and never prove it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

Function = Callable[[Tensor], Tensor]
"""A function of one point, a vector, that returns a scalar tensor; it must run under ``torch.vmap``."""

ROUNDING = 64
"""Units of the last place of the values on a segment that a gap may owe to rounding."""


class Segment(NamedTuple):
    """A segment and the least gap of Jensen's inequality found.

    Args:
        gap: t f(x) + (1 - t) f(y) - f(t x + (1 - t) y), negative where convexity fails.
        x: One end.
        y: The other.
        share: t in [0, 1].
        rounding: How far below 0 rounding alone may put the gap.
    """

    gap: float
    x: Float[Tensor, " dim"]
    y: Float[Tensor, " dim"]
    share: float
    rounding: float

    @property
    def refutes(self) -> bool:
        """Whether the segment shows that the function is not convex; NaN does."""
        return not self.gap >= -self.rounding


def segment_gap(
    f: Function, x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"], share: Float[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """The gap t f(x) + (1 - t) f(y) - f(t x + (1 - t) y) on each segment: >= 0 for convex f.

    Args:
        f: The function.
        x: One end of each segment.
        y: The other.
        share: t of each, in [0, 1].

    Reference: Boyd and Vandenberghe 2004, Equation 3.1.
    """
    over = torch.vmap(f)
    t = share[:, None]
    return share * over(x) + (1 - share) * over(y) - over(t * x + (1 - t) * y)


def worst_segment(
    f: Function,
    low: Float[Tensor, " dim"],
    high: Float[Tensor, " dim"],
    generator: Generator,
    *,
    segments: int = 1000,
) -> Segment:
    """The segment of the least gap, of many with random ends in a box and random shares.

    Args:
        f: The function.
        low: The box's lower corner.
        high: Its upper corner.
        generator: Source of the segments.
        segments: How many are tried, at least 1.

    Raises:
        ValueError: The box is empty, or no segment is tried.
    """
    if segments < 1 or not bool((low < high).all()):
        raise ValueError(f"low must lie below high, segments >= 1: got {low.tolist()}, {high.tolist()}")
    draws = torch.rand(2, segments, len(low), generator=generator, dtype=low.dtype)
    x, y = low + (high - low) * draws
    share = torch.rand(segments, generator=generator, dtype=low.dtype)
    gap = segment_gap(f, x, y, share)
    lost = gap.isnan().nonzero()
    i = int(lost[0]) if len(lost) else int(gap.argmin())
    scale = float(torch.vmap(f)(torch.stack((x[i], y[i]))).abs().max())
    return Segment(float(gap[i]), x[i], y[i], float(share[i]), ROUNDING * torch.finfo(low.dtype).eps * scale)


def first_order_gap(
    f: Function, x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"], mu: float = 0.0
) -> Float[Tensor, " n"]:
    r"""The value f(y) above the tangent at x and its parabola: >= 0 for convex f, with mu strongly.

    .. math:: f(y) - f(x) - \nabla f(x) \cdot (y - x) - \tfrac\mu2 |y - x|^2

    Args:
        f: The function, differentiable.
        x: Where the tangents touch.
        y: Where they are compared.
        mu: Curvature that is asked for, 0 for convexity; negative, -L, for the lower half of smoothness.

    Reference: Boyd and Vandenberghe 2004, Equations 3.2 and 9.8.
    """
    slopes, values = torch.vmap(torch.func.grad_and_value(f))(x)
    return torch.vmap(f)(y) - values - ((y - x) * slopes).sum(1) - mu / 2 * (y - x).square().sum(1)


def secant_curvature(
    f: Function, x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"]
) -> Float[Tensor, " n"]:
    r"""The curvature seen between two points: at least mu for a mu-strongly convex f, at most L if L-smooth.

    .. math:: \frac{(\nabla f(x) - \nabla f(y)) \cdot (x - y)}{|x - y|^2}

    Args:
        f: The function, differentiable.
        x: Points.
        y: Others, each different from its x.

    Reference: Nesterov 2018, Sections 2.1.1 and 2.1.3.
    """
    slope = torch.vmap(torch.func.grad(f))
    return ((slope(x) - slope(y)) * (x - y)).sum(1) / (x - y).square().sum(1)


def curvatures(f: Function, points: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
    """The eigenvalues of the Hessian at each point, ascending.

    f is convex on a convex set if and only if the first column is nowhere negative there. The norm of a
    Hessian, which some notes ask to be >= 0, is so for every function.

    Args:
        f: The function, twice differentiable.
        points: Where it is looked at.

    Reference: Boyd and Vandenberghe 2004, Section 3.1.4.
    """
    return torch.linalg.eigvalsh(torch.vmap(torch.func.jacrev(torch.func.jacrev(f)))(points))


def strong_convexity(f: Function, points: Float[Tensor, "n dim"]) -> float:
    r"""The least eigenvalue of the Hessian over points: at least mu, where :math:`\nabla^2 f \succeq \mu I`.

    It is an estimate of mu from above; of a quadratic it is mu. The *largest* eigenvalue, the Hessian's norm,
    says nothing of strong convexity.

    Args:
        f: The function, twice differentiable.
        points: Where it is looked at.

    Reference: Boyd and Vandenberghe 2004, Equation 9.7.
    """
    return float(curvatures(f, points)[:, 0].min())
