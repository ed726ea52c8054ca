"""The threat model: how far an adversary may move an input (Szegedy et al., 2014; Madry et al., 2018).

It is a ball of a norm around the input, cut by the domain, both in the units of the user's inputs.

Euclidean projections onto its balls and the simplex, example by example: onto the l1 ball and the simplex by
sorting and thresholding, in O(d log d) (Duchi, Shalev-Shwartz, Singer & Chandra, 2008); onto the l1 ball cut
with a box by sorting the breakpoints of the multiplier (Croce & Hein, 2021, Section 3.1).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Generator, Tensor

from margin.core.types import Domain
from margin.robust.attacks.features import Features

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
    norm = wide(delta.flatten(1).norm(dim=1), delta)
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
    norm = wide(delta.flatten(1).abs().sum(1), delta)
    return torch.where(norm > radius, delta.sign() * project_simplex(delta.abs(), radius.flatten()), delta)


def project_l1_box(
    delta: Float[Tensor, "batch ..."], eps: Radius, low: Tensor, high: Tensor
) -> Float[Tensor, "batch ..."]:
    """The nearest point of {||d||_1 <= eps, low <= d <= high}, where low <= 0 <= high.

    It is sign(v) min((|v| - lambda)_+, u) with u the room of each coordinate on its side, and the least
    lambda >= 0 with which the norm fits. The norm falls linearly in lambda between the breakpoints |v| and
    |v| - u, so lambda is found by sorting them.

    Args:
        delta: Displacements; the norm is over all axes but the first.
        eps: Radius, one for all examples or one for each, >= 0.
        low: Least displacement of each coordinate, <= 0; broadcasts against ``delta``.
        high: Largest displacement of each coordinate, >= 0.

    Returns:
        The projections, in the shape and type of ``delta``.

    Raises:
        ValueError: A radius is negative, not finite, or not one per example.

    Reference: Croce and Hein (2021), "Mind the box: l1-APGD for sparse adversarial attacks on image
    classifiers", Proposition 3.1.
    """
    radius = _radius(delta, eps).reshape(-1, 1)
    size = delta.abs().flatten(1)
    room = torch.where(delta > 0, high, -low).expand(delta.shape).flatten(1)
    knots = torch.cat((size, (size - room).clamp(min=0)), 1)
    slope = torch.cat((torch.ones_like(size), -torch.ones_like(size)), 1)
    knots, order = knots.sort(1, descending=True)
    slope = slope.gather(1, order)
    count, total = slope.cumsum(1), (slope * knots).cumsum(1)
    # The norm at each breakpoint; it grows as lambda falls. Before the first that is too large lies lambda.
    fits = (total - knots * count <= radius).sum(1, keepdim=True)
    at = (fits - 1).clamp(min=0)
    cut = ((total.gather(1, at) - radius) / count.gather(1, at).clamp(min=1)).clamp(min=0)
    cut = torch.where(torch.minimum(size, room).sum(1, keepdim=True) <= radius, 0, cut)
    found = torch.minimum((size - cut).clamp(min=0), room)
    # Differences of large sums round: what is still too long by that is scaled, which stays in the box.
    norm = found.sum(1, keepdim=True)
    found = torch.where(norm > radius, found * (radius / norm), found)
    return delta.sign() * found.reshape(delta.shape)


def wide(per_example: Shaped[Tensor, " batch"], like: Tensor) -> Tensor:
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
    return wide(radius.expand(len(delta)), delta)


Norm = Literal["linf", "l2", "l1"]

ORDER: dict[str, float] = {"linf": math.inf, "l2": 2.0, "l1": 1.0}
"""The order p of each norm."""

ALMOST = 1e-9
"""Relative width by which a projection may miss the whole number that it ends at."""

SLACK = 1e-6
"""Relative excess of the norm over eps that rounding may cause; more is an error of ours."""


def length(delta: Float[Tensor, "batch ..."], norm: Norm) -> Float[Tensor, " batch"]:
    """The norm of each displacement, over all axes but the first."""
    return torch.linalg.vector_norm(delta.flatten(1), ORDER[norm], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class Threat:
    """The set {y in the domain: ||(y - x) / unit|| <= eps} of inputs that the adversary may put for x.

    Args:
        domain: The box in which inputs lie.
        eps: Radius of the ball, in the units of the inputs, >= 0.
        norm: linf, the largest displacement of a coordinate, l2, the Euclidean length, or l1, the sum of all
            displacements; each over all axes of one input.
        unit: Length of one unit along each coordinate, positive; broadcasts against one input. None is 1
            everywhere.
        features: What a coordinate may be besides a number of the box: fixed, whole, one of a category's.

    Raises:
        ValueError: eps is negative or not finite, the norm is unknown, or a unit is not positive.
    """

    domain: Domain
    eps: float
    norm: Norm = "linf"
    unit: Tensor | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eps) and self.eps >= 0):
            raise ValueError(f"eps must be finite and >= 0: got {self.eps}")
        if self.norm not in ("linf", "l2", "l1"):
            raise ValueError(f"norm must be linf, l2 or l1: got {self.norm!r}")
        if self.unit is not None and not bool((self.unit > 0).all()):
            raise ValueError("the unit must be positive in every coordinate")

    def check_inputs(self, x: Float[Tensor, "batch ..."]) -> None:
        """Refuse inputs from which the adversary could not start.

        Raises:
            ValueError: An input lies outside the domain, or is NaN, or a feature is none that may be.
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
        if self.features is not None and (problem := self.features.problem(x)):
            raise ValueError(f"inputs must be valid: {problem}")

    def project(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> Tensor:
        """The point of the set around ``x`` that is nearest to ``y`` in the ball, then in the box."""
        return self.valid(self.around(x)(y), x)

    def around(self, x: Float[Tensor, "batch ..."]) -> "Around":
        """The map to the nearest point of the ball around ``x``, then of the box; in the type of x.

        Clamping to the box moves each coordinate towards x, so the ball still holds; of the l1 ball it is the
        nearest point of both. The result is rounded towards x, so it holds in floating point too. With
        eps = 0 it is x bit for bit. Features that are whole or of a category may lie between: see
        :meth:`valid`.
        """
        if self.norm != "linf" or self.eps == 0:
            return Around(self, x, ())
        center, reach = x.double(), self.eps * self._unit(x)
        box = self.box(x)
        return Around(
            self,
            x,
            tuple(_rounded(project_box(center + far, *box), far, x) for far in (-reach, reach)),
        )

    def box(self, x: Float[Tensor, "batch ..."]) -> tuple[Tensor, Tensor]:
        """The least and largest value of each coordinate in the domain, in float64: x where it is fixed."""
        low, high = self.domain.low.to(x).double(), self.domain.high.to(x).double()
        if self.features is None or self.features.fixed is None:
            return low, high
        fixed, center = self.features.fixed.to(x.device), x.double()
        return torch.where(fixed, center, low), torch.where(fixed, center, high)

    def valid(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> Tensor:
        """A point of the set near ``y``, of :meth:`around`, whose features are valid."""
        if self.features is None or self.eps == 0:
            return y
        unit, whole = self._unit(x), self.features.whole
        moved, left = self.features.switched(y, x, self.eps, ORDER[self.norm], unit)
        project = {"linf": project_linf, "l2": project_l2, "l1": project_l1}[self.norm]
        grouped = self.features.grouped(x)
        delta = project((y.double() - x.double()) / unit * ~grouped, left) * unit
        if whole is not None:
            delta = torch.where(whole.to(x.device), (delta * (1 + ALMOST)).trunc(), delta)
        return torch.where(grouped, moved, _rounded(x.double() + delta, delta, x))

    def steepest(self, gradient: Float[Tensor, "batch ..."], share: Radius = 0.0) -> Tensor:
        """The displacement of norm 1 along which a linear function of that gradient rises fastest.

        It is the sign for linf, g / ||g|| for l2, the sign at the largest coordinate for l1; 0 where the
        gradient is 0.

        Args:
            gradient: One for each example.
            share: Of l1, the share of the coordinates that moves instead of one, all as far: those of the
                largest slopes (Croce & Hein, 2021, Section 3.2); one for all examples or one for each.
        """
        if self.norm == "linf":
            sign = gradient.sign()
            return sign if self.unit is None else sign * self.unit.to(sign)
        unit = self._unit(gradient)
        scaled = gradient.double() * unit
        flat = scaled.flatten(1)
        if self.norm == "l1":
            count = (_radius(flat, share) * flat.shape[1]).long().clamp(1, flat.shape[1])
            least = flat.abs().sort(1, descending=True).values.gather(1, count - 1)
            flat = flat.sign() * (flat.abs() >= least)
            flat = flat / flat.abs().sum(1, keepdim=True).clamp(min=1)
        else:
            # Divided by the largest coordinate first: squares of tiny gradients would underflow to norm 0.
            flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
            flat = flat / flat.norm(dim=1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
        return (flat.reshape(scaled.shape) * unit).to(gradient)

    def advanced(
        self, y: Float[Tensor, "batch ..."], gradient: Float[Tensor, "batch ..."], reach: float
    ) -> Tensor:
        """The point at most ``reach`` from ``y`` where a linear function of that gradient is largest.

        Of l1 it is the point of the domain: coordinates are moved to the domain's ends, the steepest first,
        until the length is spent. Of linf and l2 the domain is left to the projection.
        """
        if self.norm != "l1":
            return y + reach * self.steepest(gradient)
        unit, (low, high) = self._unit(y), self.box(y)
        slope, here = gradient.double() * unit, y.double()
        room = (torch.where(slope > 0, high - here, here - low) / unit).expand(y.shape).clamp(min=0)
        room = torch.where(slope == 0, 0, room).flatten(1)
        order = slope.abs().flatten(1).argsort(1, descending=True)
        room = room.gather(1, order)
        before = room.cumsum(1) - room
        far = torch.minimum(room, (reach - before).clamp(min=0))
        far = torch.zeros_like(far).scatter(1, order, far).reshape(y.shape)
        return (here + far * slope.sign() * unit).to(y)

    def random_point(self, x: Float[Tensor, "batch ..."], generator: Generator) -> Tensor:
        """A point drawn uniformly from the ball around each input, then clamped to the domain."""
        return self.project(self.drawn(x, generator), x)

    def drawn(self, x: Float[Tensor, "batch ..."], generator: Generator) -> Tensor:
        """A point drawn uniformly from the ball around each input, in float64 and not yet projected."""
        shape = x.shape
        if self.norm == "linf":
            delta = 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
        else:
            direction = torch.randn(shape, generator=generator, dtype=torch.float64).flatten(1)
            if self.norm == "l1":  # of Laplace's density, which depends on the l1 norm alone
                direction = direction.sign() * torch.empty_like(direction).exponential_(generator=generator)
            reach = torch.rand(len(x), 1, generator=generator, dtype=torch.float64) ** (
                1 / direction.shape[1]
            )
            delta = (direction * (reach / length(direction, self.norm)[:, None])).reshape(shape)
        return x.double() + self.eps * delta.to(x.device) * self._unit(x)

    def size(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> Float[Tensor, " batch"]:
        """The norm of each displacement, computed in float64."""
        return length((y.double() - x.double()) / self._unit(x), self.norm)

    def check(self, y: Float[Tensor, "batch ..."], x: Float[Tensor, "batch ..."]) -> None:
        """Refuse an attack that left the set: an error of the attack, never of the user.

        Raises:
            RuntimeError: A displacement is longer than eps (1 + 1e-6), a point is outside the domain, or a
                feature is not valid.
        """
        longest = self.size(y, x).max().item() if len(x) else 0.0
        if not longest <= self.eps * (1 + SLACK):
            raise RuntimeError(f"an attack left its ball: {self.norm} norm {longest:g}, eps {self.eps:g}")
        if not self.domain.contains(y):
            raise RuntimeError("an attack left the domain")
        if self.features is not None and (problem := self.features.problem(y, x)):
            raise RuntimeError(f"an attack made an input that cannot be: {problem}")

    def hull(self, x: Float[Tensor, "batch ..."]) -> tuple[Tensor, Tensor]:
        """The least and largest value of each coordinate over the set, in float64."""
        center, radius = x.double(), self.eps * self._unit(x)
        low, high = self.box(x)
        return project_box(center - radius, low, high), project_box(center + radius, low, high)

    def _unit(self, x: Tensor) -> Tensor:
        one = torch.ones((), dtype=torch.float64, device=x.device)
        return one if self.unit is None else self.unit.to(one)


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """The map of :meth:`Threat.around` to the set around some inputs.

    Args:
        threat: The set.
        x: The inputs.
        ends: In an l-infinity ball, the least and largest value of each coordinate; else none.
    """

    threat: Threat
    x: Tensor
    ends: tuple[Tensor, ...]

    def __call__(self, y: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The point of the set that is nearest to ``y`` in the ball, then in the box."""
        threat, x = self.threat, self.x
        if threat.eps == 0:
            return x.clone()
        if self.ends:
            return project_box(y.to(x.dtype), *self.ends)
        center, unit, (low, high) = x.double(), threat._unit(x), threat.box(x)
        delta = (y.double() - center) / unit
        if threat.norm == "l1":
            delta = project_l1_box(delta, threat.eps, (low - center) / unit, (high - center) / unit)
        else:
            delta = project_l2(delta, threat.eps)
        return _rounded(project_box(center + delta * unit, low, high), delta * unit, x)

    def at(self, index: Tensor) -> "Around":
        """The map to the sets around the inputs at ``index``."""
        return Around(self.threat, self.x[index], tuple(end[index] for end in self.ends))


def _rounded(point: Float[Tensor, "..."], delta: Tensor, x: Tensor) -> Tensor:
    """A point in float64 in the type of x, rounded towards x where it would be further from x than delta."""
    moved = point.to(x.dtype)
    overshot = (moved.double() - x.double()).abs() > delta.abs()
    return torch.where(overshot, torch.nextafter(moved, x), moved)
