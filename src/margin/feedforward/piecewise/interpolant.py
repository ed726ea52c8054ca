"""Interpolation of data of one feature by straight lines, as a ReLU network (Lebesgue 1898), no descent."""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import NonFiniteError, State, Step
from margin.feedforward.piecewise.linear import Outside, Ramps, pwl_basis

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
                f"got in_features={in_features}; take feedforward/mlp_regressor for more"
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
    weight = torch.ones_like(x) if weight is None else weight
    if not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ValueError("weights of examples must be finite and at least 0: got one that is not")
    kept = weight > 0
    if not bool(kept.any()):
        raise ValueError(f"an interpolant needs an example of weight above 0: got {len(x)} of weight 0")
    x, y, weight = (t[kept].detach().double().cpu() for t in (x, y, weight))
    for what, values in (("inputs", x), ("targets", y)):
        if not bool(values.isfinite().all()):
            row = int((~values.isfinite()).nonzero()[0])
            raise NonFiniteError(f"{what} must be finite: got {float(values[row])} in row {row}")
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
