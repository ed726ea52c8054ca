"""Interval arithmetic on tensors that also covers the rounding of a model's own arithmetic.

Each rule maps a box [l, h] to one that contains every f(x), x in the box (Gowal et al., 2018, Section 3),
and every value that f may take when it is computed in the model's floating-point type: a sum of n products
is off by at most gamma_n sum |w x|, gamma_n = n u / (1 - n u), u the unit roundoff (Higham, 2002, Section
3.1). Elementary functions are taken to be right within 8 u.

Ends are in float64. For a model in float32 the products of centers and of radii with constants are taken in
float32 themselves, as processors have fast ones, and what these may be off is added by the same theorem.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ULPS = 8
"""Rounding errors granted to an elementary operation, its constants' own rounding included."""


COARSEST = 0.05
"""The largest gamma_n at which a sum is bounded by a product in the model's own type."""


class NoIntervalRule(ValueError):
    """A layer or function through which no interval is known to pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """The layer w a + b that made a box from the box of its inputs; merged rows give tighter margins."""

    inputs: "Box"
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Normalized:
    """The softmax of a row of scores, or its logarithm: its margins have the signs of the scores' own."""

    scores: "Box"
    log: bool


@dataclass(frozen=True, slots=True, eq=False)
class Squashed:
    """The sigmoid of each score: of two, the larger has the larger one."""

    scores: "Box"


class Box:
    """A set of tensors, coordinate by coordinate between two ends.

    Args:
        low: Least value of each coordinate.
        high: Largest value of each coordinate.
        arithmetic: The type in which the model computes, whose rounding the bounds cover; None for exact
            arithmetic.
        made_by: The last layer of which this is the direct output, where margins gain by knowing it.
        products: The type in which products with constants are taken: float32 is fast, and as rigorous for
            a model in float32.
    """

    __slots__ = ("_high", "_low", "arithmetic", "made_by", "products")

    def __init__(
        self,
        low: Tensor,
        high: Tensor,
        arithmetic: torch.dtype | None = None,
        made_by: Affine | Normalized | Squashed | None = None,
        products: torch.dtype = torch.float64,
    ) -> None:
        self._low, self._high, self.arithmetic, self.made_by = low, high, arithmetic, made_by
        self.products = products

    @property
    def low(self) -> Tensor:
        """The lower ends, in the type in which bounds compute."""
        self._low = self._low.to(self.dtype)
        return self._low

    @property
    def high(self) -> Tensor:
        """The upper ends, likewise."""
        self._high = self._high.to(self.dtype)
        return self._high

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Both ends in the type in which they were found: float32 behind a product in it."""
        return self._low, self._high

    @property
    def dtype(self) -> torch.dtype:
        """The type in which bounds compute: float64 where they cover the rounding of float32."""
        return torch.float64 if self.arithmetic == torch.float32 else self._low.dtype

    @property
    def shape(self) -> torch.Size:
        """The tensors' shape."""
        return self._low.shape

    def like(self, low: Tensor, high: Tensor, made_by: Affine | Normalized | Squashed | None = None) -> "Box":
        """A box of the same arithmetic with other ends."""
        return Box(low, high, self.arithmetic, made_by, self.products)

    def cut(self, low: Tensor, high: Tensor) -> "Box":
        """The same result between other ends."""
        return self.like(low, high, self.made_by)

    @property
    def unit(self) -> float:
        """The unit roundoff of the arithmetic, 0 for exact arithmetic."""
        return 0.0 if self.arithmetic is None else torch.finfo(self.arithmetic).eps / 2

    @property
    def magnitude(self) -> Tensor:
        """The largest absolute value of each coordinate."""
        return torch.maximum(self.high, -self.low)  # in fewer passes than the larger absolute value

    def gamma(self, terms: int) -> float:
        """The relative error of a sum of so many products; infinite where it bounds nothing."""
        error = (terms + ULPS) * self.unit
        return error / (1 - error) if error < 1 else math.inf

    @property
    def in_single(self) -> bool:
        """Whether products with constants are taken in float32: of a model in it, on a CPU."""
        same = self.arithmetic == self.products == torch.float32
        return same and self._low.device.type == "cpu"

    def to(self, low: Tensor, high: Tensor, error: Tensor | float = 0.0) -> "Box":
        """The box [low - error, high + error] of the same arithmetic, infinite where that overflows."""
        if self.arithmetic is None:
            return self.like(low, high)
        low, high, most = low - error, high + error, torch.finfo(self.arithmetic).max
        if bool((low < -most).any()) or bool((high > most).any()):
            low, high = low.masked_fill(low < -most, -torch.inf), high.masked_fill(high > most, torch.inf)
        return self.like(low, high)

    def underflow(self, terms: int) -> float:
        """The absolute error of so many products or values that underflow, were they set to 0.

        float16 is not flushed to 0: there each is off by less than the smallest number above 0.
        """
        if self.arithmetic is None:
            return 0.0
        kind = torch.finfo(self.arithmetic)
        return kind.tiny * terms if kind.tiny < 1e-30 else kind.tiny * kind.eps * (terms + ULPS)


