r"""Lines around functions that couple coordinates: maxima over windows, softmax, normalization.

Below and above there may be different linear functions, so each sign of a coefficient has its own adjoint.

A maximum is at least the input k of largest low end, and at most max(x_k, a), k the input of largest high end
and a the largest high end of the others, which is convex in x_k and lies under its chord. A probability is
1 / (1 + sum_j exp(x_j - x_i)): with the chords of the exponentials a convex function of a linear one, which
lies above its tangent; with their tangents it lies under its chord (Shi et al., 2020, Section 3.3; Wei et
al., 2023, Section 3). A normalized coordinate is c g, with c linear and g = 1 / sqrt(mean(c^2) + eps): the
least c g over the interval of g is concave in c and lies above its chord, the largest convex and below its
own; and c g is expanded at the centers of both, g between linear functions. Of all lines and of the constant
ends of the interval rule those nearest at the middle of the box are taken.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from margin.robust.certificates.envelopes import OWN
from margin.robust.certificates.interval_arithmetic import ULPS, Box
from margin.robust.certificates.interval_rules import Deviations, at_places, deviations, floor_of_rms
from margin.robust.certificates.interval_table import named
from margin.robust.certificates.relaxations import Lines, rounding
from margin.robust.certificates.tape import Call

PAIRS = 1 << 19
"""Pairs of coordinates of a softmax, over all rows of an example, up to which it has lines."""

GAIN = 0.05
"""Share of an interval's width by which a line is nearer at the middle, if it is taken: far lines cost and
prove nothing, as a coefficient that is 0 ends its way back to the input."""

Rows = Callable[[Tensor], Tensor]


def coupled(call: Call, boxes: Sequence[Box], result: Box) -> Lines | None:
    """The lines of a call of these functions; None of any other.

    Args:
        call: Of the tape.
        boxes: Those of its inputs.
        result: What the interval rule gives for them.
    """
    if len(boxes) != 1:
        return None
    if call.func in POOLS:
        return _maximum(call, boxes[0], result)
    if call.func in SOFTMAX:
        return _softmax(call, boxes[0], result)
    if call.func in NORMALIZED:
        known = NORMALIZED[call.func](boxes[0], *call.args[1:], **call.kwargs)
        return None if known is None else _normalized(known, boxes[0], result)
    return None


def _signed(below: Rows, above: Rows) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """The adjoint of two linear functions: positive coefficients are of the lower one."""
    return lambda rows: (below(rows.clamp(min=0)) + above(rows.clamp(max=0)),)


def _maximum(call: Call, x: Box, result: Box) -> Lines:
    (below, _), (above, chosen) = _picked(call, x.low), _picked(call, x.high)
    others = torch.full_like(result.high, -torch.inf)
    for mask in _apart(call, x, result):
        taken = above(mask.to(x.high)[None])[0] > 0
        others = torch.where(mask, call.value(x.high.masked_fill(taken, -torch.inf)), others)
    least, most = chosen(x.low), result.high
    finite = least.isfinite() & most.isfinite()
    others = torch.maximum(others, least)
    a, low, high = (torch.where(finite, part, 0.0) for part in (others, least, most))
    slope = torch.where(high > low, (high - a) / (high - low).clamp(min=1e-300), (a <= low).to(a)).clamp(0, 1)
    offset = torch.maximum(a - slope * low, high - slope * high)
    offset = offset + OWN * (a.abs() + low.abs() + high.abs()) * (slope < 1)
    return Lines(
        _signed(below, lambda rows: above(slope * rows)),
        torch.zeros_like(offset),
        torch.where(finite, offset, most),
    )


def _picked(call: Call, ends: Tensor) -> tuple[Rows, Rows]:
    """Of each window the largest, one where several are: the adjoint of that choice, and the choice."""
    ranks = ends
    if call.func in WHOLE:  # whose derivative is shared by equal ones; a pool takes one
        order = ends.flatten().argsort()
        places = torch.arange(len(order), dtype=ends.dtype, device=ends.device)
        ranks = torch.empty_like(places).scatter_(0, order, places).reshape(ends.shape)
    value, pull = torch.func.vjp(call.value, ranks)  # type: ignore[misc]  # of one output, not of two
    _, push = torch.func.vjp(lambda own: pull(own)[0], value)  # type: ignore[misc]
    adjoint = torch.func.vmap(pull)
    return lambda rows: adjoint(rows)[0], lambda x: push(x)[0]


def _apart(call: Call, x: Box, result: Box) -> Iterator[Tensor]:
    """Masks of windows that share no input; together they are all windows."""
    shape, steps = result.shape, [1] * result.low.ndim
    if call.func not in WHOLE:
        for axis, step in enumerate(_overlaps(call, x.shape, shape), -int(call.func.__name__[-2])):
            steps[axis] = step
    axes = [torch.arange(n, device=x.low.device) % step for n, step in zip(shape, steps, strict=True)]
    for index in range(math.prod(steps)):
        mask = torch.ones((), dtype=torch.bool, device=x.low.device)
        for axis, step in enumerate(steps):
            own = axes[axis] == index % step
            index //= step
            mask = mask & own.reshape(-1, *(1,) * (len(shape) - axis - 1))
        yield mask.expand(shape)


def _overlaps(call: Call, before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Along each pooled axis, the least distance of two windows that never share an input."""
    axes = range(-int(call.func.__name__[-2]), 0)
    if "adaptive" in call.func.__name__:  # window i is of floor(i n / m) to ceil((i + 1) n / m)
        sizes = [(before[axis], after[axis]) for axis in axes]
        return [1 if n % m == 0 else 2 if n > m else m for n, m in sizes]
    names = ("kernel_size", "stride", "padding", "dilation")
    given = dict(zip(names, call.args[1:], strict=False)) | dict(call.kwargs)
    kernel, spread = given["kernel_size"], given.get("dilation", 1)
    parts = (kernel, given.get("stride") or kernel, spread)
    wide = [
        part * (len(axes) // len(part)) if isinstance(part, list | tuple) else [part] * len(axes)
        for part in parts
    ]
    return [d * (k - 1) // s + 1 for k, s, d in zip(*wide, strict=True)]


class Pairs(NamedTuple):
    """A linear function factor_i sum_j weight_ij (x_i - x_j) + offset_i of the last axis."""

    weight: Tensor
    factor: Tensor
    offset: Tensor

    def adjoint(self, rows: Tensor) -> Tensor:
        """Its coefficients carried to those of x."""
        own = rows * self.factor
        return own * self.weight.sum(-1) - torch.einsum("...i,...ij->...j", own, self.weight)

    def size(self, low: Tensor, high: Tensor) -> Tensor:
        """How large its terms are, for their rounding."""
        far = torch.maximum(low.abs(), high.abs())
        own = self.weight.sum(-1) * far + torch.einsum("...ij,...j->...i", self.weight, far)
        return own * self.factor.abs() + self.offset.abs()


def _softmax(call: Call, x: Box, result: Box) -> Lines | None:
    axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else None)
    n = x.shape[axis]
    if x.low[0].numel() * n > PAIRS:
        return None
    low, high, least, most = (part.movedim(axis, -1) for part in (x.low, x.high, result.low, result.high))
    error = rounding(call, [x], result).movedim(axis, -1)
    a, b = low[..., None, :] - high[..., :, None], high[..., None, :] - low[..., :, None]
    off = 1 - torch.eye(n, dtype=low.dtype, device=low.device)
    made = _under(a, b, off, (low + high) / 2), _over(a, b, off)
    lines = []
    for line, end, sign in zip(made, (least, most), (1.0, -1.0), strict=True):
        slack = error + (n + 8) * OWN * (2 + line.size(low, high))
        offset = line.offset - sign * slack
        middle = (low + high) / 2
        value = line.factor * (line.weight * (middle[..., :, None] - middle[..., None, :])).sum(-1) + offset
        better = value.isfinite() & (sign * (value - end) > GAIN * (most - least))
        weight = torch.where(better[..., None], line.weight, 0.0)
        lines.append(Pairs(weight, torch.where(better, line.factor, 0.0), torch.where(better, offset, end)))

    if not any(bool(line.factor.any()) for line in lines):
        return Lines(None, result.low, result.high)

    def moved(line: Pairs) -> Rows:
        back = axis if axis < 0 else axis + 1
        return lambda rows: line.adjoint(rows.movedim(back, -1)).movedim(-1, back)

    first, last = (line.offset.movedim(-1, axis) for line in lines)
    return Lines(_signed(*map(moved, lines)), first, last)


def _under(a: Tensor, b: Tensor, off: Tensor, middle: Tensor) -> Pairs:
    """The tangent at the middle of 1 / S, S the sum of the chords of exp(x_j - x_i) on [a, b]."""
    chord = torch.where(b > a, (b.exp() - a.exp()) / (b - a).clamp(min=1e-300), a.exp()) * off
    # S = s + sum_j chord (x_j - x_i); the tangent at m is 1 / m - (S - m) / m^2.
    s = 1 + (a.exp() * off - chord * a).sum(-1)
    m = s + (chord * (middle[..., None, :] - middle[..., :, None])).sum(-1)
    return Pairs(chord, 1 / m.square(), (2 * m - s) / m.square())


def _over(a: Tensor, b: Tensor, off: Tensor) -> Pairs:
    """The chord of 1 / T, T the sum of tangents of exp(x_j - x_i), each positive on [a, b]."""
    at = torch.minimum((a + b) / 2, a + 0.99)
    slope = at.exp() * off
    s = 1 + (slope * (1 - at)).sum(-1)
    least, most = (1 + (slope * (1 - at + end)).sum(-1) for end in (a, b))
    factor = 1 / (least * most)
    return Pairs(slope, factor, 1 / least + 1 / most - s * factor)


class Groups(NamedTuple):
    """How a normalization is computed: over which axes of which shape, and by which constants."""

    shape: Sequence[int]
    axes: tuple[int, ...]
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    centered: bool = True


class Line(NamedTuple):
    """The function slope_i c_i + below_i G_l(c) + above_i G_u(c) + offset_i, G_l and G_u around g."""

    slope: Tensor
    below: Tensor
    above: Tensor
    offset: Tensor

    def where(self, mask: Tensor, other: "Line") -> "Line":
        """This one where the mask holds."""
        return Line(*(torch.where(mask, a, b) for a, b in zip(self, other, strict=True)))

    def times(self, weight: Tensor) -> "Line":
        """Each coordinate by a constant."""
        return Line(*(part * weight for part in self))


def _normalized(known: Groups, x: Box, result: Box) -> Lines:
    shape, axes, weight, bias, eps, centered = known
    grouped, ends = (
        box.to(*(end.reshape(tuple(shape)) for end in (box.low, box.high))) for box in (x, result)
    )
    c = deviations(grouped, axes, centered=centered)
    g = _root(c, axes, eps)
    weight = torch.ones_like(c.low) if weight is None else weight.to(c.low).expand(c.low.shape)
    bias = torch.zeros_like(weight) if bias is None else bias.to(c.low).expand(c.low.shape)
    far = torch.maximum(c.low.abs(), c.high.abs())
    size = ((g.below.abs() + g.above.abs()) * far).sum(axes, keepdim=True) + g.low.abs() + g.high.abs()
    error = c.shift * g.most + far * (g.error + 2 * ULPS * x.unit * g.most)
    error = error + (c.terms + 32) * OWN * far * (g.most + size)
    error = weight.abs() * error + 2 * ULPS * x.unit * (far * g.most * weight.abs() + bias.abs())
    made = _nearest(c, g, ends, (weight, bias, error + x.underflow(1)), axes)
    if not any(bool(line.slope.any()) for line in made):
        return Lines(None, result.low, result.high)

    def carried(line: Line) -> Rows:
        def back(rows: Tensor) -> Tensor:
            own = rows.reshape(len(rows), *shape)
            sums = ((own * part).sum(axes, keepdim=True) for part in (line.below, line.above))
            own = own * line.slope + sum(t * slope for t, slope in zip(sums, (g.below, g.above), strict=True))
            return (own - own.mean(axes, keepdim=True) if centered else own).reshape(rows.shape)

        return back

    first, last = (line.offset.reshape(x.shape) for line in made)
    return Lines(_signed(*map(carried, made)), first, last)


def _nearest(
    c: Deviations, g: "Root", ends: Box, constants: tuple[Tensor, Tensor, Tensor], axes: tuple[int, ...]
) -> list[Line]:
    """The lines below and above c g weight + bias that are nearest at the middle, or the ends."""
    (weight, bias, error), middle, made = constants, (c.low + c.high) / 2, []
    offered = list(zip(*(_product(c, g, sign) for sign in (-1.0, 1.0)), strict=True))
    for sign, end in ((-1.0, ends.low), (1.0, ends.high)):
        zero = torch.zeros_like(end)
        line = Line(zero, zero, zero, end)
        for below, above in offered:
            own = below.where(weight * sign <= 0, above).times(weight)
            own = own._replace(offset=own.offset + bias + sign * error)
            value = g.at(own, middle, axes)
            gain = sign * (end - value) - GAIN * (ends.high - ends.low)
            gain = torch.minimum(gain, sign * (g.at(line, middle, axes) - value))
            line = own.where(gain > 0, line)
        made.append(line)
    return made


class Root(NamedTuple):
    """The factor g = 1 / sqrt(mean(c^2) + eps): its ends, and linear functions of c around it.

    Args:
        least: Its least value.
        most: Its largest.
        below: The slopes of the function below.
        above: Of that above.
        low: The offset below.
        high: That above.
        error: How far the model's own g may be off.
    """

    least: Tensor
    most: Tensor
    below: Tensor
    above: Tensor
    low: Tensor
    high: Tensor
    error: Tensor

    def at(self, line: Line, c: Tensor, axes: tuple[int, ...]) -> Tensor:
        """The value of a line."""
        around = ((slope * c).sum(axes, keepdim=True) for slope in (self.below, self.above))
        return (
            line.slope * c
            + sum(p * v for p, v in zip((line.below, line.above), around, strict=True))
            + line.offset
        )


def _root(c: Deviations, axes: tuple[int, ...], eps: float) -> Root:
    """The convex g of v = mean(c^2) lies above its tangent, below its chord; each c^2 between its own."""

    def mean(part: Tensor) -> Tensor:
        return part.sum(axes, keepdim=True) / c.terms

    small, large, middle = mean(c.small), mean(c.large), (c.low + c.high) / 2
    v = mean(middle.square())
    most, least, g = ((part + eps).rsqrt() for part in (small, large, v))
    fall = -0.5 * g / (v + eps)
    chord = torch.where(large > small, (least - most) / (large - small).clamp(min=1e-300), 0.0)
    rounded = ((small - c.off).clamp(min=0) + eps).rsqrt()
    low = g - fall * (v + mean(c.low * c.high))
    high = most - chord * (small + v)
    around = fall * (c.low + c.high) / c.terms, 2 * chord * middle / c.terms
    return Root(least, most, *around, low, high, 0.5 * c.off * rounded**3)


def _product(c: Deviations, g: Root, sign: float) -> tuple[Line, Line]:
    """Lines below (-1) or above (1) c g: the chord over c alone, and the expansion at both centers."""
    ends = [sign * torch.maximum(sign * g.least * e, sign * g.most * e) for e in (c.low, c.high)]
    slope = torch.where(c.high > c.low, (ends[1] - ends[0]) / (c.high - c.low).clamp(min=1e-300), 0.0)
    offset = (ends[0] - slope * c.low + ends[1] - slope * c.high) / 2
    zero = torch.zeros_like(slope)
    m, k = (c.low + c.high) / 2, (g.least + g.most) / 2
    below, above = (m.clamp(max=0), m.clamp(min=0)) if sign > 0 else (m.clamp(min=0), m.clamp(max=0))
    rest = sign * (c.high - c.low) / 2 * (g.most - g.least) / 2 - m * k
    expanded = Line(k.expand_as(m), below, above, rest + below * g.low + above * g.high)
    return Line(slope, zero, zero, offset), expanded


def _layer(x: Box, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Groups:
    return Groups(x.shape, tuple(range(-len(normalized_shape), 0)), weight, bias, eps)


def _rms(x: Box, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Groups:
    return _layer(x, normalized_shape, weight, None, floor_of_rms(x, eps))._replace(centered=False)


def _group(x: Box, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Groups:
    scale, offset = (at_places(part, x.shape, num_groups) for part in (weight, bias))
    return Groups((len(x.low), num_groups, x.low[0].numel() // num_groups), (-1,), scale, offset, eps)


_POOLS = tuple(f"{name}{d}d" for name in ("max_pool", "adaptive_max_pool") for d in (1, 2, 3))

WHOLE = set(named("amax"))
"""Maxima over whole axes."""

POOLS = WHOLE | set(named(*_POOLS))
SOFTMAX = set(named("softmax"))
NORMALIZED: dict[Any, Callable[..., Groups | None]] = {
    function: made
    for name, made in (("layer_norm", _layer), ("rms_norm", _rms), ("group_norm", _group))
    for function in named(name)
}
