"""Interval rules of torch's layers and functions (Gowal et al., 2018), by the calculus of boxes.

Each takes the arguments of the function it stands for, with a box where the tensor was.

Layer, group, instance and RMS norm, softmax: Ba, Kiros & Hinton (2016); Wu & He (2018); Zhang & Sennrich
(2019). With c = x - mean(x) and S the sum of the other squares of its group, y = c / sqrt((c^2 + S) / n +
eps) rises in c, and falls in S where c > 0: its ends over a box of (c, S) are at corners. Softmax rises in
its own argument and falls in the others.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.robust.certificates.interval_arithmetic import (
    ULPS,
    Affine,
    Box,
    NoIntervalRule,
    Normalized,
    Squashed,
    add,
    linear_map,
    monotone,
    multiply,
    scale_shift,
    subtract,
    valley,
    weighted_mean,
)

Rule = Callable[..., Any]

NEXT_TO_0 = 1e-30
"""Up to here a floor under probabilities moves no margin by more than its rounding."""

GELU_BOTTOM = {"none": -0.7517915246935645, "tanh": -0.7524614220710163}
SILU_BOTTOM = -1.2784645427610738
MISH_BOTTOM = -1.1924312145154952


def linear(x: Box, weight: Tensor, bias: Tensor | None = None) -> Box:
    """The layer x W' + b, remembered so that margins of its outputs can be bounded with the rows merged."""
    box = linear_map(F.linear, x, weight, bias, weight.shape[-1])
    return box.like(*box.ends, Affine(x, weight, bias))


