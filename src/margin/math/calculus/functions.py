"""Integrals by quadrature, and integration by parts, in float64 (Davis and Rabinowitz 1984, Section 2.7)."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Function = Callable[[Tensor], Tensor]
NODES = 16


def integrate(
    f: Function, low: Float[Tensor, "*batch"], high: Float[Tensor, "*batch"], *, panels: int = 32
) -> Float[Tensor, "*batch"]:
    """The integral of ``f`` from each ``low`` to each ``high``, by the Gauss-Legendre rule on equal panels.

    On a panel the rule of 16 nodes is exact for polynomials of degree 31. Where f jumps, end an interval.

    Args:
        f: ``x -> f(x)``, elementwise on float64 tensors of shape the batch, nodes last.
        low: Lower ends, finite.
        high: Upper ends, finite; below ``low`` the integral changes its sign.
        panels: Into how many parts each interval is cut.

    Raises:
        ValueError: There is no panel, or an end is not finite.
    """
    low, high = low.double(), high.double()
    if panels < 1:
        raise ValueError(f"panels must be at least 1: got {panels}")
    if not bool((low.isfinite() & high.isfinite()).all()):
        raise ValueError("the ends of an integral must be finite: cut it where the rest is negligible")
    nodes, weights = (torch.from_numpy(x).to(low.device) for x in np.polynomial.legendre.leggauss(NODES))
    starts = torch.arange(panels, dtype=torch.float64, device=low.device)
    share = ((starts[:, None] + (nodes + 1) / 2) / panels).flatten()
    width = high - low
    values = f(low[..., None] + width[..., None] * share)
    return (values * weights.repeat(panels)).sum(-1) * width / (2 * panels)


def integrate_by_parts(
    u: Function, v: Function, low: Float[Tensor, "*batch"], high: Float[Tensor, "*batch"], *, panels: int = 32
) -> Float[Tensor, "*batch"]:
    r"""The integral of u v', from the boundary terms and the derivative of u.

    .. math:: \int_a^b u\, v' = u(b) v(b) - u(a) v(a) - \int_a^b v\, u'

    Args:
        u: A differentiable elementwise function; its derivative is taken by automatic differentiation.
        v: Another.
        low: a, finite.
        high: b, finite.
        panels: Into how many parts each interval is cut.

    Reference: Rudin 1976, Theorem 6.22.
    """
    low, high = low.double(), high.double()

    def v_times_slope(x: Tensor) -> Tensor:
        return v(x) * torch.func.grad(lambda t: u(t).sum())(x)

    ends = u(high) * v(high) - u(low) * v(low)
    return ends - integrate(v_times_slope, low, high, panels=panels)
