"""Hyperplanes {x : <w, x> = b}, and what makes a map linear.

Hastie, Tibshirani and Friedman (2009), Section 4.5.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Hyperplane(NamedTuple):
    """The set {x : <normal, x> = offset}, an affine subspace of one dimension less.

    Args:
        normal: w, not 0.
        offset: b; 0 where the hyperplane passes through the origin.
    """

    normal: Float[Tensor, " dim"]
    offset: Float[Tensor, ""]


def through(point: Float[Tensor, " dim"], normal: Float[Tensor, " dim"]) -> Hyperplane:
    """The hyperplane {x : <w, x - p> = 0} through a point p: its offset is <w, p>.

    Args:
        point: p.
        normal: w, not 0.

    Raises:
        ValueError: The normal is 0 or not finite.
    """
    return _checked(Hyperplane(normal, normal @ point))


def normal_form(plane: Hyperplane) -> Hyperplane:
    """The same set with a normal of length 1; the modulus of the offset is then its distance from the origin.

    Args:
        plane: A hyperplane.

    Raises:
        ValueError: The normal is 0 or not finite.
    """
    # the largest entry first: the squares of the others neither overflow nor vanish
    largest = _checked(plane).normal.detach().abs().max()
    normal, offset = plane.normal / largest, plane.offset / largest
    length = torch.linalg.vector_norm(normal)
    return Hyperplane(normal / length, offset / length)


def signed_distance(plane: Hyperplane, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
    """The distance (<w, x> - b) / |w| of each point, positive on the side to which the normal points.

    Args:
        plane: A hyperplane.
        x: Points.

    Raises:
        ValueError: The normal is 0 or not finite.
    """
    unit = normal_form(plane)
    return x @ unit.normal - unit.offset


def project(plane: Hyperplane, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The nearest point of the hyperplane to each point.

    Args:
        plane: A hyperplane.
        x: Points.

    Raises:
        ValueError: The normal is 0 or not finite.
    """
    return x - signed_distance(plane, x)[..., None] * normal_form(plane).normal


def linearity_defect(
    f: Callable[[Tensor], Tensor],
    x: Float[Tensor, "*batch dim"],
    y: Float[Tensor, "*batch dim"],
    a: float,
    b: float,
) -> Float[Tensor, "..."]:
    """The difference f(a x + b y) - a f(x) - b f(y), 0 for all arguments exactly where f is linear.

    An affine map x -> A x + c with c != 0 is not: it leaves (1 - a - b) c.

    Args:
        f: A function of a batch of vectors.
        x: One argument.
        y: Another.
        a: Factor of the first.
        b: Factor of the second.

    Reference: Horn and Johnson 2013, Chapter 0.
    """
    return f(a * x + b * y) - a * f(x) - b * f(y)


def _checked(plane: Hyperplane) -> Hyperplane:
    if not bool(plane.normal.any()):
        raise ValueError("the normal of a hyperplane must not be 0")
    if not bool(plane.normal.isfinite().all()):
        raise ValueError(f"the normal of a hyperplane must be finite: got {plane.normal.tolist()}")
    return plane
