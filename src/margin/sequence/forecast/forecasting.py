"""Direct forecasts of several steps by a recurrence (Werbos 1988; Wen et al. 2017), in the series' units."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.tasks import LEVELS, pinball, squared_error
from margin.core.types import Batch
from margin.nn.preprocessed import core_of
from margin.nn.recurrence import Recurrence

Context = Float[Tensor, "batch context columns"]
PerColumn = Float[Tensor, "batch 1 columns"]
Forecast = Float[Tensor, "batch horizon targets"]
Quantiles = Float[Tensor, "batch horizon targets levels"]

Normalize = Literal["none", "last", "mean_std"]
"""What is taken out of a context before it is read, and put back into the forecast."""

Scale = Sequence[Sequence[float]]
"""For each target its column among the inputs, and mean and deviation of that column in training."""

Reads = Literal["all", "own"]
"""Whether a target's forecast reads every column, or its own alone, all by one network (Nie et al. 2023)."""

SMALLEST = 1e-5
"""Added to the variance of a context that is divided by its deviation (Kim et al. 2022)."""


def normalized_context(x: Context, how: Normalize) -> tuple[Context, PerColumn, PerColumn]:
    """A context less its level, the level, and the unit in which the rest is measured.

    Args:
        x: Contexts.
        how: "none" takes out nothing; "last" the last value of each column; "mean_std" the mean, and divides
            by the deviation sqrt(var + 1e-5), of each column over the context.

    Returns:
        The contexts that are read; level and unit (batch, 1, columns).

    Reference: Kim et al. 2022 (RevIN), Section 3.1, without its learned scale; Zeng et al. 2023, Section 4.1.
    """
    if how == "mean_std":
        level = x.mean(1, keepdim=True)
        unit = ((x - level).square().mean(1, keepdim=True) + SMALLEST).sqrt()
        return (x - level) / unit, level, unit
    level = x[:, -1:] if how == "last" else torch.zeros_like(x[:, :1])
    return x - level, level, torch.ones_like(level)


def width_read(input_size: int, reads: Reads) -> int:
    """The numbers of a step that the recurrence of a forecast reads: all columns, or one."""
    return input_size if reads == "all" else 1


class TargetScale(nn.Module):
    """The affine map of each target from a model's units, mean 0 and deviation 1 in training, to the series'.

    Args:
        target_scale: For each target its column among the inputs, mean and deviation.
        num_targets: Number of targets.

    Raises:
        ValueError: There is not one record a target, a column is negative, or a deviation is not positive.
    """

    columns: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, target_scale: Scale, num_targets: int) -> None:
        super().__init__()
        if len(target_scale) != num_targets:
            raise ValueError(
                f"target_scale must have a record a target: got {len(target_scale)}, {num_targets} targets"
            )
        columns, mean, std = zip(*target_scale, strict=True)
        if min(columns) < 0 or min(std) <= 0:
            raise ValueError(f"target_scale must be (column, mean, deviation > 0): got {list(target_scale)}")
        self.register_buffer("columns", torch.tensor([int(k) for k in columns]))
        self.register_buffer("mean", torch.tensor([float(m) for m in mean]))
        self.register_buffer("std", torch.tensor([float(s) for s in std]))

    def of_columns(self, x: Float[Tensor, "*batch columns"]) -> Float[Tensor, "*batch targets"]:
        """The columns that are forecast."""
        return x.index_select(-1, self.columns)

    def forward(self, z: Float[Tensor, "*batch targets"]) -> Float[Tensor, "*batch targets"]:
        """Targets in the series' units."""
        return self.mean + self.std * z


