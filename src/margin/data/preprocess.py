"""Standardizing: from the user's units to mean 0 and variance 1, fitted on the training part.

The map is affine and is the model's first layer, so predictions, attacks and exports speak the
user's units.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from margin.data.examples import Data

_CHUNK = 4096
_NUMBERS = 2**24


class Standardize(nn.Module):
    """The affine map x -> (x - mean) / std, coordinate by coordinate or channel by channel.

    The buffers are float64 until the module is cast; the arithmetic is done in the input's type.

    Args:
        mean: What is subtracted; broadcasts over one input.
        std: What it is divided by, positive; broadcasts over one input.

    Raises:
        ValueError: The shapes differ, or a number is not finite or not positive.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Float[Tensor, "..."], std: Float[Tensor, "..."]) -> None:
        super().__init__()
        if mean.shape != std.shape:
            raise ValueError(f"mean and std must have one shape: got {tuple(mean.shape)}, {tuple(std.shape)}")
        if not bool(mean.isfinite().all() and std.isfinite().all() and (std > 0).all()):
            raise ValueError("mean must be finite, std finite and positive")
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The standardized inputs, in the type of ``x``."""
        return (x - self.mean.to(x)) / self.std.to(x)

    def inverse(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The inputs whose standardization is ``z``: mean + std z, in the type of ``z``."""
        return self.mean.to(z) + self.std.to(z) * z

    def log_volume(self, x: Float[Tensor, " batch *rest"]) -> Float[Tensor, ""]:
        """Log |dx / dz| of one input: what a log-density of z loses as one of x, in nats.

        Args:
            x: Inputs, whose shape is what counts.
        """
        return self.std.to(x).log().expand(x.shape[1:]).sum()

    def extra_repr(self) -> str:
        """The shape over which the map broadcasts."""
        return f"shape={tuple(self.mean.shape)}"


class Column(Standardize):
    """Of outputs (N, 1) the one number of each example, (N,), which then goes through the affine map."""

    def forward(self, x: Float[Tensor, "... 1"]) -> Float[Tensor, "..."]:
        """The numbers, an axis less."""
        return super().forward(x.squeeze(-1))


def fit_standardize(
    x: Float[Tensor, "n ..."],
    *,
    per: Literal["feature", "channel"],
    indicators: Bool[Tensor, " features"] | None = None,
) -> Standardize:
    """The standardization of a training part: mean and (biased) standard deviation in float64.

    A coordinate that does not vary gets std 1, so it becomes 0. Indicators (the 0/1 columns of a
    category) are left as they are: mean 0, std 1.

    Args:
        x: The training inputs, the first axis the example.
        per: One mean for each coordinate of an input, or one for each channel of (N, C, H, W).
        indicators: Which features are indicators; only with ``per="feature"``.

    Returns:
        The fitted map; ``mean`` has the shape of one input, or (C, 1, 1).

    Raises:
        ValueError: There is no example, or a statistic is not finite.
    """
    if len(x) == 0:
        raise ValueError("standardizing needs at least one training example: got none")
    axes = (0,) if per == "feature" else (0, *range(2, x.ndim))
    mean, std = _moments(x, axes)
    # Of one value only: the sum's rounding would leave a tiny spread, and 1/spread a huge scale.
    constant = (x.amax(axes) == x.amin(axes)) | (std < torch.finfo(x.dtype).tiny)
    mean = torch.where(constant, x.select(0, 0).double() if per == "feature" else mean, mean)
    std = torch.where(constant, 1.0, std)
    if indicators is not None:
        mean, std = mean.masked_fill(indicators, 0.0), std.masked_fill(indicators, 1.0)
    if not bool(mean.isfinite().all() and std.isfinite().all()):
        raise ValueError("the training inputs must have a finite mean and variance: a value is too large")
    if per == "channel":
        shape = (-1,) + (1,) * (x.ndim - 2)
        mean, std = mean.reshape(shape), std.reshape(shape)
    return Standardize(mean, std)


