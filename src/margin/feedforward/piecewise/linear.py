"""Piecewise-linear functions of one variable as sums of ramps (Lebesgue 1898), and as ReLU networks.

A function with m pieces is an affine map and m - 1 ramps (x - x_i)_+, one for each change of slope: a
network with one hidden layer of ReLUs. The map goes both ways, exactly.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

Outside = Literal["constant", "linear"]

SAME_KNOT = 1e-13
"""Knots that are nearer to each other than this share of their size are one, moved by rounding."""


class Ramps(NamedTuple):
    r"""The function :math:`g(x) = a x + b + \sum_i c_i (x - x_i)_+`, in float64.

    Args:
        slope: a, the slope left of every knot.
        intercept: b.
        knots: x_1 < ... < x_k.
        changes: c_i, by how much the slope changes at each knot.
    """

    slope: Float[Tensor, ""]
    intercept: Float[Tensor, ""]
    knots: Float[Tensor, " knots"]
    changes: Float[Tensor, " knots"]

    def __call__(self, x: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The value at every x, in float64."""
        x = x.double()
        ramps = (x[..., None] - self.knots).clamp_min(0)
        return self.slope * x + self.intercept + ramps @ self.changes


def pwl_basis(
    knots: Float[Tensor, " points"],
    values: Float[Tensor, " points"],
    *,
    outside: Outside = "linear",
    dtype: torch.dtype = torch.float64,
) -> Ramps:
    r"""The ramps of the piecewise-linear function through points (x_j, y_j).

    .. math:: c_i = \frac{y_{i+1} - y_i}{x_{i+1} - x_i} - \frac{y_i - y_{i-1}}{x_i - x_{i-1}}

    Each c_i makes up for the rounding of those before it: in float32 too a point is missed by a rounding of
    the change of slope before it, times the length of the piece, and such errors do not add up.

    Args:
        knots: The x_j, strictly rising; at least one.
        values: The y_j.
        outside: Beyond the first and last point, go on in a straight line (then these two are no knots) or
            stay at their values.
        dtype: The type that a, b, c_i and x_i must fit in without rounding; the knots given must fit already.

    Raises:
        ValueError: There is no point, the knots do not rise, or a number is not finite.

    Reference: Lebesgue 1898, whose proof of Weierstrass's theorem writes polygons as such sums.
    """
    x, y = knots.detach().double().cpu(), values.detach().double().cpu()
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise ValueError(
            f"knots and values must be as many, at least one: got {tuple(x.shape)}, {tuple(y.shape)}"
        )
    if not bool(x.isfinite().all() and y.isfinite().all()):
        raise ValueError("knots and values must be finite: got one that is not")
    if not bool((x.diff() > 0).all()):
        at = int((x.diff() <= 0).nonzero()[0])
        raise ValueError(f"knots must rise strictly: got {float(x[at]):g}, then {float(x[at + 1]):g}")
    slope, intercept, changes = _fitted(x.tolist(), y.tolist(), outside, dtype)
    kept = x if outside == "constant" else x[1:-1]
    numbers = torch.tensor([slope, intercept, *changes], dtype=torch.float64)
    if not bool(numbers.isfinite().all()):
        gap = float(x.diff().min())
        raise ValueError(f"a slope must be finite: got knots {gap:g} apart; give them farther apart")
    return Ramps(numbers[0], numbers[1], kept, numbers[2:])


def _fitted(
    x: list[float], y: list[float], outside: Outside, dtype: torch.dtype
) -> tuple[float, float, list[float]]:
    """Slope, intercept and changes that fit in a type, each chosen for what the ones before it left."""
    as_numpy: Any = np.float32 if dtype == torch.float32 else np.float64

    def rounded(number: float) -> float:
        return float(as_numpy(number))

    with np.errstate(over="ignore"):
        if outside == "constant" or len(x) == 1:
            slope, value = 0.0, rounded(y[0])
            intercept, first = value, 0
        else:
            slope = rounded((y[1] - y[0]) / (x[1] - x[0]))
            intercept = rounded(y[0] - slope * x[0])
            value, first = intercept + slope * x[1], 1
        current, changes = slope, []
        for i in range(first, len(x) - 1):
            change = rounded((y[i + 1] - value) / (x[i + 1] - x[i]) - current)
            current += change
            value += current * (x[i + 1] - x[i])
            changes.append(change)
    if outside == "constant":
        changes.append(rounded(-current))
    return slope, intercept, changes


