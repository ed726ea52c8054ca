"""Functions on which optimizers are tried, with their constants and minimizers in closed form.

Rosenbrock (1960), Himmelblau (1972), and the small functions that separate one condition from another:
Polyak-Lojasiewicz without convexity, strict convexity without strong, a valley, a double well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Landscape:
    """A function with what is known of it.

    Args:
        name: What it is called.
        value: Of one point, a vector of any length where ``start`` has one coordinate, else of its length.
        start: Where optimizers customarily begin.
        minimizers: Its global minimizers.
        least: Its least value.
        window: Low and high coordinate of what is worth looking at, axis by axis.
        smoothness: The Lipschitz constant L of its gradient; infinite where it has none.
        pl: A constant mu of 1/2 |grad|^2 >= mu (f - least) everywhere; 0 where it has none.
        convex: Whether it is convex.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    start: tuple[float, ...]
    minimizers: tuple[tuple[float, ...], ...]
    least: float
    window: tuple[tuple[float, float], ...]
    smoothness: float
    pl: float
    convex: bool


def valley(curvatures: Float[Tensor, " dim"]) -> Callable[[Tensor], Tensor]:
    """The quadratic sum of lambda_i x_i^2 / 2, of condition number max lambda / min lambda.

    Args:
        curvatures: The lambda_i.
    """
    return lambda x: (curvatures * x.square()).sum() / 2


def rosenbrock(x: Float[Tensor, " 2"]) -> Float[Tensor, ""]:
    """The bent valley (1 - x)^2 + 100 (y - x^2)^2, whose Hessian at the minimum has condition number 2508.

    Reference: Rosenbrock 1960, An automatic method for finding the greatest or least value of a function.
    """
    return (1 - x[0]).square() + 100 * (x[1] - x[0].square()).square()


def himmelblau(x: Float[Tensor, " 2"]) -> Float[Tensor, ""]:
    """The function (x^2 + y - 11)^2 + (x + y^2 - 7)^2 of four minima of the value 0.

    Reference: Himmelblau 1972, Applied nonlinear programming.
    """
    return (x[0].square() + x[1] - 11).square() + (x[0] + x[1].square() - 7).square()


def double_well(x: Float[Tensor, " dim"]) -> Float[Tensor, ""]:
    """The sum of (x^2 - 1)^2: the sign of x_0 decides which minimum gradient descent reaches."""
    return (x.square() - 1).square().sum()


def wavy(x: Float[Tensor, " dim"]) -> Float[Tensor, ""]:
    """The sum of x^2 + 3 sin^2 x: not convex, and Polyak-Lojasiewicz with mu = 1/32.

    Reference: Karimi, Nutini and Schmidt 2016, Section 2.2.
    """
    return (x.square() + 3 * x.sin().square()).sum()


def quotient(x: Float[Tensor, " dim"]) -> Float[Tensor, ""]:
    """The sum of x^2 / (1 + x^2): 2-smooth, bounded, not convex, flat far away."""
    return (x.square() / (1 + x.square())).sum()


def quartic(x: Float[Tensor, " dim"]) -> Float[Tensor, ""]:
    """The sum of x^4: strictly convex and, flat at its minimum, not strongly convex."""
    return x.pow(4).sum()


_VALLEY = torch.tensor([1.0, 20.0], dtype=torch.float64)

LANDSCAPES = (
    Landscape(
        "valley",
        valley(_VALLEY),
        (-4.0, 1.5),
        ((0.0, 0.0),),
        0.0,
        ((-5.0, 2.0), (-2.0, 2.0)),
        20.0,
        1.0,
        True,
    ),
    Landscape(
        "rosenbrock",
        rosenbrock,
        (-1.2, 1.0),
        ((1.0, 1.0),),
        0.0,
        ((-1.7, 1.7), (-0.7, 2.3)),
        math.inf,
        0.0,
        False,
    ),
    Landscape(
        "himmelblau",
        himmelblau,
        (0.0, 0.0),
        ((3.0, 2.0), (-2.805118, 3.131312), (-3.779310, -3.283186), (3.584428, -1.848126)),
        0.0,
        ((-5.0, 5.0), (-5.0, 5.0)),
        math.inf,
        0.0,
        False,
    ),
    Landscape(
        "double_well", double_well, (0.1,), ((-1.0,), (1.0,)), 0.0, ((-1.6, 1.6),), math.inf, 0.0, False
    ),
    Landscape("wavy", wavy, (3.0,), ((0.0,),), 0.0, ((-10.0, 10.0),), 8.0, 1 / 32, False),
    Landscape("quotient", quotient, (3.0,), ((0.0,),), 0.0, ((-5.0, 5.0),), 2.0, 0.0, False),
    Landscape("quartic", quartic, (1.0,), ((0.0,),), 0.0, ((-2.0, 2.0),), math.inf, 0.0, True),
)
"""Every landscape, the plane's first."""


def landscape(name: str) -> Landscape:
    """The landscape of that name.

    Raises:
        ValueError: There is none.
    """
    for found in LANDSCAPES:
        if found.name == name:
            return found
    raise ValueError(f"unknown landscape {name!r}; there are: {', '.join(f.name for f in LANDSCAPES)}")