class Moments:
    """Mean and deviation of inputs that are seen batch by batch and not kept, in float64.

    The sums of two batches are merged as Chan, Golub and LeVeque (1983, equation 1.5) do.

    Args:
        per: One mean for each coordinate of an input, or one for each channel of (N, C, H, W).
    """

    def __init__(self, per: Literal["feature", "channel"]) -> None:
        self.per = per
        self.count = 0
        self._mean = self._spread = torch.zeros((), dtype=torch.float64)
        self._low = torch.tensor(math.inf, dtype=torch.float64)
        self._high = -self._low

    def add(self, x: Float[Tensor, "n ..."]) -> None:
        """Take in a batch of inputs."""
        axes = (0,) if self.per == "feature" else (0, *range(2, x.ndim))
        double = x.double()
        mean = double.mean(axes)
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        spread = (double - mean.reshape(shape)).square().sum(axes)
        count, ours = x.numel() // mean.numel(), self.count
        total = ours + count
        apart = mean - self._mean
        self._mean = self._mean + apart * (count / total)
        self._spread = self._spread + spread + apart.square() * (ours * count / total)
        self._low = torch.minimum(self._low, double.amin(axes))
        self._high = torch.maximum(self._high, double.amax(axes))
        self.count = total

    def standardize(self) -> Standardize:
        """The map that :func:`fit_standardize` fits to all that was taken in."""
        std = (self._spread / self.count).sqrt()
        constant = (self._low == self._high) | (std < torch.finfo(torch.float32).tiny)
        mean, std = torch.where(constant, self._low, self._mean), torch.where(constant, 1.0, std)
        if self.per == "channel":
            mean, std = mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1)
        return Standardize(mean, std)


def standardize_levels(sums: Int[Tensor, "channel 2"], count: int) -> Standardize:
    """The standardization of channels of whole numbers, exact: mean S / n, variance (n Q - S^2) / n^2.

    Args:
        sums: S, the sum, and Q, the sum of squares, over every pixel of a channel.
        count: n, the number of pixels of a channel.

    Returns:
        The map that :func:`fit_standardize` fits to the pixels, without holding them.
    """
    mean, std = [], []
    for total, squares in sums.tolist():
        spread = count * squares - total**2
        mean.append(total / count)
        std.append(math.sqrt(spread) / count if spread else 1.0)
    shape = (-1, 1, 1)
    return Standardize(
        torch.tensor(mean, dtype=torch.float64).reshape(shape),
        torch.tensor(std, dtype=torch.float64).reshape(shape),
    )


def _moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over ``axes`` in float64, in chunks so that memory stays bounded."""
    count = math.prod(x.shape[axis] for axis in axes)
    rows = min(_CHUNK, max(1, _NUMBERS // max(1, x[:1].numel())))
    mean = torch.stack([chunk.double().sum(axes) for chunk in x.split(rows)]).sum(0) / count
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)][1:]
    apart = (chunk.to(torch.float64, copy=True).sub_(mean.reshape(shape)) for chunk in x.split(rows))
    centered = (one.square_().sum(axes) for one in apart)
    return mean, (torch.stack(list(centered)).sum(0) / count).sqrt()


Scale = Literal["standard", "unit", "symmetric", "none"]
"""Where another map than the source's own is asked for."""


def rescaled(data: Data, scale: Scale | None) -> Data:
    """The data with the map that is asked for in front of the model.

    ============ ============================================================
    standard     the source's own: mean 0 and variance 1 in the training part
    unit         the domain of an input to [0, 1]
    symmetric    the domain of an input to [-1, 1]
    none         inputs as they are
    ============ ============================================================

    Args:
        data: From a source.
        scale: Which map; None, of a record from before there was a choice, is standard.

    Raises:
        ValueError: The map needs the domain of an input, and none is known.
    """
    if scale in (None, "standard"):
        return data
    if scale == "none":
        return replace(data, preprocess=nn.Identity())
    if data.domain is None:
        raise ValueError(
            f"scale {scale} needs the least and the largest value of an input, which are not known of "
            f"{data.name}: set --data.domain low,high, or --scale none where they are in range already"
        )
    low, high = torch.broadcast_tensors(data.domain.low.double(), data.domain.high.double())
    middle = low if scale == "unit" else (low + high) / 2
    return replace(data, preprocess=Standardize(middle.clone(), high - middle))
