"""Interval rules of layers that normalize one example: layer, group, instance and RMS norm, softmax.

Ba, Kiros & Hinton (2016); Wu & He (2018); Zhang & Sennrich (2019). With c = x - mean(x) and S the sum of the
other squares of its group, y = c / sqrt((c^2 + S) / n + eps) rises in c, and falls in S where c > 0: its
ends over a box of (c, S) are at corners. Softmax rises in its own argument and falls in the others.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.robust.certificates.interval_arithmetic import (
    ULPS,
    Box,
    NoIntervalRule,
    Normalized,
    Squashed,
    monotone,
    multiply,
)


def layer_norm(
    x: Box,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Box:
    """Layer normalization over the last axes."""
    return _standardized(x, tuple(range(-len(normalized_shape), 0)), weight, bias, eps)


def rms_norm(
    x: Box, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Box:
    """Division by the root mean square over the last axes."""
    kind = x.arithmetic or torch.float64
    if eps is None and kind not in (torch.float32, torch.float64):
        raise NoIntervalRule(f"the default eps of a root mean square in {kind}")
    eps = torch.finfo(kind).eps if eps is None else eps
    return _standardized(x, tuple(range(-len(normalized_shape), 0)), weight, None, eps, centered=False)


def group_norm(
    x: Box, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Box:
    """Group normalization: each group of channels over its channels and places."""
    shape = x.low.shape
    grouped = x.to(*(end.reshape(shape[0], num_groups, -1) for end in (x.low, x.high)))

    def spread(part: Tensor | None) -> Tensor | None:
        """A channel's constant at each of its places."""
        if part is None:
            return None
        rows = part.reshape(-1, *(1,) * (len(shape) - 2)).expand(shape[1:])
        return rows.reshape(1, num_groups, -1)

    box = _standardized(grouped, (-1,), spread(weight), spread(bias), eps)
    return box.to(box.low.reshape(shape), box.high.reshape(shape))


# Eight parameters, because they are torch's.
def instance_norm(
    x: Box,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Box:
    """Group normalization with a channel a group; running statistics have no rule here."""
    if not use_input_stats:
        raise NoIntervalRule("instance normalization by running statistics")
    return group_norm(x, x.low.shape[1], weight, bias, eps)


def glu(x: Box, dim: int = -1) -> Box:
    """The gated unit a sigmoid(b) of the two halves of an axis (Dauphin et al., 2017)."""
    halves = [x.to(*ends) for ends in zip(x.low.chunk(2, dim), x.high.chunk(2, dim), strict=True)]
    return multiply(halves[0], monotone(torch.sigmoid, halves[1], size=0.0))


def sigmoid(x: Box) -> Box:
    """1 / (1 + exp(-x)), remembered so that margins of its outputs can be bounded by those of its inputs."""
    box = monotone(torch.sigmoid, x, size=0.0)
    return Box(box.low, box.high, box.arithmetic, Squashed(x))


def softmax(x: Box, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Box:
    """exp(x_i) / sum_j exp(x_j) = 1 / (1 + sum_{j != i} exp(x_j - x_i))."""
    axis = _axis(x, dim, dtype)
    low, high = (_log_share(x.low, x.high, axis).exp(), _log_share(x.high, x.low, axis).exp())
    size = x.low.shape[axis] + x.magnitude.amax(axis, keepdim=True)
    box = x.to(low, high, 2 * ULPS * x.unit * size * high + x.underflow(1))
    return Box(box.low, box.high, box.arithmetic, _source(x, axis, log=False))


def log_softmax(
    x: Box, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Box:
    """x_i - log sum_j exp(x_j) = -log(1 + sum_{j != i} exp(x_j - x_i))."""
    axis = _axis(x, dim, dtype)
    low, high = _log_share(x.low, x.high, axis), _log_share(x.high, x.low, axis)
    size = x.low.shape[axis] + 2 * x.magnitude.amax(axis, keepdim=True)
    box = x.to(low, high, 2 * ULPS * x.unit * size)
    return Box(box.low, box.high, box.arithmetic, _source(x, axis, log=True))


def _axis(x: Box, dim: int | None, dtype: torch.dtype | None) -> int:
    own = torch.finfo(x.arithmetic or torch.float64).eps
    if dim is None or (dtype is not None and torch.finfo(dtype).eps > own):
        raise NoIntervalRule("softmax without an axis, or into a coarser type")
    return dim % x.low.ndim


def _source(x: Box, axis: int, *, log: bool) -> Normalized | None:
    return Normalized(x, log) if x.low.ndim == 2 and axis == 1 else None


def _log_share(own: Tensor, others: Tensor, axis: int) -> Tensor:
    """The logarithm of exp(own_i) / (exp(own_i) + sum over j != i of exp(others_j)), for each i."""
    rivals = others.movedim(axis, -1)
    edge = torch.full_like(rivals[..., :1], -torch.inf)
    before = torch.cat((edge, rivals[..., :-1]), -1).logcumsumexp(-1)
    after = torch.cat((edge, rivals.flip(-1)[..., :-1]), -1).logcumsumexp(-1).flip(-1)
    total = torch.logaddexp(before, after).movedim(-1, axis)
    return -F.softplus(total - own, threshold=700)


def _standardized(
    x: Box,
    axes: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    centered: bool = True,
) -> Box:
    """Gives c / sqrt(mean(c^2) + eps) weight + bias over the axes, c the input less its mean, or the input.

    The mean is off by at most gamma mean|x| and the mean square by 3 gamma mean(x^2), however they are summed
    (Higham, 2002, Section 4.2), also as mean(x^2) - mean(x)^2.
    """
    n = math.prod(x.low.shape[axis] for axis in axes)

    def total(part: Tensor) -> Tensor:
        return part.sum(axes, keepdim=True)

    low, high = x.low, x.high
    if centered:
        low = x.low * (1 - 1 / n) - (total(x.high) - x.high) / n
        high = x.high * (1 - 1 / n) - (total(x.low) - x.low) / n
    large = torch.maximum(low.square(), high.square())
    small = torch.where((low <= 0) & (high >= 0), 0.0, torch.minimum(low.square(), high.square()))
    gamma = x.gamma(n)
    off = 3 * gamma * total(x.magnitude.square()) / n
    mean = total(x.magnitude) / n if centered else torch.zeros_like(off)
    shift = gamma * mean + ULPS * x.unit * (x.magnitude + mean)

    def scaled(c: Tensor, others: Tensor, error: Tensor) -> Tensor:
        return c / (((c.square() + others) / n + error).clamp(min=0) + eps).sqrt()

    most, least = total(large) - large, total(small) - small
    bottom = torch.where(low >= 0, scaled(low, most, off), scaled(low, least, -off))
    top = torch.where(high >= 0, scaled(high, least, -off), scaled(high, most, off))
    error = shift / ((total(small) / n - off).clamp(min=0) + eps).sqrt()
    error = error + 2 * ULPS * x.unit * torch.maximum(bottom.abs(), top.abs())
    return _scaled(x.to(bottom, top, error), weight, bias)


def _scaled(box: Box, weight: Tensor | None, bias: Tensor | None) -> Box:
    """The coordinatewise map x weight + bias."""
    weight = torch.ones((), dtype=box.low.dtype, device=box.low.device) if weight is None else weight
    bias = torch.zeros_like(weight) if bias is None else bias
    ends = box.low * weight + bias, box.high * weight + bias
    error = 2 * ULPS * box.unit * (box.magnitude * weight.abs() + bias.abs()) + box.underflow(1)
    return box.to(torch.minimum(*ends), torch.maximum(*ends), error)