Operand = Box | Tensor | float | int
"""A box, or a constant."""


def endpointwise(function: Callable[[Tensor], Any], box: Box) -> Any:
    """An exact map that is non-decreasing in every coordinate: reshaping, indexing, pooling by maxima."""
    low, high = (function(end) for end in box.ends)
    if isinstance(low, Tensor):
        return box.like(low, high)
    return tuple(box.like(a, b) for a, b in zip(low, high, strict=True))


def joined(function: Callable[[list[Tensor]], Tensor], operands: Sequence[Operand]) -> Box:
    """Boxes and constants put together by an exact map: concatenation, stacking."""
    like = next(operand for operand in operands if isinstance(operand, Box))
    boxes = [as_box(operand, like) for operand in operands]
    return like.to(function([box.low for box in boxes]), function([box.high for box in boxes]))


def as_box(operand: Operand, like: Box) -> Box:
    """The operand itself, or a constant as the box of what it may be once rounded to the model's type."""
    if isinstance(operand, Box):
        return operand
    value = torch.as_tensor(operand, dtype=like.low.dtype, device=like.low.device)
    if like.arithmetic is None:
        return like.like(value, value)
    exact = value.to(like.arithmetic).to(value) == value
    error = torch.where(exact, 0.0, ULPS * like.unit * value.abs())
    return like.like(value - error, value + error)


Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``(x, weight, bias) -> W x + b``: matrix product, convolution."""


def linear_map(apply: Product, box: Box, weight: Tensor, bias: Tensor | None, terms: int) -> Box:
    """A bilinear map of box and weight, plus a bias: mu' = W mu + b, r' = |W| r (Gowal et al., eq. 6-7).

    Args:
        apply: The map.
        box: The inputs.
        weight: Its entries enter with their sign in the center, without it in the radius.
        bias: Likewise.
        terms: Products in one sum.
    """
    gamma = box.gamma(terms)
    if box.in_single and gamma < COARSEST and is_single(weight):
        # Winograd's convolution, which NNPACK may choose, adds before it multiplies: gamma_n is not its error
        with torch.backends.nnpack.flags(enabled=False):
            return _single_map(apply, box, weight.float(), bias, terms)
    weight, bias = weight.to(box.dtype), None if bias is None else bias.to(box.dtype)
    size = None if bias is None else bias.abs()
    center, radius = (box.high + box.low) / 2, (box.high - box.low) / 2
    radius = (1 + gamma) * radius + gamma * center.abs() if gamma else radius
    reach = apply(radius, weight.abs(), gamma * size if gamma and size is not None else None)
    middle = apply(center, weight, bias)
    if box.arithmetic is not None and torch.finfo(box.arithmetic).max < 1e6:
        # float16: a partial sum may overflow, though the whole of it does not
        largest = apply(box.magnitude, weight.abs(), size) * (1 + gamma)
        reach = reach.masked_fill(largest > torch.finfo(box.arithmetic).max, torch.inf)
    return box.to(middle - reach, middle + reach, box.underflow(terms))


def is_single(constant: Tensor) -> bool:
    """Whether a constant is the same number in float32."""
    return constant.dtype == torch.float32 or torch.equal(constant.float().to(constant), constant)


def _single_map(apply: Product, box: Box, weight: Tensor, bias: Tensor | None, terms: int) -> Box:
    """The bilinear map of :func:`linear_map` by two products in float32, rounded outwards.

    With c the center in float32, r the radius about it and g = gamma_n, the model's W x + b is off by
    g (|W| (|c| + r) + |b|), the computed W c + b by g (|W| |c| + |b|), and the computed sum of positive terms
    is at least (1 - g) of itself. So |W| ((1 + 3 g) r + 3 g |c|) + 3 g |b| reaches as far: of the 3 g, which
    is 27 u at least, 2 g are these, the others the few u of c, r, of the reach and of the ends.
    """
    gamma = box.gamma(terms)
    low, high = box.ends
    center = (low + high).mul_(0.5)
    far = center.abs() if low.numel() and bool(low.amin() < 0) else center
    radius = (high - low).mul_(0.5 * (1 + 3 * gamma)).add_(far, alpha=3 * gamma)
    size = weight.abs()
    floor = 3 * box.underflow(terms) * (1 + float(size.amax()) if size.numel() else 1.0)
    if bias is None:
        middle, reach = apply(center.float(), weight, None), apply(radius.float(), size, None).add_(floor)
    else:
        middle = apply(center.float(), weight, bias.float())
        reach = apply(radius.float(), size, (3 * gamma * bias.abs() + floor).float())
    low, high = middle - reach, middle.add_(reach)
    # Below this no partial sum of |W| |x| + |b|, which is reach / 3 g at most, overflows; NaN is not below.
    most = gamma * torch.finfo(torch.float32).max
    if reach.numel() and not bool(reach.amax() < most):
        over = ~(reach < most)
        low, high = low.masked_fill(over, -torch.inf), high.masked_fill(over, torch.inf)
    return box.like(low, high)


def matmul(a: Box | Tensor, b: Box | Tensor) -> Box:
    """A matrix product of a box and a constant matrix, or of two boxes: about the product of their centers.

    Of two, (m_a + d_a)(m_b + d_b) is off by at most |m_a| r_b + r_a |m_b| + r_a r_b (Rump, 1999).
    """
    if isinstance(a, Box) and isinstance(b, Tensor):
        return linear_map(lambda x, weight, _: torch.matmul(x, weight), a, b, None, a.shape[-1])
    if isinstance(b, Box) and isinstance(a, Tensor):
        return linear_map(lambda x, weight, _: torch.matmul(weight, x), b, a, None, a.shape[-1])
    if not isinstance(a, Box) or not isinstance(b, Box):
        raise TypeError("one of the operands must be a box")
    centers = [(box.high + box.low) / 2 for box in (a, b)]
    radii = [(box.high - box.low) / 2 for box in (a, b)]
    middle = torch.matmul(*centers)
    reach = torch.matmul(centers[0].abs(), radii[1]) + torch.matmul(radii[0], b.magnitude)
    terms = a.low.shape[-1]
    error = a.gamma(terms) * torch.matmul(a.magnitude, b.magnitude) + a.underflow(terms)
    return a.to(middle - reach, middle + reach, error)


def scale_shift(box: Box, scale: Tensor, shift: Tensor, size: Tensor) -> Box:
    """The coordinatewise map x scale + shift; ``size`` bounds the constants that cancel in the shift."""
    ends = box.low * scale + shift, box.high * scale + shift
    error = 2 * ULPS * box.unit * (box.magnitude * scale.abs() + size)
    return box.to(torch.minimum(*ends), torch.maximum(*ends), error + box.underflow(1))


def weighted_mean(function: Callable[[Tensor], Tensor], box: Box, terms: int) -> Box:
    """A linear map with weights >= 0, such as a mean: each end follows its own end."""
    error = function(box.magnitude) * box.gamma(terms)
    return box.to(function(box.low), function(box.high), error + box.underflow(terms))


def resized(function: Callable[[Tensor], Tensor], box: Box, terms: int) -> Box:
    """Interpolation with weights >= 0, computed in the model's type.

    Its weights, and which pixel is the nearest, are themselves rounded in that type, so a float64
    resizing would bound another map.
    """
    if box.arithmetic is None:
        return box.to(function(box.low), function(box.high))

    def own(x: Tensor) -> Tensor:
        return function(x.to(box.arithmetic)).to(x)

    return box.to(own(box.low), own(box.high), own(box.magnitude) * box.gamma(terms) + box.underflow(terms))


def monotone(
    function: Callable[[Tensor], Tensor], box: Box, size: float | int = 1.0, jump: float = 0.0
) -> Box:
    """A non-decreasing function of each coordinate, f([l, h]) = [f(l), f(h)].

    Args:
        function: Applied to both ends.
        box: The inputs.
        size: Magnitude of the terms that cancel inside f, so that its error is not relative to f.
        jump: How far below f the implementation may fall.
    """
    low, high = function(box.low) - jump, function(box.high)
    if box.arithmetic is None:
        return box.to(low, high)
    error = ULPS * box.unit * (size + torch.maximum(low.abs(), high.abs()))
    # What is exactly 0 in float64 is so in the model's type: no error of its underflow.
    error = error + box.underflow(1) * ((low != 0) | (high != 0))
    return box.to(low, high, error)


def valley(function: Callable[[Tensor], Tensor], box: Box, bottom: float) -> Box:
    """A function that falls up to ``bottom`` and rises after it: its least value there, if the box has it."""
    left, right = function(box.low), function(box.high)
    least = function(torch.full_like(box.low, bottom))
    low = torch.where((box.low <= bottom) & (box.high >= bottom), least, torch.minimum(left, right))
    high = torch.maximum(left, right)
    error = ULPS * box.unit * (1 + box.magnitude + torch.maximum(low.abs(), high.abs()))
    return box.to(low, high, error)


def bent_at_zero(function: Callable[[Tensor], Tensor], box: Box) -> Box:
    """A function that is linear on either side of 0, with f(0) = 0 and slopes of any sign."""
    left, right = function(box.low), function(box.high)
    inside = (box.low <= 0) & (box.high >= 0)
    low, high = torch.minimum(left, right), torch.maximum(left, right)
    low, high = torch.where(inside, low.clamp(max=0), low), torch.where(inside, high.clamp(min=0), high)
    error = ULPS * box.unit * torch.maximum(low.abs(), high.abs())
    return box.to(low, high, error + box.underflow(1) * (error != 0))


def add(a: Operand, b: Operand) -> Box:
    """The sum of two operands, one of them a box."""
    a, b = _boxes(a, b)
    return a.to(a.low + b.low, a.high + b.high, ULPS * a.unit * (a.magnitude + b.magnitude))


def negate(a: Box) -> Box:
    """The box of -x."""
    return a.to(-a.high, -a.low)


def subtract(a: Operand, b: Operand) -> Box:
    """The difference of two operands, one of them a box."""
    a, b = _boxes(a, b)
    return add(a, negate(b))


def multiply(a: Operand, b: Operand) -> Box:
    """The product of two operands, one of them a box: the extremes are at the four pairs of ends."""
    a, b = _boxes(a, b)
    pairs = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = torch.stack(pairs).amin(0), torch.stack(pairs).amax(0)
    return a.to(low, high, ULPS * a.unit * a.magnitude * b.magnitude + a.underflow(1))


def divide(a: Operand, b: Operand) -> Box:
    """A box by a constant that is not 0."""
    if isinstance(b, Box) or not isinstance(a, Box):
        raise NoIntervalRule("division by an interval")
    b = torch.as_tensor(b, dtype=a.low.dtype, device=a.low.device)
    if bool((b == 0).any()):
        raise NoIntervalRule("division by 0")
    ends = a.low / b, a.high / b
    error = ULPS * a.unit * (a.magnitude / b.abs()) + a.underflow(1)
    return a.to(torch.minimum(*ends), torch.maximum(*ends), error)


def pairwise(function: Callable[[Tensor, Tensor], Tensor], a: Operand, b: Operand) -> Box:
    """An exact function of two operands that rises in both: maximum, minimum."""
    a, b = _boxes(a, b)
    return a.to(function(a.low, b.low), function(a.high, b.high))


def _boxes(a: Operand, b: Operand) -> tuple[Box, Box]:
    like = a if isinstance(a, Box) else b
    if not isinstance(like, Box):
        raise TypeError("one of the operands must be a box")
    return as_box(a, like), as_box(b, like)
