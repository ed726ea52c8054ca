"""Interval rules of what moves, selects, joins or resizes coordinates and computes little with them.

Each takes the arguments of the function it stands for, with a box where the tensor was (Gowal et al., 2018).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.robust.certificates.interval_arithmetic import (
    ULPS,
    Box,
    NoIntervalRule,
    as_box,
    endpointwise,
    joined,
    resized,
)
from margin.robust.certificates.interval_rules import Rule


def pool(function: Callable[..., Tensor]) -> Rule:
    """A maximum over windows."""

    def _rule(x: Box, *args: Any, return_indices: bool = False, **kwargs: Any) -> Box:
        if return_indices:
            raise NoIntervalRule("the indices of a pooling")
        return endpointwise(lambda end: function(end, *args, **kwargs), x)

    return _rule


def interpolate(
    x: Box,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Box:
    """Resizing by weights that are not negative."""
    if mode not in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear"):
        raise NoIntervalRule(f"resizing by mode {mode!r}")
    options = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    # With antialiasing each axis is averaged over at most its whole length, else over two pixels.
    terms = sum(x.low.shape[2:]) if antialias else ULPS
    return resized(lambda end: F.interpolate(end, *options), x, terms)


def pad(x: Box, pad: Sequence[int], mode: str = "constant", value: float | int | None = None) -> Box:
    """Padding by a constant or by coordinates of the box."""
    box = endpointwise(lambda end: F.pad(end, pad, mode, value), x)
    return box.to(box.low, box.high, ULPS * box.unit * box.magnitude) if value else box


def moving(function: Callable[..., Any]) -> Rule:
    """An exact map that moves or selects coordinates."""
    return lambda x, *args, **kwargs: endpointwise(lambda end: function(end, *args, **kwargs), x)


def joining(function: Callable[..., Tensor]) -> Rule:
    """An exact map of several tensors to one."""
    return lambda parts, *args, **kwargs: joined(lambda ends: function(ends, *args, **kwargs), parts)


def chosen(a: Any, b: Any, c: Any) -> Box:
    """torch.where, or the method of its second argument: each coordinate of one operand or of the other."""
    mask, one, other = (a, b, c) if isinstance(a, Tensor) and a.dtype == torch.bool else (b, a, c)
    if isinstance(mask, Box):
        raise NoIntervalRule("a choice by an interval")
    like = one if isinstance(one, Box) else other
    one, other = as_box(one, like), as_box(other, like)
    return like.like(torch.where(mask, one.low, other.low), torch.where(mask, one.high, other.high))


def masked_fill(x: Box, mask: Any, value: Any) -> Box:
    """A constant where the mask is."""
    return chosen(mask, value, x)


class Extreme(NamedTuple):
    """What max and min over an axis return: the values; at which places is not known of a box."""

    values: Any
    indices: None = None


def extreme(over_axis: Callable[..., Any], of_two: Callable[..., Any]) -> Callable[..., Any]:
    """torch.max or torch.min, which is one of two tensors, of all coordinates, or of an axis."""

    def _call(x: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if other is not None or isinstance(dim, Tensor):
            return of_two(x, dim if other is None else other)
        return over_axis(x) if dim is None else Extreme(over_axis(x, dim, keepdim))

    return _call
