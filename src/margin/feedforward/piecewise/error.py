"""How far a function is from its interpolant on pieces of length h: omega_f(h), and h^2 |f''| / 8."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.feedforward.piecewise.linear import basis_of_network, linear, pieces_for, pwl_basis, relu_network

Function = Callable[[Tensor], Tensor]

MOST_POINTS = 200_000
"""Points at which an error is looked at."""

ROUNDING = 1e-12


class FunctionInterpolant(nn.Module):
    """The ReLU network that interpolates a known function on equal pieces of an interval, in float64.

    Args:
        function: f, of a tensor, elementwise, defined on the interval.
        low: Left end.
        high: Right end.
        pieces: Number of pieces, at least 1; each is h = (high - low) / pieces long.
        modulus: A bound of omega_f: h -> the most that f moves over a distance h; None: not known.
        curvature: A bound M of the second derivative of f in absolute value; None: not known.

    Raises:
        ValueError: The interval is empty, pieces is below 1, a bound is negative, or f is not finite.

    Reference:
        de Boor 2001, Chapter III (broken-line interpolation).
    """

    def __init__(
        self,
        function: Function,
        low: float,
        high: float,
        *,
        pieces: int = 16,
        modulus: Callable[[float], float] | None = None,
        curvature: float | None = None,
    ) -> None:
        super().__init__()
        if not (low < high and math.isfinite(low) and math.isfinite(high)) or pieces < 1:
            raise ValueError(
                f"an interpolant needs low < high, finite, and pieces >= 1: got {low}, {high}, {pieces}"
            )
        if curvature is not None and not 0 <= curvature < math.inf:
            raise ValueError(f"curvature must be finite and at least 0: got {curvature}")
        self.function, self.modulus, self.curvature = function, modulus, curvature
        self.low, self.high, self.pieces = low, high, pieces
        self.layers = relu_network(pwl_basis(self.knots(), self.function(self.knots())))

    def knots(self) -> Float[Tensor, " knots"]:
        """The ends of the pieces, in float64."""
        return torch.linspace(self.low, self.high, self.pieces + 1, dtype=torch.float64)

    def forward(self, x: Float[Tensor, "batch 1"]) -> Float[Tensor, " batch"]:
        """The interpolant's value at each x."""
        return self.layers(x).flatten()


def interpolant_within(
    function: Function, low: float, high: float, *, tolerance: float, curvature: float
) -> FunctionInterpolant:
    """A ReLU network that is nowhere on an interval farther from a function than a tolerance.

    Args:
        function: f, twice continuously differentiable.
        low: Left end.
        high: Right end.
        tolerance: The uniform error allowed, positive.
        curvature: A bound of the second derivative of f in absolute value.

    Raises:
        ValueError: A number is out of range.

    Reference: de Boor 2001, Chapter III (broken-line interpolation); Leshno et al. 1993, Theorem 1.
    """
    pieces = pieces_for(high - low, curvature, tolerance)
    return FunctionInterpolant(function, low, high, pieces=pieces, curvature=curvature)


class Error(NamedTuple):
    """The error of an interpolant on a grid that holds its knots and the middles of its pieces.

    Args:
        x: The grid.
        function: f there.
        network: The network's answers there.
        step: Distance of neighbors.
    """

    x: Float[Tensor, " points"]
    function: Float[Tensor, " points"]
    network: Float[Tensor, " points"]
    step: float

    @property
    def largest(self) -> float:
        """The largest error on the grid: a lower bound of the uniform distance."""
        return float((self.function - self.network).abs().max())


def error_on_grid(model: FunctionInterpolant) -> Error:
    """The error at up to 1,024 points of every piece, an even number, and MOST_POINTS in all."""
    fine = 2 * max(4, min(512, MOST_POINTS // (2 * model.pieces)))
    count = fine * model.pieces
    x = torch.linspace(model.low, model.high, count + 1, dtype=torch.float64)
    with torch.no_grad():
        network = torch.cat([model(part[:, None]) for part in x.split(max(1, 2**22 // (model.pieces + 2)))])
        return Error(x, model.function(x).double(), network.double(), (model.high - model.low) / count)


def equal_at_knots(model: FunctionInterpolant) -> tuple[float, bool]:
    """The largest gap of network and function at the knots, and whether the network bends only there."""
    knots = model.knots()
    with torch.no_grad():
        gap = float((model(knots[:, None]) - model.function(knots)).abs().max())
    bends = basis_of_network(linear(model.layers[0]), linear(model.layers[2])).knots
    inside = bends[(bends > model.low) & (bends < model.high)]
    away = (inside[:, None] - knots).abs().amin(1) if len(inside) else inside
    return gap, bool((away <= 1e-9 * (model.high - model.low) / model.pieces).all())


def second_difference(error: Error) -> float:
    r"""The largest :math:`|f(x + d) - 2 f(x) + f(x - d)| / d^2` on the grid: at most M if \|f''\| <= M.

    It is taken over about a thousand steps, so that rounding, some 1e-16 / d^2 of f, stays small.
    """
    stride = max(1, (len(error.x) - 1) // 2000)
    f = error.function[::stride]
    if len(f) < 3:
        return 0.0
    return float(f.diff(n=2).abs().max()) / (stride * error.step) ** 2


def largest_move(error: Error, steps: int) -> float:
    r"""The largest \|f(x + steps d) - f(x)\| on the grid: at most omega_f(steps d)."""
    f = error.function
    return float((f[steps:] - f[:-steps]).abs().max()) if 0 < steps < len(f) else 0.0
