"""The threat model: how far an adversary may move an input (Szegedy et al., 2014; Madry et al., 2018).

It is a ball of a norm around the input, cut by the domain, both in the units of the user's inputs.

Euclidean projections onto its balls and the simplex, example by example: onto the l1 ball and the simplex by
sorting and thresholding, in O(d log d) (Duchi, Shalev-Shwartz, Singer & Chandra, 2008).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.core.types import Domain

Radius = float | Float[Tensor, " radii"]


def project_linf(delta: Float[Tensor, "batch ..."], eps: Radius) -> Float[Tensor, "batch ..."]:
    """The nearest point of the ball ||d||_inf <= eps: each coordinate clamped to [-eps, eps].

    Args:
        delta: Displacements; the norm is over all axes but the first.
        eps: Radius, one for all examples or one for each, >= 0.

    Returns:
        The projections, in the shape and type of ``delta``.

    Raises:
        ValueError: A radius is negative, not finite, or not one per example.
    """
    radius = _radius(delta, eps)
    return project_box(delta, -radius, radius)


def project_box(point: Float[Tensor, "..."], low: Tensor, high: Tensor) -> Float[Tensor, "..."]:
    """The nearest point of the box [low, high], coordinate by coordinate."""
    return torch.minimum(torch.maximum(point, low), high)


def project_l2(delta: Float[Tensor, "batch ..."], eps: Radius) -> Float[Tensor, "batch ..."]:
    """The nearest point of the ball ||d||_2 <= eps: eps d / max(eps, ||d||_2).

    Args:
        delta: Displacements; the norm is over all axes but the first.
        eps: Radius, one for all examples or one for each, >= 0.

    Returns:
        The projections, in the shape and type of ``delta``; a point of the ball comes back bit for bit.

    Raises:
        ValueError: A radius is negative, not finite, or not one per example.
    """
    radius = _radius(delta, eps)
    norm = _each(delta.flatten(1).norm(dim=1), delta)
    return torch.where(norm > radius, delta * (radius / norm), delta)


def project_simplex(point: Float[Tensor, "batch ..."], mass: Radius = 1.0) -> Float[Tensor, "batch ..."]:
    """The nearest point of the simplex {w >= 0, sum w = mass}: (v - theta)_+ with the theta that sums right.

    With v sorted downwards, rho is the last j with v_j > (v_1 + ... + v_j - mass) / j, and theta is that
    quotient at rho (Duchi et al., 2008, Figure 1).

    Args:
        point: Points; the sum is over all axes but the first.
        mass: What the coordinates sum to, one for all examples or one for each, >= 0.

    Returns:
        The projections, in the shape and type of ``point``.

    Raises:
        ValueError: A mass is negative, not finite, or not one per example.
    """
    flat = point.flatten(1)
    total = _radius(flat, mass)
    sorted_ = flat.sort(dim=1, descending=True).values
    count = torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype)
    theta = (sorted_.cumsum(1) - total) / count
    # With mass 0 no coordinate passes the test, though theta = v_1 is right: hence at least one.
    rho = (sorted_ > theta).sum(1, keepdim=True).clamp(min=1)
    return (flat - theta.gather(1, rho - 1)).clamp(min=0).reshape(point.shape)


def project_l1(delta: Float[Tensor, "batch ..."], eps: Radius) -> Float[Tensor, "batch ..."]:
    """The nearest point of the ball ||d||_1 <= eps: |d| projected onto the simplex, the signs kept.

    Args:
        delta: Displacements; the norm is over all axes but the first.
        eps: Radius, one for all examples or one for each, >= 0.

    Returns:
        The projections, in the shape and type of ``delta``; a point of the ball comes back bit for bit.

    Raises:
        ValueError: A radius is negative, not finite, or not one per example.
    """
    radius = _radius(delta, eps)
    norm = _each(delta.flatten(1).abs().sum(1), delta)
    return torch.where(norm > radius, delta.sign() * project_simplex(delta.abs(), radius.flatten()), delta)


def _each(per_example: Float[Tensor, " batch"], like: Tensor) -> Tensor:
    """One number per example, shaped to broadcast against the examples."""
    return per_example.reshape(-1, *(1,) * (like.ndim - 1))


def _radius(delta: Tensor, eps: Radius) -> Tensor:
    radius = torch.as_tensor(eps, dtype=delta.dtype, device=delta.device)
    if radius.ndim == 1 and len(radius) not in (1, len(delta)):
        raise ValueError(
            f"a radius must be one number or one per example: got {len(radius)} for {len(delta)}"
        )
    if not bool((radius >= 0).all() and radius.isfinite().all()):
        raise ValueError(f"a radius must be finite and >= 0: got {radius.min().item():g}")
    return _each(radius.expand(len(delta)), delta)


Norm = Literal["linf", "l2"]

SLACK = 1e-6
"""Relative excess of the norm over eps that rounding may cause; more is an error of ours."""


@dataclass(frozen=True, slots=True, eq=False)
class Threat:
    """The set {y in the domain: ||(y - x) / unit|| <= eps} of inputs that the adversary may put for x.

    Args:
        domain: The box in which inputs lie.
        eps: Radius of the ball, in the units of the inputs, >= 0.
        norm: linf, the largest displacement of a coordinate, or l2, the Euclidean length; each over all
            axes of one input.
        unit: Length of one unit along each coordinate, positive; broadcasts against one input. None is 1
            everywhere.

    Raises:
        ValueError: eps is negative or not finite, the norm is unknown, or a unit is not positive.
    """

    domain: Domain
    eps: float
    norm: Norm = "linf"
    unit: Tensor | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eps) and self.eps >= 0):
            raise ValueError(f"eps must be finite and >= 0: got {self.eps}")
        if self.norm not in ("linf", "l2"):
            raise ValueError(f"norm must be linf or l2: got {self.norm!r}")
        if self.unit is not None and not bool((self.unit > 0).all()):
            raise ValueError("the unit must be positive in every coordinate")

    def check_inputs(self, x: Float[Tensor, "batch ..."]) -> None:
        """Refuse inputs from which the adversary could not start.

        Raises:
            ValueError: An input lies outside the domain, or is NaN.
        """
        low, high = self.domain.low.to(x), self.domain.high.to(x)
        outside = ~((x >= low) & (x <= high))
        if outside.any():
            index = outside.nonzero()[0].tolist()
            at = tuple(index[1:])
            ends = low.expand(x.shape[1:])[at].item(), high.expand(x.shape[1:])[at].item()
            raise ValueError(
                "inputs must lie in the stated domain: "
                f"example {index[0]} has {x[tuple(index)].item():g} at {list(at)}, outside "
                f"[{ends[0]:g}, {ends[1]:g}]"
            )

    def project(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> Tensor:
        """The point of the set around ``x`` that is nearest to ``y`` in the ball, then in the box."""
        return self.around(x)(y)

    def around(self, x: Float[Tensor, "batch ..."]) -> Callable[[Tensor], Tensor]:
        """The map to the nearest point of the ball around ``x``, then of the box; in the type of x.

        Clamping to the box moves each coordinate towards x, so the ball still holds. The result is
        rounded towards x, so it holds in floating point too. With eps = 0 it is x bit for bit.
        """
        if self.eps == 0:
            return lambda y: x.clone()
        center, unit = x.double(), self._unit(x)
        low, high = self.domain.low.to(x).double(), self.domain.high.to(x).double()

        def inward(delta: Tensor) -> Tensor:
            moved = (center + delta).clamp(low, high).to(x.dtype)
            overshot = (moved.double() - center).abs() > delta.abs()
            return torch.where(overshot, torch.nextafter(moved, x), moved)

        if self.norm == "linf":
            least, most = inward(-self.eps * unit), inward(self.eps * unit)
            return lambda y: project_box(y.to(x.dtype), least, most)
        return lambda y: inward(project_l2((y.double() - center) / unit, self.eps) * unit)

    def steepest(self, gradient: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The displacement of norm 1 along which a linear function of that gradient rises fastest.

        It is the sign for linf, g / ||g|| for l2; 0 where the gradient is 0.
        """
        if self.norm == "linf":
            sign = gradient.sign()
            return sign if self.unit is None else sign * self.unit.to(sign)
        unit = self._unit(gradient)
        scaled = gradient.double() * unit
        flat = scaled.flatten(1)
        # Divided by the largest coordinate first: squares of tiny gradients would underflow to norm 0.
        flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        flat = flat / flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        return (flat.reshape(scaled.shape) * unit).to(gradient)

    def random_point(self, x: Float[Tensor, "batch ..."], generator: Generator) -> Tensor:
        """A point drawn uniformly from the ball around each input, then clamped to the domain."""
        shape = x.shape
        if self.norm == "linf":
            delta = 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
        else:
            direction = torch.randn(shape, generator=generator, dtype=torch.float64).flatten(1)
            length = torch.rand(len(x), 1, generator=generator, dtype=torch.float64) ** (
                1 / direction.shape[1]
            )
            delta = (direction * (length / direction.norm(dim=1, keepdim=True))).reshape(shape)
        return self.project(x.double() + self.eps * delta.to(x.device) * self._unit(x), x)

    def size(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> Float[Tensor, " batch"]:
        """The norm of each displacement, computed in float64."""
        delta = ((y.double() - x.double()) / self._unit(x)).flatten(1)
        return delta.abs().amax(1) if self.norm == "linf" else delta.norm(dim=1)

    def check(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> None:
        """Refuse an attack that left the set: an error of the attack, never of the user.

        Raises:
            RuntimeError: A displacement is longer than eps (1 + 1e-6), or a point is outside the domain.
        """
        longest = self.size(y, x).max().item() if len(x) else 0.0
        if not longest <= self.eps * (1 + SLACK):
            raise RuntimeError(f"an attack left its ball: {self.norm} norm {longest:g}, eps {self.eps:g}")
        if not self.domain.contains(y):
            raise RuntimeError("an attack left the domain")

    def hull(self, x: Float[Tensor, "batch ..."]) -> tuple[Tensor, Tensor]:
        """The least and largest value of each coordinate over the set, in float64."""
        center, radius = x.double(), self.eps * self._unit(x)
        low, high = self.domain.low.to(x).double(), self.domain.high.to(x).double()
        return (center - radius).clamp(low, high), (center + radius).clamp(low, high)

    def _unit(self, x: Tensor) -> Tensor:
        one = torch.ones((), dtype=torch.float64, device=x.device)
        return one if self.unit is None else self.unit.to(one)
