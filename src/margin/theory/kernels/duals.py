r"""Dual activations: what an activation makes of the covariance of two Gaussian pre-activations.

For (u, v) Gaussian of mean 0 with variances a, b and covariance c,

.. math:: \kappa(a, b, c) = \mathbb{E}[\varphi(u) \varphi(v)], \qquad
    \dot\kappa(a, b, c) = \mathbb{E}[\varphi'(u) \varphi'(v)] = \partial \kappa / \partial c.

ReLU: the arc-cosine kernels (Cho and Saul 2009). erf: Williams (1997). GELU: by Stein's lemma (Tsuchida et
    al.
2021). Any other activation: the trapezoidal rule in two directions, which converges faster than that of
Gauss and Hermite where an activation is steep (Trefethen and Weideman 2014, Section 5): for erf at variances
of 1.7 its error is 1e-15, that of 48 Gauss-Hermite nodes 1e-5. All in float64.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from margin.theory.signal.mean_field import slope_of

Numbers = Float[Tensor, "*#shape"]
"""Broadcast against each other."""

Activation = Literal["relu", "erf", "gelu", "linear"] | Callable[[Tensor], Tensor]
"""Of a name the dual is in closed form; a function of tensors is integrated, elementwise."""

NODES = 65
"""Of the trapezoidal rule in each direction, 0 among them."""

REACH = 8.0
"""Standard deviations to which it goes: beyond lies 1e-15."""

NEAREST = 4 * torch.finfo(torch.float64).eps
"""Correlations within this of 1 count as 1: their angle, 4e-8, is the square root of a rounding."""


class Dual(NamedTuple):
    """The dual of an activation and of its derivative.

    Args:
        value: kappa.
        slope: kappa's derivative by the covariance.
    """

    value: Float[Tensor, "*shape"]
    slope: Float[Tensor, "*shape"]


def relu_dual(a: Numbers, b: Numbers, c: Numbers) -> Dual:
    r"""The arc-cosine kernels of order 1 and 0, halved.

    .. math:: \kappa = \frac{\sqrt{ab}}{2\pi}\,(\sin\theta + (\pi - \theta) \cos\theta), \qquad
        \dot\kappa = \frac{\pi - \theta}{2\pi}, \qquad \cos\theta = \frac{c}{\sqrt{ab}}

    Args:
        a: Variances of u, at least 0.
        b: Variances of v; a, b and c are broadcast.
        c: Covariances.

    Reference: Cho and Saul 2009, Section 2.1 (n = 0 and 1), with E over a standard Gaussian, which is
    half of theirs.
    """
    # roots and inverses are of the variances, a row and a column, and not of their product
    rest, value = arc_cosines((c * -inverse_root(a)).mul_(inverse_root(b)))
    return Dual(value.mul_(a.sqrt() / (2 * math.pi)).mul_(b.sqrt()), rest / (2 * math.pi))


def inverse_root(variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """One over the standard deviation, 0 where that is 0."""
    return torch.where(variance > 0, variance.rsqrt(), 0.0)


def arc_cosines(
    minus: Float[Tensor, "*shape"],
    rest: Float[Tensor, "*shape"] | None = None,
    value: Float[Tensor, "*shape"] | None = None,
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    r"""The angles' :math:`\pi - \theta` and :math:`\sin\theta + (\pi - \theta) \cos\theta`, with few passes.

    Args:
        minus: :math:`-\cos\theta`, which is put into [-1, 1] and, within rounding of -1, to -1.
        rest: Where to write the first; None: anew.
        value: Where to write the second; None: anew.
    """
    torch.threshold_(minus.clamp_max_(1), NEAREST - 1, -1.0)
    rest = torch.acos(minus, out=rest)
    value = torch.addcmul(minus.new_ones(()), minus, minus, value=-1, out=value).sqrt_()
    return rest, value.addcmul_(rest, minus, value=-1)


def erf_dual(a: Numbers, b: Numbers, c: Numbers) -> Dual:
    r"""The dual of the error function.

    .. math:: \kappa = \frac2\pi \arcsin \frac{2c}{\sqrt{(1 + 2a)(1 + 2b)}}, \qquad
        \dot\kappa = \frac4\pi \frac{1}{\sqrt{(1 + 2a)(1 + 2b) - 4c^2}}

    Reference: Williams 1997, Section 3.1; its derivative by c.
    """
    D = (1 + 2 * a) * (1 + 2 * b)
    return Dual(
        (2 * c / D.sqrt()).clamp(-1, 1).arcsin() * (2 / math.pi), 4 / math.pi / (D - 4 * c.square()).sqrt()
    )


def gelu_dual(a: Numbers, b: Numbers, c: Numbers) -> Dual:
    r"""The dual of u Phi(u), Phi the standard Gaussian's distribution function.

    With :math:`P = \mathbb{E}[\Phi(u)\Phi(v)] = \frac14 + \frac1{2\pi} \arcsin\frac{c}{\sqrt{(1+a)(1+b)}}`,
    :math:`D = (1 + a)(1 + b) - c^2` and :math:`Q = 1 / (2\pi \sqrt D)`,

    .. math:: \kappa = c P + Q\Bigl(ab - c^2 + \frac{c^2}{1 + a} + \frac{c^2}{1 + b}\Bigr), \qquad
        \dot\kappa = P + c Q \Bigl(\frac{1}{1 + a} + \frac{1}{1 + b} + \frac1D\Bigr)

    Reference: Tsuchida, Pearce, van der Heide, Roosta and Gallagher 2021, Section 3 (GELU).
    """
    one, other = 1 + a, 1 + b
    D = one * other - c.square()
    P = 0.25 + (c / (one * other).sqrt()).clamp(-1, 1).arcsin() / (2 * math.pi)
    Q = 1 / (2 * math.pi * D.sqrt())
    both = 1 / one + 1 / other
    return Dual(c * P + Q * (a * b - c.square() * (1 - both)), P + c * Q * (both + 1 / D))


def linear_dual(a: Numbers, b: Numbers, c: Numbers) -> Dual:
    """The dual of the identity: the covariance itself, and 1."""
    c = c + 0 * (a * b)
    return Dual(c, torch.ones_like(c))


@cache
def _trapezoid(nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of a mean over a standard Gaussian."""
    z = torch.linspace(-REACH, REACH, nodes, dtype=torch.float64)
    density = (-z.square() / 2).exp()
    return z, density / density.sum()


