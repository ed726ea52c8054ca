r"""Linear relaxations of torch's functions: each result between two linear functions of the arguments.

.. math:: s_l \odot J(x) + b_l \le f(x) \le s_u \odot J(x) + b_u

over the arguments' boxes, with J linear. An affine function is its own J, and its adjoint is torch's own
vector-Jacobian product, so one rule serves all of them; a bilinear one is linearized at the centers, off by
at most the product of the radii (McCormick, 1976); a function of one variable has the lines of its envelope
(Zhang et al., 2018); one without a relaxation lies between the ends of its box, whatever its arguments. The
offsets include the rounding of the model's own arithmetic, as the interval rules state it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from margin.engine.evaluation import leaves
from margin.robust.certificates.envelopes import (
    ATAN,
    EXP,
    HARDSWISH,
    LOGSIGMOID,
    SIGMOID,
    SQUARE,
    TANH,
    Curve,
    elu,
    envelope,
    kinked,
    relu_envelope,
    softplus,
    tabulated,
)
from margin.robust.certificates.interval_arithmetic import COARSEST, Box, is_single
from margin.robust.certificates.interval_table import PRODUCTS, named, views
from margin.robust.certificates.tape import Call, Ref

UNIT = 2.0**-53
"""The unit roundoff of the bounds' own arithmetic."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Linear functions below and above a result.

    Args:
        adjoint: Coefficients of J's result to those of the call's inputs, with a leading axis of rows; None
            where nothing depends on them.
        low: The offset below; None is 0.
        high: The offset above; None is 0.
        slopes: Those of the lower and of the upper line; None is 1.
        floor: What the adjoint may lose of a row of any size by underflow.
        shift: Of an affine call, what is added to J's result, in its shape or with one row for all; it has no
            other offsets.
        error: How far its result may be off.
    """

    adjoint: Callable[[Tensor], tuple[Tensor, ...]] | None
    low: Tensor | None = None
    high: Tensor | None = None
    slopes: tuple[Tensor, Tensor] | None = None
    floor: float = 0.0
    shift: Tensor | None = None
    error: Tensor | None = None


def lines(call: Call, boxes: Sequence[Box], result: Box) -> Lines:
    """The relaxation of a call over the boxes of its inputs.

    Args:
        call: Of the tape.
        boxes: Those of its inputs.
        result: What the interval rule gives for them.
    """
    if call.func in CONVERTED:
        return Lines(lambda rows: (rows,))
    if call.func in VIEWS:
        return Lines(_adjoint(call.value, boxes)[1])
    if linear(call):
        if call.func in PRODUCTS and boxes[0].in_single and (made := _product(call, boxes[0])) is not None:
            return made
        shift, adjoint = _adjoint(exact_form(call, boxes), boxes)
        error = rounding(call, boxes, result)
        return Lines(adjoint, shift=shift, error=error)
    if call.func in BILINEAR and len(boxes) <= 2:
        return _bilinear(call, boxes, result)
    if call.func in CURVES and len(boxes) == 1:
        return _curved(call, boxes[0], result)
    return Lines(None, result.low, result.high)


def linear(call: Call) -> bool:
    """Whether a call is affine in all its inputs together."""
    if call.func in BILINEAR:
        return len(call.inputs) == 1 and _references(call) == 1
    return any(call.func in table for table in (AFFINE, VIEWS, RESIZED, CONVERTED))


def scales(call: Call) -> bool:
    """Whether a call maps each coordinate of its one input by itself, affinely."""
    return call.func in SCALED and linear(call) and _references(call) == 1


def _references(call: Call) -> int:
    return sum(isinstance(value, Ref) for value in leaves((call.args, call.kwargs)))


def rounding(call: Call, boxes: Sequence[Box], result: Box) -> Tensor:
    """How far the model's own result may be off: by how much the rule widens the box for it.

    A share is added for the bounds' own sums, which are transposed ones of as many products.
    """
    exact = call.box([Box(box.low, box.high) for box in boxes])
    error = torch.maximum(exact.low - result.low, result.high - exact.high)
    error = torch.where(error.isfinite(), error, torch.inf)
    if result.arithmetic is None:
        return error
    terms = max(box.low[:1].numel() for box in (*boxes, result))
    return error * (1 + (4 + terms) * UNIT / result.unit)


def _product(call: Call, x: Box) -> Lines | None:
    """A product with constants whose adjoint is taken in float32; None where that is too coarse.

    With S = |W| |x| + |b| the model's own sums are off by gamma S, the adjoint's A W x by |A| gamma' S, n the
    terms of each (Higham, 2002, Section 3.1).
    """
    weight = call.args[1] if len(call.args) > 1 else call.kwargs["weight"]
    spread = math.prod(weight.shape[2:])
    gamma = sum(x.gamma(spread * count) for count in weight.shape[:2])
    if gamma > COARSEST or not is_single(weight):
        return None
    own = call.cast(torch.float32)
    apart = weight.ndim in (2, x.low.ndim)  # the first axis counts rows, of which one stands for all
    zero = torch.zeros((1, *x.shape[1:]) if apart else x.shape, dtype=torch.float32)
    shift, pull = torch.func.vjp(own.value, zero)  # type: ignore[misc]  # of one output, not of two
    far = x.magnitude
    size = own.sized().value(far.float()).double().mul_(1 + 3 * gamma)
    floor = float(size.sum() + spread * weight.shape[0] * far.sum())
    error = size.mul_(gamma)

    def adjoint(rows: Tensor) -> tuple[Tensor, ...]:
        flat = rows.float().flatten(0, 1).unsqueeze(1) if apart else rows.float()
        with torch.backends.nnpack.flags(enabled=False):  # as in :func:`linear_map`
            return tuple(part.double().reshape(len(rows), *x.shape) for part in torch.func.vmap(pull)(flat))

    floor *= torch.finfo(torch.float32).tiny
    return Lines(adjoint, floor=floor, shift=shift.double(), error=error)


def exact_form(call: Call, boxes: Sequence[Box]) -> Callable[..., Tensor]:
    """An affine call as a function of tensors in float64: the map that the model's own arithmetic rounds."""
    if call.func in CONVERTED:
        return lambda x: x
    if call.func not in RESIZED:
        return call.value
    x = boxes[0]
    matrices = [_along(call, x, axis) for axis in range(2, x.low.ndim)]

    def resize(image: Tensor) -> Tensor:
        for axis, matrix in enumerate(matrices, 2):
            image = (image.movedim(axis, -1) @ matrix.T.to(image)).movedim(-1, axis)
        return image

    return resize