class Forecaster(nn.Module):
    r"""The next H values of each target, all at once, from what a recurrence has read of the context.

    .. math:: \hat x_{T+h} = \mu + \sigma \left(\ell + s\, (W_h y_T + b_h)\right), \qquad h = 1 \dots H

    with l and s the level and the unit that are taken out of the context, mu and sigma the target's mean and
    deviation in training. With the level "last" and W = 0 it is the forecast of no change.

    With quantiles the outputs are three numbers a step: the median as above, and the levels .1 and .9 below
    and above it by :math:`\sigma s\,\mathrm{softplus}(\cdot)`, so they never cross.

    Args:
        recurrence: What reads the context; its input size is the number of columns, or 1 where a target's
            forecast reads its own.
        horizon: H, steps that are forecast.
        num_targets: Columns that are forecast.
        target_scale: For each target its column, mean and deviation in training.
        reads: Whether the forecast of a target reads every column, or its own alone; then one network
            forecasts every target.
        normalize: What is taken out of a context: nothing, its last value, or its mean and deviation.
        outputs: The expected value, or the quantiles of the levels .1, .5 and .9.

    Raises:
        ValueError: A size is below 1, or the scale or the recurrence's input size does not fit.

    Reference:
        Wen, Torkkola, Narayanaswamy and Madeka 2017, Section 3 (direct multi-horizon quantiles); Nie et al.
        2023, Section 3.1 (a column by itself).
    """

    def __init__(
        self,
        recurrence: Recurrence,
        horizon: int,
        num_targets: int,
        target_scale: Scale,
        *,
        reads: Reads = "all",
        normalize: Normalize = "last",
        outputs: Literal["mean", "quantiles"] = "mean",
    ) -> None:
        super().__init__()
        if horizon < 1 or num_targets < 1:
            raise ValueError(f"horizon and targets must be at least 1: got {horizon} and {num_targets}")
        self.recurrence = recurrence
        self.scale = TargetScale(target_scale, num_targets)
        if reads == "own" and recurrence.input_size != 1:
            raise ValueError(
                f"what reads a target's own column has input_size 1: got {recurrence.input_size}"
            )
        if reads == "all" and int(self.scale.columns.max()) >= recurrence.input_size:
            columns = self.scale.columns.tolist()
            raise ValueError(f"target_scale must name columns below {recurrence.input_size}: got {columns}")
        self.horizon, self.reads, self.normalize, self.outputs = horizon, reads, normalize, outputs
        self.kinds = 1 if outputs == "mean" else len(LEVELS)
        together = num_targets if reads == "all" else 1
        self.head = nn.Linear(recurrence.output_size, self.kinds * horizon * together)

    def forward(self, x: Context) -> Forecast | Quantiles:
        """The forecast of each context, in the series' units.

        Raises:
            ValueError: The contexts have no step.
        """
        if x.shape[1] == 0:
            raise ValueError(f"a context must have at least 1 step: got shape {tuple(x.shape)}")
        read, level, unit = normalized_context(x, self.normalize)
        level, unit = self.scale.of_columns(level), self.scale.of_columns(unit)
        z = self.ahead(read)
        middle = self.scale(level + unit * z[:, 0])
        if self.outputs == "mean":
            return middle
        width = self.scale.std * unit
        low, high = (width * F.softplus(part) for part in (z[:, 1], z[:, 2]))
        return torch.stack((middle - low, middle, middle + high), -1)

    def ahead(self, read: Context) -> Float[Tensor, "batch kinds horizon targets"]:
        """What the head says of each context, in the unit that was taken out of it."""
        if self.reads == "own":
            own = self.scale.of_columns(read).transpose(1, 2)
            read = own.flatten(0, 1).unsqueeze(-1)  # every column of every example is a sequence
        outputs, _ = self.recurrence(read)
        z = self.head(self.recurrence.final(outputs)).unflatten(1, (self.kinds, self.horizon, -1))
        if self.reads == "own":
            return z.squeeze(-1).unflatten(0, own.shape[:2]).permute(0, 2, 3, 1)
        return z


def scaled_error(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """The loss of each term in units of its target's deviation, so that no target outweighs another.

    It is the squared error over the deviation's square, or for quantiles the pinball loss over the deviation.

    Args:
        model: A forecaster.
        batch: Contexts and what followed.
        generator: Nothing is drawn.

    Raises:
        ValueError: There are no targets.
    """
    if batch.targets is None:
        raise ValueError("a forecast is judged by what followed: the batch has no targets")
    scale = core_of(model).scale
    outputs = model(*batch.inputs)
    targets = (batch.targets - scale.mean) / scale.std
    if outputs.ndim == targets.ndim:
        return squared_error((outputs - scale.mean) / scale.std, targets)
    return pinball((outputs - scale.mean[:, None]) / scale.std[:, None], targets)
