"""Baselines of a forecast: no change, the season before, and one linear map (Zeng et al. 2023).

Their loss, and that of every forecaster, is in units of each target's deviation: no target outweighs another.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from margin.core.types import Batch, Metrics
from margin.engine.loop import State, Step
from margin.sequence.forecast.forecasting import (
    Context,
    Forecast,
    Normalize,
    Scale,
    TargetScale,
    normalized_context,
)


def repeated(x: Float[Tensor, "batch context targets"], horizon: int, period: int) -> Forecast:
    """The last ``period`` rows of each context, again and again, for ``horizon`` rows.

    Raises:
        ValueError: The period is not in 1 .. context.
    """
    if not 1 <= period <= x.shape[1]:
        raise ValueError(f"period must be in 1 .. {x.shape[1]}, the rows of a context: got {period}")
    ahead = torch.arange(horizon, device=x.device) % period
    return x[:, x.shape[1] - period :].index_select(1, ahead)


class LastValue(nn.Module):
    """The forecast of no change: every value ahead is the last one; the best of a random walk.

    Args:
        input_size: Columns of the series.
        horizon: Steps that are forecast.
        num_targets: Columns that are forecast.
        target_scale: For each target its column, mean and deviation in training.

    Reference:
        Hyndman and Athanasopoulos 2021, Section 5.2 (naive method).
    """

    def __init__(self, input_size: int, horizon: int, num_targets: int, target_scale: Scale) -> None:
        super().__init__()
        self.scale = TargetScale(target_scale, num_targets)
        self.horizon = horizon

    def forward(self, x: Context) -> Forecast:
        """The last value of each target, ``horizon`` times."""
        return self.scale(repeated(self.scale.of_columns(x), self.horizon, 1))


class SeasonalNaive(nn.Module):
    """The forecast of one season ago: the last ``period`` values again and again.

    Args:
        input_size: Columns of the series.
        time: Rows of a context.
        horizon: Steps that are forecast.
        num_targets: Columns that are forecast.
        target_scale: For each target its column, mean and deviation in training.
        season: Rows of a season by the times of the data, as 24 of hours or 12 of months; 1 where they say
            none.
        period: Rows of a season; the data's own if not given. A period of 1 is the forecast of no change,
            :class:`LastValue`.

    Raises:
        ValueError: A context has no whole season.

    Reference:
        Hyndman and Athanasopoulos 2021, Section 5.2 (seasonal naive method).
    """

    def __init__(
        self,
        input_size: int,
        time: int,
        horizon: int,
        num_targets: int,
        target_scale: Scale,
        season: int = 1,
        *,
        period: int | None = None,
    ) -> None:
        super().__init__()
        rows = season if period is None else period
        if not 1 <= rows <= time:
            remedy = f": set --data.context {rows} or more" if rows > time else ""
            raise ValueError(f"period must be in 1 .. {time}, the rows of a context: got {rows}{remedy}")
        self.scale = TargetScale(target_scale, num_targets)
        self.horizon, self.period = horizon, rows
        whose = "as given" if period is not None else "a season by the data's own times"
        self.notes = (f"the forecast repeats the last {rows} rows, {whose}",)

    def forward(self, x: Context) -> Forecast:
        """The value of each target one or more whole seasons before."""
        return self.scale(repeated(self.scale.of_columns(x), self.horizon, self.period))


def nothing_to_learn() -> Step:
    """A step that leaves the model as it is; its loss is the mean squared error on the batch."""

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("a forecast is judged by what followed: the batch has no targets")
        error = (state.model(*batch.inputs) - batch.targets) / state.core.scale.std
        return {"loss": error.square().mean()}

    return step


class LinearForecaster(nn.Module):
    r"""One linear map of the context for each target: L numbers to the next H.

    .. math:: \hat x_{T+1 \dots T+H} = \ell + s\, (W z_{1 \dots L} + b), \qquad z = (x - \ell) / s

    with l and s what is taken out of the context.

    Args:
        input_size: Columns of the series.
        time: L, rows of a context.
        horizon: H, steps that are forecast.
        num_targets: Columns that are forecast.
        target_scale: For each target its column, mean and deviation in training.
        reads: own: a target's map reads its own column; all: it reads every column.
        maps: own: each target has a map of its own; one: all share one, which reads their own columns.
        normalize: What is taken out of a context: nothing, its last value, or its mean and deviation.

    Raises:
        ValueError: The maps of targets that read all columns are to be shared.

    Reference:
        Zeng, Chen, Zhang and Xu 2023, Section 4.1 (Linear and NLinear; they descend, here it is solved).
    """

    def __init__(  # 5 dictated by the data
        self,
        input_size: int,
        time: int,
        horizon: int,
        num_targets: int,
        target_scale: Scale,
        *,
        reads: Literal["own", "all"] = "own",
        maps: Literal["own", "one"] = "own",
        normalize: Normalize = "last",
    ) -> None:
        super().__init__()
        if reads == "all" and maps == "one":
            raise ValueError("one map of all targets reads each one's own column: got reads=all, maps=one")
        self.scale = TargetScale(target_scale, num_targets)
        self.reads, self.normalize = reads, normalize
        count = 1 if maps == "one" else num_targets
        width = time * (input_size if reads == "all" else 1)
        self.weight = nn.Parameter(torch.zeros(count, horizon, width))
        self.bias = nn.Parameter(torch.zeros(count, horizon))

    def read(self, x: Context) -> tuple[Float[Tensor, "maps batch width"], Tensor, Tensor]:
        """What each target's map reads, and the level and the unit of each target."""
        z, level, unit = normalized_context(x, self.normalize)
        level, unit = self.scale.of_columns(level), self.scale.of_columns(unit)
        if self.reads == "all":
            return z.flatten(1).expand(level.shape[2], -1, -1), level, unit
        return self.scale.of_columns(z).permute(2, 0, 1), level, unit

    def forward(self, x: Context) -> Forecast:
        """The forecast of each context, in the series' units."""
        read, level, unit = self.read(x)
        ahead = torch.einsum("mbl,mhl->bhm", read, self.weight.expand(len(read), -1, -1))
        return self.scale(level + unit * (ahead + self.bias.expand(len(read), -1).T))