def convolution(function: Callable[..., Tensor], transposed: bool) -> Rule:
    """A convolution, or its transpose; the kernel's entries count the products of a sum."""

    def _rule(x: Box, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Box:
        def apply(image: Tensor, kernel: Tensor, shift: Tensor | None) -> Tensor:
            return function(image, kernel, shift, *args, **kwargs)

        terms = math.prod(weight.shape[2:]) * weight.shape[0 if transposed else 1]
        return linear_map(apply, x, weight, bias, terms)

    return _rule


# Eight parameters, because they are torch's.
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Scaled dot-product attention by functions that have rules of their own (Vaswani et al., 2017).

    softmax(Q K' / sqrt(d)) V, Equation 1; masks and shared keys have no rule here.
    """
    if attn_mask is not None or is_causal or dropout_p > 0 or enable_gqa:
        raise NoIntervalRule("attention with a mask, with dropout or with keys of several heads")
    scores = torch.matmul(query, key.transpose(-2, -1)) * (scale or 1 / math.sqrt(query.shape[-1]))
    return torch.matmul(torch.softmax(scores, -1), value)


def plus_product(x: Any, a: Any, b: Any, *, beta: float | int = 1, alpha: float | int = 1) -> Any:
    """torch.addmm by functions that have rules of their own: beta x + alpha a b."""
    product = torch.matmul(a, b)
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


# Eight parameters, because they are torch's.
def batch_norm(
    x: Box,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Box:
    """Batch normalization with its running statistics, an affine map of each channel."""
    if training or running_mean is None or running_var is None:
        raise NoIntervalRule("the statistics of a batch depend on its other examples")
    one = torch.ones_like(running_var)
    scale = (one if weight is None else weight) / (running_var + eps).sqrt()
    shift = torch.zeros_like(running_mean) if bias is None else bias
    shape = (1, -1) + (1,) * (x.low.ndim - 2)
    size = (running_mean * scale).abs() + shift.abs()
    shift = shift - running_mean * scale
    return scale_shift(x, scale.reshape(shape), shift.reshape(shape), size.reshape(shape))


def dropout(x: Box, p: float | int = 0.5, training: bool = True) -> Box:
    """The identity in evaluation mode."""
    if training and p > 0:
        raise NoIntervalRule("it draws at random in evaluation mode")
    return x


def average_pool(function: Callable[..., Tensor], axes: int) -> Rule:
    """A mean over windows."""

    def _rule(x: Box, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any) -> Box:
        kernel = (kernel_size,) * axes if isinstance(kernel_size, int) else kernel_size
        terms = math.prod(kernel) ** (axes if len(kernel) == 1 else 1)
        return weighted_mean(lambda end: function(end, kernel_size, *args, **kwargs), x, terms)

    return _rule


def over_all(function: Callable[..., Tensor]) -> Rule:
    """A mean or sum over axes."""

    def _rule(x: Box, *args: Any, **kwargs: Any) -> Box:
        def apply(end: Tensor) -> Tensor:
            return function(end, *args, **kwargs)

        return weighted_mean(apply, x, max(1, x.low.numel() // max(1, apply(x.low).numel())))

    return _rule


def adaptive_average(function: Callable[..., Tensor]) -> Rule:
    """A mean over windows that cover the image."""

    def _rule(x: Box, output_size: Any) -> Box:
        return weighted_mean(lambda end: function(end, output_size), x, math.prod(x.low.shape[2:]))

    return _rule


def softplus(x: Box, beta: float | int = 1.0, threshold: float | int = 20.0) -> Box:
    """log(1 + exp(beta x)) / beta, which the implementation replaces by x above the threshold."""
    jump = math.log1p(math.exp(-threshold)) / beta
    return monotone(lambda end: torch.logaddexp(beta * end, torch.zeros_like(end)) / beta, x, jump=jump)


def rising(function: Callable[..., Tensor], size: float = 1.0) -> Rule:
    """A non-decreasing function; see :func:`monotone` for ``size``."""
    return lambda x, *args, **kwargs: monotone(lambda end: function(end, *args, **kwargs), x, size)


def exponential(function: Callable[..., Tensor]) -> Rule:
    """A function a (exp(x / a) - 1) left of 0 and x right of it, which rises if a > 0."""

    def _rule(x: Box, alpha: float | int = 1.0) -> Box:
        if alpha <= 0:
            raise NoIntervalRule(f"alpha={alpha} does not rise")
        return monotone(lambda end: function(end, alpha), x, 1 + alpha)

    return _rule


def clamp(x: Box, min: Any = None, max: Any = None) -> Box:
    """Clamping to constant ends; of probabilities, to what is next to 0, their margins keep their sign."""
    box = monotone(lambda end: torch.clamp(end, min, max), x, size=0.0)
    kept = max is None and isinstance(min, float) and 0 <= min <= NEXT_TO_0
    return box.like(*box.ends, _shares(x) if kept else None)


def logarithm(x: Box) -> Box:
    """The logarithm, -inf where x may be 0; margins of logarithms are those of probabilities at least."""
    low, high = x.low.clamp_min(0.0).log(), x.high.clamp_min(0.0).log()
    size = torch.maximum(*(end.abs().nan_to_num(posinf=0.0) for end in (low, high)))
    box = x.to(low, high, ULPS * x.unit * (1 + size))
    return box.like(*box.ends, _shares(x))


def _shares(x: Box) -> Normalized | Squashed | None:
    """What made the probabilities that a box holds."""
    made_by = x.made_by
    shares = isinstance(made_by, Squashed) or (isinstance(made_by, Normalized) and not made_by.log)
    return made_by if shares and isinstance(made_by, Normalized | Squashed) else None


def gelu(x: Box, approximate: str = "none") -> Box:
    """The function x Phi(x), which falls up to -0.75 and rises after it."""
    return valley(lambda end: F.gelu(end, approximate=approximate), x, GELU_BOTTOM[approximate])


def power(x: Box, exponent: Any) -> Box:
    """The square; other powers have no rule."""
    if exponent != 2:
        raise NoIntervalRule(f"the power {exponent}")
    return valley(torch.square, x, 0.0)


def log_sum_exp(x: Box, dim: Any, keepdim: bool = False) -> Box:
    """The logarithm of sum_j exp(x_j) over axes, which rises in each x_j."""
    low, high = (torch.logsumexp(end, dim, keepdim) for end in (x.low, x.high))
    size = max(1, x.low.numel() // max(1, low.numel())) + torch.amax(x.magnitude, dim, keepdim)
    return x.to(low, high, 2 * ULPS * x.unit * size)


def scaled_sum(a: Any, b: Any, alpha: float | int = 1.0) -> Box:
    """The sum a + alpha b."""
    return add(a, b if alpha == 1 else multiply(b, alpha))


def scaled_difference(a: Any, b: Any, alpha: float | int = 1.0) -> Box:
    """The difference a - alpha b."""
    return subtract(a, b if alpha == 1 else multiply(b, alpha))


def conversion(
    x: Box | Tensor,
    *target: Any,
    dtype: torch.dtype | None = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Box | Tensor:
    """A change of type or device: of a constant, to the bounds' type; of a box, none.

    A type that is coarser than the model's own would round without being covered. Where the values are
    put does not change them.
    """
    del device, non_blocking, copy
    if isinstance(x, Tensor):
        return x.to(next(value for value in target if isinstance(value, Box)).low)
    if any(isinstance(value, Tensor | Box) for value in target):
        raise NoIntervalRule("a conversion to another tensor's type")
    kinds = [value for value in (*target, dtype) if isinstance(value, torch.dtype)]
    own = torch.finfo(x.arithmetic or torch.float64).eps
    if any(not kind.is_floating_point or torch.finfo(kind).eps > own for kind in kinds):
        raise NoIntervalRule(f"a conversion to {kinds[0]}")
    return x.cut(*x.ends)


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
    axes = tuple(range(-len(normalized_shape), 0))
    return _standardized(x, axes, weight, None, floor_of_rms(x, eps), centered=False)


def floor_of_rms(x: Box, eps: float | None) -> float:
    """The eps of a root mean square, by default that of the model's type."""
    kind = x.arithmetic or torch.float64
    if eps is None and kind not in (torch.float32, torch.float64):
        raise NoIntervalRule(f"the default eps of a root mean square in {kind}")
    return torch.finfo(kind).eps if eps is None else eps


def group_norm(
    x: Box, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Box:
    """Group normalization: each group of channels over its channels and places."""
    shape = x.low.shape
    grouped = x.to(*(end.reshape(shape[0], num_groups, -1) for end in (x.low, x.high)))
    scale, offset = (at_places(part, shape, num_groups) for part in (weight, bias))
    box = _standardized(grouped, (-1,), scale, offset, eps)
    return box.to(box.low.reshape(shape), box.high.reshape(shape))


def at_places(part: Tensor | None, shape: Sequence[int], groups: int) -> Tensor | None:
    """A channel's constant at each of its places, in groups."""
    if part is None:
        return None
    rows = part.reshape(-1, *(1,) * (len(shape) - 2)).expand(tuple(shape[1:]))
    return rows.reshape(1, groups, -1)


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
    return box.like(*box.ends, Squashed(x))


def softmax(x: Box, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Box:
    """exp(x_i) / sum_j exp(x_j) = 1 / (1 + sum_{j != i} exp(x_j - x_i))."""
    axis = _axis(x, dim, dtype)
    low, high = (_log_share(x.low, x.high, axis).exp(), _log_share(x.high, x.low, axis).exp())
    size = x.low.shape[axis] + x.magnitude.amax(axis, keepdim=True)
    box = x.to(low, high, 2 * ULPS * x.unit * size * high + x.underflow(1))
    return box.like(*box.ends, _source(x, axis, log=False))


def log_softmax(
    x: Box, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Box:
    """x_i - log sum_j exp(x_j) = -log(1 + sum_{j != i} exp(x_j - x_i))."""
    axis = _axis(x, dim, dtype)
    low, high = _log_share(x.low, x.high, axis), _log_share(x.high, x.low, axis)
    size = x.low.shape[axis] + 2 * x.magnitude.amax(axis, keepdim=True)
    box = x.to(low, high, 2 * ULPS * x.unit * size)
    return box.like(*box.ends, _source(x, axis, log=True))


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


class Deviations(NamedTuple):
    """What normalization reads of a box: the deviations c from the mean, or the inputs themselves.

    Args:
        low: Least value of each c.
        high: Largest value.
        small: The least value of each c^2.
        large: The largest.
        terms: Coordinates of a group.
        off: How far the model's own mean of squares may be off.
        shift: How far its own c may be.
    """

    low: Tensor
    high: Tensor
    small: Tensor
    large: Tensor
    terms: int
    off: Tensor
    shift: Tensor


def deviations(x: Box, axes: tuple[int, ...], *, centered: bool = True) -> Deviations:
    """The deviations over the axes.

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
    return Deviations(low, high, small, large, n, off, shift)


def _standardized(
    x: Box,
    axes: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    centered: bool = True,
) -> Box:
    """Gives c / sqrt(mean(c^2) + eps) weight + bias over the axes, with the deviations c."""
    low, high, small, large, n, off, shift = deviations(x, axes, centered=centered)

    def scaled(c: Tensor, others: Tensor, error: Tensor) -> Tensor:
        return c / (((c.square() + others) / n + error).clamp(min=0) + eps).sqrt()

    most, least = (part.sum(axes, keepdim=True) - part for part in (large, small))
    bottom = torch.where(low >= 0, scaled(low, most, off), scaled(low, least, -off))
    top = torch.where(high >= 0, scaled(high, least, -off), scaled(high, most, off))
    error = shift / ((small.sum(axes, keepdim=True) / n - off).clamp(min=0) + eps).sqrt()
    error = error + 2 * ULPS * x.unit * torch.maximum(bottom.abs(), top.abs())
    return _scaled(x.to(bottom, top, error), weight, bias)


def _scaled(box: Box, weight: Tensor | None, bias: Tensor | None) -> Box:
    """The coordinatewise map x weight + bias."""
    weight = torch.ones((), dtype=box.low.dtype, device=box.low.device) if weight is None else weight
    bias = torch.zeros_like(weight) if bias is None else bias
    ends = box.low * weight + bias, box.high * weight + bias
    error = 2 * ULPS * box.unit * (box.magnitude * weight.abs() + bias.abs()) + box.underflow(1)
    return box.to(torch.minimum(*ends), torch.maximum(*ends), error)
