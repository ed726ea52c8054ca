"""Why networks reach every continuous function: monomials by differences (Leshno et al. 1993), then ridges.

In one variable phi(a x + b), differenced in the scale a, gives every monomial unless phi is a polynomial.
Functions of w.x then give those of several variables (Pinkus 1999).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from margin.feedforward.approximation.uniform import Function

Activation = Callable[[Tensor], Tensor]

FLAT = 1e-9
"""A derivative below this, phi and b of the order of 1, is taken for 0."""


class Sum(NamedTuple):
    """A one-hidden-layer network of one variable: sum_j c_j phi(a_j x + b).

    Args:
        scales: a_j.
        offset: b.
        coefficients: c_j.
        activation: phi.
    """

    scales: Float[Tensor, " units"]
    offset: float
    coefficients: Float[Tensor, " units"]
    activation: Activation

    def __call__(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The value at every x, in float64."""
        return self.activation(x.double()[..., None] * self.scales + self.offset) @ self.coefficients


def monomial_network(activation: Activation, power: int, *, step: float, offset: float = 0.5) -> Sum:
    r"""The network of k + 1 units that tends to x^k as its step h does to 0: a difference in the scale.

    .. math:: \frac{1}{h^k \varphi^{(k)}(b)} \sum_{j=0}^k (-1)^{k-j} \binom kj
        \varphi\big((j - \tfrac k2) h x + b\big) = x^k + O(h^2)

    since the k-th derivative of phi(a x + b) in a at 0 is x^k phi^(k)(b). Without the scale, phi(x + b), this
    fails: exp(x + b) is a multiple of exp(x) for every b. In float64 rounding grows as 1e-16 / h^k.

    Args:
        activation: phi, k times differentiable at b.
        power: k, at least 0.
        step: h, positive.
        offset: b, where phi^(k) is not 0.

    Raises:
        ValueError: power or step is out of range, or phi^(k)(b) is 0, as it is everywhere for a polynomial of
            lower degree.

    Reference: Leshno, Lin, Pinkus and Schocken 1993, Theorem 1; Pinkus 1999, Proposition 3.4.
    """
    if power < 0 or not 0 < step < math.inf:
        raise ValueError(f"a monomial network needs power >= 0 and step > 0: got {power}, {step}")
    k, slope = power, derivative(activation, power, offset)
    if not abs(slope) > FLAT:
        raise ValueError(
            f"derivative {k} of the activation must not be 0 at the offset: got {slope + 0.0:.3g} at "
            f"{offset:g}; take another offset, unless the activation is a polynomial of lower degree"
        )
    j = torch.arange(k + 1, dtype=torch.float64)
    signs = torch.tensor([(-1.0) ** (k - i) * math.comb(k, i) for i in range(k + 1)], dtype=torch.float64)
    return Sum((j - k / 2) * step, offset, signs / (step**k * slope), activation)


def derivative(activation: Activation, order: int, at: float) -> float:
    """The derivative of that order of a function of one variable at a point, by automatic differentiation."""
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        value = activation(x)
        for _ in range(order):
            if not value.requires_grad:
                return 0.0
            (value,) = torch.autograd.grad(value, x, create_graph=True, materialize_grads=True)
    return float(value.detach())


class Ridges(NamedTuple):
    """A function of several variables as a sum of functions of one: sum_j g_j(w_j . x).

    Args:
        directions: The w_j, one a row.
        profiles: The g_j.
    """

    directions: Float[Tensor, "ridges dimension"]
    profiles: tuple[Activation, ...]

    def __call__(self, x: Float[Tensor, "batch dimension"]) -> Float[Tensor, " batch"]:
        """The value of each row, in float64."""
        along = x.double() @ self.directions.double().T
        return torch.stack([g(t) for g, t in zip(self.profiles, along.unbind(1), strict=True)]).sum(0)


def product_as_ridges(square: Activation = torch.square) -> Ridges:
    r"""The product of two numbers as two ridges.

    .. math:: x_1 x_2 = \tfrac14 (x_1 + x_2)^2 - \tfrac14 (x_1 - x_2)^2

    With a network of one variable in the place of the square, it is a network of two.

    Args:
        square: What squares, exactly or nearly: with error e, the product's error is at most e / 2.

    Reference: Pinkus 1999, Section 3 (ridge functions).
    """
    directions = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    return Ridges(directions, (lambda t: square(t) / 4, lambda t: -square(t) / 4))


def random_ridge_fit(
    function: Function,
    x: Float[Tensor, "points dimension"],
    width: int,
    *,
    activation: Activation = torch.relu,
    spread: float = 1.0,
    generator: Generator,
) -> Function:
    r"""The least-squares fit at points by a constant and ridges of random directions: phi(w_j . x + b_j).

    Directions are uniform on the sphere; offsets are uniform in [-r, r], r the norm of the farthest point, so
    that every ridge bends within reach of the points.

    Args:
        function: What is fitted.
        x: Points, one a row.
        width: Number of ridges, at least 1.
        activation: phi.
        spread: Factor of w_j and b_j: how steep the ridges are.
        generator: What is drawn from.

    Returns:
        The fit, a function of rows, in float64.

    Raises:
        ValueError: The width is below 1.

    Reference: Pinkus 1999, Proposition 3.3 (from one variable to several); Rahimi and Recht 2008.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1: got {width}")
    x = x.double()
    w = torch.randn(width, x.shape[1], generator=generator, dtype=torch.float64)
    w = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
    reach = torch.linalg.vector_norm(x, dim=1).max()
    b = reach * (2 * torch.rand(width, generator=generator, dtype=torch.float64) - 1)

    def features(points: Tensor) -> Tensor:
        hidden = activation(spread * (points.double() @ w.T + b))
        return torch.cat((hidden, torch.ones_like(hidden[:, :1])), 1)

    solved = torch.linalg.lstsq(features(x), function(x).double()[:, None], rcond=1e-12, driver="gelsd")
    coefficients = solved.solution[:, 0]
    return lambda points: features(points) @ coefficients