def _along(call: Call, x: Box, axis: int) -> Tensor:
    """The matrix of a resizing along one axis, its weights rounded as the model rounds them."""
    shape = list(x.low.shape)
    n, kind = shape[axis], x.arithmetic or x.low.dtype
    basis = torch.eye(n, dtype=kind, device=x.low.device)
    full = basis.reshape(1, n, *(n if k == axis else 1 for k in range(2, len(shape))))
    out = call.value(full.expand(1, n, *shape[2:]))
    return out.movedim(axis, 2).flatten(3)[0, :, :, 0].T.to(x.low)


def _adjoint(
    function: Callable[..., Tensor], boxes: Sequence[Box], at: Callable[[Box], Tensor] | None = None
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """The value of a function at a point, by default 0, and its vector-Jacobian product for each row."""
    points = [torch.zeros_like(box.low) if at is None else at(box) for box in boxes]
    value, pull = torch.func.vjp(function, *points)  # type: ignore[misc]  # of one output, not of two
    return value, torch.func.vmap(pull)


def center(box: Box) -> Tensor:
    """The middle of a box."""
    return (box.low + box.high) / 2


def _bilinear(call: Call, boxes: Sequence[Box], result: Box) -> Lines:
    """The expansion at the centers: x y = m_x y + m_y x - m_x m_y + (x - m_x)(y - m_y)."""
    value, adjoint = _adjoint(call.value, boxes, center)
    radii = [(box.high - box.low) / 2 for box in boxes]
    error = call.value(*radii) + rounding(call, boxes, result)
    return Lines(adjoint, -value - error, error - value)  # J(m) is 2 f(m)


def _curved(call: Call, x: Box, result: Box) -> Lines:
    found = CURVES[call.func](*call.args[1:], **call.kwargs)
    if found is None:
        return Lines(None, result.low, result.high)
    if found is relu_envelope:  # it rounds nothing
        made = relu_envelope(x.low, x.high)
        return Lines(lambda rows: (rows,), None, made.high, (made.low_slope, made.high_slope))
    made = envelope(found, x.low, x.high)
    error = rounding(call, [x], result)
    return Lines(lambda rows: (rows,), made.low - error, made.high + error, (made.low_slope, made.high_slope))


def _clamped(min: Any = None, max: Any = None) -> Curve:
    kinks = [end for end in (min, max) if end is not None]
    return kinked(lambda x: torch.clamp(x, min, max), *kinks)


def _exponential(f: Callable[..., Tensor], alpha: float = 1.0) -> Curve:
    rate = 1.0 / alpha if f is F.celu else 1.0
    return elu(lambda x: f(x, alpha), alpha, rate)


SELU = (1.0507009873554805, 1.6732632423543772)

_GELU = {kind: partial(F.gelu, approximate=kind) for kind in ("none", "tanh")}

_CURVES: dict[str, Callable[..., Any]] = {
    "relu": lambda: relu_envelope,
    "tanh": lambda: TANH,
    "sigmoid": lambda: SIGMOID,
    "atan": lambda: ATAN,
    "exp": lambda: EXP,
    "square": lambda: SQUARE,
    **dict.fromkeys(("pow", "__pow__"), lambda exponent: SQUARE),
    "logsigmoid": lambda: LOGSIGMOID,
    "hardswish": lambda: HARDSWISH,
    "softplus": lambda beta=1.0, threshold=20.0: softplus(beta, threshold),
    "silu": lambda: tabulated(F.silu),
    "mish": lambda: tabulated(F.mish),
    "gelu": lambda approximate="none": tabulated(_GELU[approximate]),
    "elu": partial(_exponential, F.elu),
    "celu": partial(_exponential, F.celu),
    "selu": lambda: elu(F.selu, SELU[0] * SELU[1], 1.0),
    "abs": lambda: kinked(torch.abs, 0),
    "relu6": lambda: kinked(F.relu6, 0, 6),
    "hardsigmoid": lambda: kinked(F.hardsigmoid, -3, 3),
    "hardtanh": lambda min_val=-1.0, max_val=1.0: _clamped(min_val, max_val),
    **dict.fromkeys(("clamp", "clip"), _clamped),
    "clamp_min": lambda min: _clamped(min=min),
    "clamp_max": lambda max: _clamped(max=max),
    "leaky_relu": lambda negative_slope=0.01: kinked(lambda x: F.leaky_relu(x, negative_slope), 0),
    "prelu": lambda weight: kinked(lambda x: F.prelu(x, weight), 0),
}

_AFFINE = (
    *("linear", "batch_norm", "pad", "mean", "sum", "neg", "__neg__", "add", "__add__", "__radd__", "sub"),
    *("subtract", "__sub__", "rsub", "__rsub__", "div", "divide", "true_divide", "__truediv__"),
    *("masked_fill", "where", "cat", "concat", "concatenate", "stack", "hstack", "vstack"),
    *(
        f"{name}{d}d"
        for name in ("conv", "conv_transpose", "avg_pool", "adaptive_avg_pool")
        for d in (1, 2, 3)
    ),
)
_COPIED = ("repeat", "repeat_interleave", "tile", "index_select", "gather", "flip", "roll", "pixel_shuffle")
_MOVED = (*_COPIED, "pixel_unshuffle", "channel_shuffle", "clone")
_PRODUCTS = (
    "mul",
    "multiply",
    "__mul__",
    "__rmul__",
    "matmul",
    "__matmul__",
    "__rmatmul__",
    "mm",
    "mv",
    "bmm",
)

_SCALED = ("batch_norm", "add", "sub", "subtract", "rsub", "mul", "multiply", "neg", "div", "divide")

SCALED = set(named(*_SCALED, "true_divide", *(f"__{name}__" for name in ("add", "radd", "sub", "rsub"))))
SCALED |= set(named("__mul__", "__rmul__", "__truediv__", "__neg__"))
"""Functions that with one reference map each coordinate by itself."""

CONVERTED = set(named("to", "type_as", "float", "double"))
VIEWS = (views() | set(named(*_MOVED))) - CONVERTED
AFFINE = set(named(*_AFFINE))
RESIZED = set(named("interpolate"))
BILINEAR = set(named(*_PRODUCTS))
CURVES = {function: made for name, made in _CURVES.items() for function in named(name)}