def quadrature_dual(
    phi: Callable[[Tensor], Tensor], a: Numbers, b: Numbers, c: Numbers, *, nodes: int = NODES
) -> Dual:
    r"""The dual of any activation by the trapezoidal rule in two directions.

    :math:`u = \sqrt a\, z_1` and :math:`v = (c / \sqrt a) z_1 + \sqrt{b - c^2 / a}\, z_2`.

    Args:
        phi: The activation, elementwise. Where it is smooth the rule is exact but for rounding while
            variances are up to about 10; where it bends, as the absolute value, the error is about 1 / nodes.
        a: Variances of u.
        b: Variances of v; a, b and c are broadcast.
        c: Covariances.
        nodes: Of the rule in each direction, odd.
    """
    a, b, c = torch.broadcast_tensors(a, b, c)
    z, weights = _trapezoid(nodes)
    slope = slope_of(phi)
    root = a.sqrt()
    along = torch.where(root > 0, c / root, 0.0)
    across = (b - along.square()).clamp(min=0).sqrt()
    value, derivative = torch.zeros_like(c), torch.zeros_like(c)
    for z_1, w_1 in zip(z.tolist(), weights.tolist(), strict=True):
        u, v = root * z_1, along[..., None] * z_1 + across[..., None] * z
        value += w_1 * phi(u) * (phi(v) @ weights)
        derivative += w_1 * slope(u) * (slope(v) @ weights)
    return Dual(value, derivative)


CLOSED: dict[str, Callable[[Tensor, Tensor, Tensor], Dual]] = {
    "relu": relu_dual,
    "erf": erf_dual,
    "gelu": gelu_dual,
    "linear": linear_dual,
}
"""The duals in closed form."""


def dual(activation: Activation, a: Numbers, b: Numbers, c: Numbers) -> Dual:
    """The dual of an activation, in closed form where there is one.

    Raises:
        ValueError: No closed form has this name.
    """
    if callable(activation):
        return quadrature_dual(activation, a, b, c)
    if activation not in CLOSED:
        raise ValueError(
            f"activation must be one of {', '.join(CLOSED)}, or a function of tensors: got {activation!r}"
        )
    return CLOSED[activation](a, b, c)
