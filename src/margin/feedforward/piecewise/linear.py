"""Piecewise-linear functions of one variable as sums of ramps (Lebesgue 1898), and as ReLU networks.

A function with m pieces is an affine map and m - 1 ramps (x - x_i)_+, one for each change of slope: a
network with one hidden layer of ReLUs. The map goes both ways, exactly.

Interpolation of data of one feature by straight lines, as a ReLU network (Lebesgue 1898), no descent.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.engine.weighted_rows import weighted

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


Placement = Literal["quantiles", "uniform"]


class Float64Linear(nn.Linear):
    """The affine map x -> W x + b, computed in float64 whatever the type of its weights."""

    def forward(self, input: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch units"]:
        """The images, in float64."""
        return F.linear(input.double(), self.weight.double(), self.bias.double())


class PiecewiseLinearInterpolant(nn.Module):
    r"""The piecewise-linear function through the data, as one hidden layer: b + sum_i c_i (x - x_i)_+.

    Examples of one input are taken at their mean. It is computed in float64 because slopes between near
    inputs are large and cancel; time and memory of an answer are proportional to the number of knots. In
    float32 the weights themselves round where two inputs nearly agree: the training's metric ``gap`` is the
    largest miss at a knot, and ``precision=float64`` removes it.

    Args:
        in_features: Number of features, which must be 1.
        num_examples: Number of training examples: the largest number of knots.
        knots: How many knots are kept, ends included; 0: every training input.
        placement: Where, if not everywhere: at quantiles of the training inputs, each a training input, or
            evenly between the least and the largest, at the values of the interpolant of all.
        outside: Beyond the outermost knots: constant, or a straight line of the outermost slope.

    Raises:
        ValueError: There is more than one feature, or knots is negative or 1.

    Reference:
        Lebesgue 1898 (the sum of ramps); de Boor 2001, Chapter III (broken-line interpolation).
    """

    def __init__(
        self,
        in_features: int,
        num_examples: int,
        *,
        knots: int = 0,
        placement: Placement = "quantiles",
        outside: Outside = "constant",
    ) -> None:
        super().__init__()
        if in_features != 1:
            raise ValueError(
                "a piecewise-linear interpolant is a function of one feature: "
                f"got in_features={in_features}; take feedforward/mlp for more"
            )
        if knots < 0 or knots == 1:
            raise ValueError(f"knots must be 0 (every training input) or at least 2: got {knots}")
        self.knots, self.placement, self.outside = knots, placement, outside
        units = max(2, min(knots, num_examples) if knots else num_examples)
        self.hidden, self.activation = Float64Linear(1, units), nn.ReLU()
        self.output = Float64Linear(units, 1)
        for layer in (self.hidden, self.output):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row, in the type of ``x``."""
        return self.double_values(x).to(x.dtype)

    def double_values(self, x: Float[Tensor, " batch *features"]) -> Float[Tensor, " batch"]:
        """The value of each row, in float64."""
        return self.output(self.activation(self.hidden(x.flatten(1)))).flatten()


class Points(NamedTuple):
    """Distinct inputs, rising, and the weighted mean of the targets at each, in float64."""

    x: Float[Tensor, " points"]
    y: Float[Tensor, " points"]


def points_of(
    x: Float[Tensor, " rows"], y: Float[Tensor, " rows"], weight: Float[Tensor, " rows"] | None = None
) -> Points:
    """The distinct inputs with the weighted mean of their targets; rows of weight 0 are left out.

    Raises:
        ValueError: A weight is negative or not finite, or none is above 0.
        NonFiniteError: An input or a target is not finite.
    """
    rows = weighted(x.detach()[:, None], y.detach(), weight, "an interpolant")
    x, y, weight = (t.double().cpu() for t in (rows.x[:, 0], rows.targets, rows.weight))
    distinct, group = x.unique(return_inverse=True)
    sums = torch.zeros(2, len(distinct), dtype=torch.float64)
    sums[0].index_add_(0, group, weight * y)
    sums[1].index_add_(0, group, weight)
    return Points(distinct, sums[0] / sums[1])


def thinned(points: Points, knots: int, placement: Placement, dtype: torch.dtype) -> Points:
    """As many points of the interpolant of all as are wanted: at quantiles of the inputs, or evenly spaced.

    Args:
        points: All of them.
        knots: How many, at least 2; 0 keeps all.
        placement: Where.
        dtype: The type that evenly spaced knots are rounded to.
    """
    x, y = points
    if len(x) == 1 or (placement == "quantiles" and not 0 < knots < len(x)) or not knots:
        return points
    if placement == "quantiles":
        index = torch.linspace(0, len(x) - 1, knots, dtype=torch.float64).round().long()
        return Points(x[index], y[index])
    even = torch.linspace(float(x[0]), float(x[-1]), knots, dtype=torch.float64).to(dtype).double()
    even = even.clamp(x[0], x[-1]).unique()
    return Points(even, torch.from_numpy(np.interp(even.numpy(), x.numpy(), y.numpy())))


def wanted_points(
    core: PiecewiseLinearInterpolant,
    x: Float[Tensor, "rows features"],
    y: Float[Tensor, " rows"],
    weight: Float[Tensor, " rows"] | None,
) -> Points:
    """The points that a model's function is to pass through, given the training rows as it sees them."""
    if x.shape[1] != 1:
        raise ValueError(f"a piecewise-linear interpolant is a function of one feature: got {x.shape[1]}")
    dtype = core.hidden.weight.dtype
    return thinned(points_of(x[:, 0], y, weight), core.knots, core.placement, dtype)


def interpolation() -> Step:
    """One pass over the batch: the weights are written down, knot by knot, without descent."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("an interpolant needs targets: the data have none")
        core: Any = state.core
        x, y = state.features(batch).flatten(1), batch.targets
        points = wanted_points(core, x, y, batch.weight)
        write_ramps(core, pwl_basis(*points, outside=core.outside, dtype=core.hidden.weight.dtype))
        weight = torch.ones_like(y) if batch.weight is None else batch.weight
        squares = (core(x).double() - y.double()).square()
        loss = torch.where(weight > 0, weight * squares, 0).sum() / weight.sum()
        gap = (core.double_values(points.x[:, None].to(x.device)).cpu() - points.y).abs().max()
        return {"loss": loss, "knots": float(len(points.x)), "gap": gap}

    return step


def write_ramps(core: PiecewiseLinearInterpolant, g: Ramps) -> None:
    """Write a function into the network: a unit a knot, two for an affine part, the rest idle.

    Raises:
        ValueError: It has more units than the network.
    """
    hidden, output = core.hidden, core.output
    affine = bool(g.slope != 0)
    needed, units = len(g.knots) + 2 * affine, hidden.out_features
    if needed > units:
        raise ValueError(f"the network must have a unit for each ramp: got {needed} ramps, {units} units")
    weights = torch.zeros(3, units, dtype=torch.float64)
    if affine:
        weights[0, :2] = torch.tensor([1.0, -1.0])
        weights[2, :2] = torch.stack((g.slope, -g.slope))
    ramps = slice(2 * affine, needed)
    weights[0, ramps], weights[1, ramps], weights[2, ramps] = 1.0, -g.knots, g.changes
    with torch.no_grad():
        hidden.weight.copy_(weights[0][:, None])
        hidden.bias.copy_(weights[1])
        output.weight.copy_(weights[2][None])
        output.bias.copy_(g.intercept[None])
