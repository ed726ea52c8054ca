"""Euclidean projections onto norm balls and the simplex, example by example.

The l1 ball and the simplex are projected onto by sorting and thresholding, in O(d log d)
(Duchi, Shalev-Shwartz, Singer & Chandra, 2008).
"""

import torch
from jaxtyping import Float
from torch import Tensor

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