def linear_solution(
    z: Float[Tensor, "rows width"], y: Float[Tensor, "rows horizon"], penalty: float = 0.0
) -> tuple[Float[Tensor, "horizon width"], Float[Tensor, " horizon"]]:
    r"""The W and b that minimize sum_i |W z_i + b - y_i|^2 + penalty |W|^2; b is not penalized.

    In float64 by the eigenvectors of the centered Z^T Z; directions whose eigenvalue is below
    ``max(rows, width) eps`` times the largest count as not there, so the W of least norm is taken.

    Raises:
        ValueError: The penalty is negative.

    Reference: Hastie, Tibshirani and Friedman 2009, Equations 3.6 and 3.44.
    """
    if penalty < 0:
        raise ValueError(f"penalty must be at least 0: got {penalty:g}")
    z, y = z.double(), y.double()
    center, mean = z.mean(0), y.mean(0)
    centered = z - center
    values, vectors = torch.linalg.eigh(centered.T @ centered)
    kept = values > max(z.shape) * torch.finfo(torch.float64).eps * values.max()
    inverse = torch.where(kept, 1 / (values + penalty).where(kept, 1), 0)
    W = ((vectors * inverse) @ (vectors.T @ (centered.T @ (y - mean)))).T
    return W, mean - W @ center


def exact_forecast(*, penalty: float = 0.0) -> Step:
    """One exact solve of each target's linear map on the batch; the loss is in units of the deviations.

    Where a context's own deviation is taken out, its windows are judged in that unit.

    Args:
        penalty: What is added to the squared error for the squared norm of the map, at least 0.
    """

    @torch.no_grad()
    def step(state: State, batch: Batch) -> Metrics:
        if batch.targets is None:
            raise ValueError("a forecast is learned from what followed: the batch has no targets")
        model: Any = state.core
        read, level, unit = model.read(state.features(batch))
        y = ((batch.targets - model.scale.mean) / model.scale.std - level) / unit
        y = y.permute(2, 0, 1)
        if len(model.weight) == 1:
            read, y = read.flatten(0, 1)[None], y.flatten(0, 1)[None]
        for k in range(len(model.weight)):
            W, b = linear_solution(read[k], y[k], penalty)
            model.weight[k], model.bias[k] = W.to(model.weight), b.to(model.bias)
        error = (state.model(*batch.inputs) - batch.targets) / model.scale.std
        return {"loss": error.square().mean()}

    return step
