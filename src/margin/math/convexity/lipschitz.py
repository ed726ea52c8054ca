r"""Lipschitz functions: constants from below by secants, and the exact ones of functions in closed form.

.. math:: |f(x) - f(y)| \le L |x - y| \quad \text{for all } x, y

A differentiable function of one variable is Lipschitz if and only if its derivative is bounded, with
L = sup \|f'\|. A function is L-smooth where its gradient is L-Lipschitz: twice differentiable, where every
eigenvalue of its Hessian has *magnitude* at most L. (Rudin 1976, Theorem 5.10; Nesterov 2018, Section 1.2.2.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.convexity.functions import Function, first_order_gap

Map = Callable[[Tensor], Tensor]
"""A map of one point, a vector, to a tensor of any shape; it must run under ``torch.vmap``."""


def secants(f: Map, x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
    r"""The ratios \|f(x) - f(y)\| / \|x - y\|, each a lower bound of every Lipschitz constant of f.

    Args:
        f: The map.
        x: Points.
        y: Others, each different from its x.

    Raises:
        ValueError: Two points agree.
    """
    apart = torch.linalg.vector_norm(x - y, dim=1)
    if not bool((apart > 0).all()):
        raise ValueError("a secant needs two different points: some x equals its y")
    over = torch.vmap(f)
    return torch.linalg.vector_norm((over(x) - over(y)).reshape(len(x), -1), dim=1) / apart


def lipschitz_below(f: Map, points: Float[Tensor, "n dim"]) -> float:
    """The largest secant over all pairs of points: a lower bound of the Lipschitz constant.

    Args:
        f: The map.
        points: At least two, all different; the cost is of n^2 / 2 pairs.

    Raises:
        ValueError: There is one point, or two are equal.
    """
    if len(points) < 2:
        raise ValueError(f"a secant needs two points: got {len(points)}")
    i, j = torch.triu_indices(len(points), len(points), 1)
    return float(secants(f, points[i], points[j]).max())


def smoothness_below(f: Function, points: Float[Tensor, "n dim"]) -> float:
    """The largest secant of the gradient: a lower bound of the constant L of smoothness.

    Args:
        f: A differentiable function of a vector.
        points: At least two, all different.
    """
    return lipschitz_below(torch.func.grad(f), points)


def smoothness_gap(
    f: Function, x: Float[Tensor, "n dim"], y: Float[Tensor, "n dim"], L: float
) -> Float[Tensor, " n"]:
    r"""The parabola of curvature L on the tangent at x, less f(y): >= 0 for an L-smooth f.

    .. math:: f(x) + \nabla f(x) \cdot (y - x) + \tfrac L2 |y - x|^2 - f(y)

    Args:
        f: The function, differentiable.
        x: Where the tangents touch.
        y: Where they are compared.
        L: The constant.

    Reference: Nesterov 2018, Lemma 1.2.3.
    """
    return -first_order_gap(f, x, y, mu=L)


def of_composition(*constants: float) -> float:
    """The product of Lipschitz constants: one of the composition, in any order; not always the least.

    Args:
        constants: Of the maps composed, each >= 0.
    """
    return math.prod(constants)


def of_sum(*constants: float) -> float:
    """The sum of Lipschitz constants: one of the sum of the maps; not always the least.

    Args:
        constants: Of the maps added, each >= 0.
    """
    return math.fsum(constants)


@dataclass(frozen=True, slots=True)
class Known:
    """A function with its least constants in the Euclidean norm, infinite where there is none.

    Args:
        name: What it is called.
        function: Of one vector, on all of space.
        lipschitz: Of the function itself.
        smoothness: Of its gradient, or of its Jacobian where it is a map; infinite where that jumps.
    """

    name: str
    function: Map
    lipschitz: float
    smoothness: float


def _first(pointwise: Callable[[Tensor], Tensor]) -> Map:
    return lambda x: pointwise(x[0])


KNOWN = (
    Known("sine", _first(torch.sin), 1.0, 1.0),
    Known("sigmoid", _first(torch.sigmoid), 1 / 4, 1 / (6 * math.sqrt(3))),
    Known("tanh", _first(torch.tanh), 1.0, 4 / (3 * math.sqrt(3))),
    Known("softplus", _first(torch.nn.functional.softplus), 1.0, 1 / 4),
    Known("magnitude", _first(torch.abs), 1.0, math.inf),
    Known("relu", _first(torch.relu), 1.0, math.inf),
    Known("square", _first(torch.square), math.inf, 2.0),
    Known("norm", lambda x: torch.linalg.vector_norm(x), 1.0, math.inf),
    Known("logsumexp", lambda x: torch.logsumexp(x, 0), 1.0, 1 / 2),
    Known("cauchy", _first(lambda x: x * x / (1 + x * x)), 3 * math.sqrt(3) / 8, 2.0),
)
"""Functions whose least constants are known in closed form."""