def relu_network(g: Ramps) -> nn.Sequential:
    """The same function as a network of one input, one hidden layer of ReLUs and one output, in float64.

    The affine part takes two more units: a x = a (x)_+ - a (-x)_+.

    Args:
        g: The function.
    """
    count = len(g.knots) + 2
    network = nn.Sequential(nn.Linear(1, count), nn.ReLU(), nn.Linear(count, 1)).double()
    hidden, output = linear(network[0]), linear(network[2])
    one = torch.ones(len(g.knots), dtype=torch.float64)
    zeros = g.knots.new_zeros(2)
    with torch.no_grad():
        hidden.weight.copy_(torch.cat((g.knots.new_tensor([1.0, -1.0]), one))[:, None])
        hidden.bias.copy_(torch.cat((zeros, -g.knots)))
        output.weight.copy_(torch.cat((torch.stack((g.slope, -g.slope)), g.changes))[None])
        output.bias.copy_(g.intercept[None])
    return network


def linear(module: nn.Module) -> nn.Linear:
    """The module, which must be an affine layer.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(module, nn.Linear):
        raise TypeError(f"an affine layer is wanted: got {type(module).__name__}")
    return module


def basis_of_network(hidden: nn.Linear, output: nn.Linear) -> Ramps:
    r"""The ramps of a network with one input and one hidden layer of ReLUs: what it computes, exactly.

    .. math:: v (w x + u)_+ = \begin{cases} v |w| (x + u/w)_+ & w > 0 \\
        v (w x + u) + v |w| (x + u/w)_+ & w < 0 \end{cases}

    Units with one knot are added up; knots where the slope does not change are left out.

    Args:
        hidden: The first layer, of one input.
        output: The second, of one output.

    Raises:
        ValueError: There is more than one input or output, or the layers do not fit.
    """
    if hidden.in_features != 1 or output.out_features != 1 or hidden.out_features != output.in_features:
        raise ValueError(
            "the ramps are those of one input and one output: "
            f"got layers {hidden.in_features}-{hidden.out_features} and "
            f"{output.in_features}-{output.out_features}"
        )
    w, v = hidden.weight.detach().double()[:, 0], output.weight.detach().double()[0]
    u = torch.zeros_like(w) if hidden.bias is None else hidden.bias.detach().double()
    b = w.new_zeros(()) if output.bias is None else output.bias.detach().double()[0]
    left, flat = w < 0, w == 0
    slope = (v * w)[left].sum()
    intercept = b + (v * u)[left].sum() + (v * u.clamp_min(0))[flat].sum()
    where, order = (-u / w)[~flat].sort()
    changes = (v * w.abs())[~flat][order]
    starts = torch.ones(len(where), dtype=torch.bool)
    starts[1:] = where.diff() > SAME_KNOT * where[1:].abs().clamp_min(torch.finfo(w.dtype).tiny)
    group = starts.cumsum(0) - 1
    total = changes.new_zeros(int(starts.sum())).index_add(0, group, changes)
    scale = changes.new_zeros(len(total)).index_add(0, group, changes.abs())
    kept = total.abs() > 4 * torch.finfo(w.dtype).eps * scale
    return Ramps(slope, intercept, where[starts][kept], total[kept])


def pieces_for(length: float, curvature: float, tolerance: float) -> int:
    r"""How many equal pieces an interpolant needs, so that h^2 M / 8 <= t: n >= length sqrt(M / (8 t)).

    Args:
        length: Of the interval, positive.
        curvature: M, a bound of \|f''\|, at least 0.
        tolerance: t, the uniform error allowed, positive.

    Raises:
        ValueError: A number is out of range.

    Reference: de Boor 2001, Chapter III (broken-line interpolation).
    """
    if not (0 < length < math.inf and 0 <= curvature < math.inf and tolerance > 0):
        raise ValueError(
            "the count needs length > 0, curvature >= 0 and tolerance > 0: "
            f"got {length:g}, {curvature:g}, {tolerance:g}"
        )
    return max(1, math.ceil(length * math.sqrt(curvature / (8 * tolerance))))
