r"""Lines below and above a function of one variable on an interval (Zhang et al., 2018; Xu et al., 2020).

With any slope s the line s x + max_{[l, u]} (f(x) - s x) lies above f. The maximum is at an end, at a kink,
or where f'(x) = s, which most activations solve in closed form; so the offset is right whatever the slope,
and the slope may be chosen by a heuristic: of the chord, the tangent at the middle and those through an
end, that whose line is nearest to f at the middle, where it bounds the area between line and function.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

OWN = 2.0**-50
"""Relative error granted to an offset computed in float64."""

ROUNDS = 4
"""Steps in which the tangent through an end is found."""

Scalar = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A function of one variable.

    Args:
        f: The function.
        turns: ``s -> the points where f(x) - s x may have an extremum``: kinks, and roots of f'(x) = s. A
            point outside the interval does no harm.
        slack: How much beyond the found points the extremum may be, where they are not exact.
        below: How far below f the implementation may fall.
    """

    f: Scalar
    turns: Callable[[Tensor], tuple[Tensor, ...]]
    slack: float = 0.0
    below: float = 0.0


class Envelope(NamedTuple):
    """The lines low_slope x + low <= f(x) <= high_slope x + high."""

    low_slope: Tensor
    low: Tensor
    high_slope: Tensor
    high: Tensor


def relu_envelope(low: Tensor, high: Tensor) -> Envelope:
    """Of max(x, 0): above the chord, below 0 or x, whichever leaves the smaller area (Zhang et al., 2018)."""
    left, chord = low.clamp(max=0), high.clamp(min=0)
    width = torch.sub(chord, left).clamp_(min=torch.finfo(low.dtype).tiny)
    chord.div_(width)
    offset = torch.mul(chord, left, out=width).mul_(-(1 + OWN))
    return Envelope(torch.gt(high, left.neg_()).to(low), low.new_zeros(()).expand_as(low), chord, offset)


def envelope(curve: Curve, low: Tensor, high: Tensor) -> Envelope:
    """The lines around a curve on [low, high]; constant where an end is infinite."""
    finite = low.isfinite() & high.isfinite()
    a, b = torch.where(finite, low, 0.0), torch.where(finite, high, 0.0)
    middle, ends = (a + b) / 2, (curve.f(a), curve.f(b))
    with torch.enable_grad():
        at = middle.detach().requires_grad_()
        (tangent,) = torch.autograd.grad(curve.f(at).sum(), at)
    width = b - a
    chord = torch.where(width > 0, (ends[1] - ends[0]) / width.clamp(min=1e-300), tangent)
    chord = torch.where(chord.isfinite(), chord, tangent)
    found = []
    for sign in (-1.0, 1.0):
        own = _signed(curve, sign)
        values = (sign * ends[0], sign * ends[1])
        slopes = [sign * chord, sign * tangent, *_through_ends(own, a, b, values, sign * chord)]
        offsets = [_above(own, slope, a, b, values) for slope in slopes]
        reach = torch.stack([s * middle + b for s, b in zip(slopes, offsets, strict=True)])
        best = reach.argmin(0, keepdim=True)
        slope, offset = (torch.stack(part).gather(0, best)[0] for part in (slopes, offsets))
        size = torch.maximum(*(v.abs() for v in values)) + slope.abs() * torch.maximum(a.abs(), b.abs())
        offset = offset + OWN * (1 + size) + curve.slack
        found += [sign * torch.where(finite, slope, 0.0), sign * torch.where(finite, offset, torch.inf)]
    return Envelope(found[0], found[1] - curve.below, found[2], found[3])


def _signed(curve: Curve, sign: float) -> Curve:
    return Curve(lambda x: sign * curve.f(x), lambda s: curve.turns(sign * s))


def _above(curve: Curve, slope: Tensor, a: Tensor, b: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
    """The least offset with which a line of that slope lies above the curve."""
    most = torch.maximum(ends[0] - slope * a, ends[1] - slope * b)
    for turn in curve.turns(slope):
        x = torch.minimum(torch.maximum(turn, a), b)
        most = torch.maximum(most, curve.f(x) - slope * x)
    return most


def _through_ends(
    curve: Curve, a: Tensor, b: Tensor, ends: tuple[Tensor, Tensor], chord: Tensor
) -> tuple[Tensor, Tensor]:
    """The steepest slope from (a, f(a)) to the curve, and the least from the curve to (b, f(b)).

    A quotient's maximum by Dinkelbach's (1967) steps: the next point is where f(x) - s x is largest.
    """
    from_low = from_high = chord
    for _ in range(ROUNDS):
        for turn in curve.turns(from_low):
            x = torch.minimum(torch.maximum(turn, a), b)
            quotient = (curve.f(x) - ends[0]) / (x - a)
            from_low = torch.where(x > a, torch.maximum(from_low, quotient), from_low)
        for turn in curve.turns(from_high):
            x = torch.minimum(torch.maximum(turn, a), b)
            quotient = (ends[1] - curve.f(x)) / (b - x)
            from_high = torch.where(x < b, torch.minimum(from_high, quotient), from_high)
    return from_low, from_high


def kinked(f: Scalar, *kinks: Tensor | float | int) -> Curve:
    """A function that is linear between its kinks."""
    return Curve(f, lambda s: tuple(torch.as_tensor(kink).to(s).expand_as(s) for kink in kinks))


TANH = Curve(torch.tanh, lambda s: _both((1 - s).clamp(0, 1).sqrt().atanh()))
SIGMOID = Curve(torch.sigmoid, lambda s: _both(2 * (1 - 4 * s).clamp(0, 1).sqrt().atanh()))
ATAN = Curve(torch.atan, lambda s: _both((1 / s - 1).clamp(min=0).sqrt()))
EXP = Curve(torch.exp, lambda s: (s.clamp(min=0).log(),))
SQUARE = Curve(torch.square, lambda s: (s / 2,))
LOGSIGMOID = Curve(F.logsigmoid, lambda s: (-s.clamp(0, 1).logit(),))
HARDSWISH = Curve(
    F.hardswish,
    lambda s: ((3 * s - 1.5).clamp(-3, 3), torch.full_like(s, -3.0), torch.full_like(s, 3.0)),
)


def _both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x, -x


def softplus(beta: float, threshold: float) -> Curve:
    """log(1 + exp(beta x)) / beta, which the implementation replaces by x above the threshold."""
    return Curve(
        lambda x: torch.logaddexp(beta * x, torch.zeros_like(x)) / beta,
        lambda s: (s.clamp(0, 1).logit() / beta,),
        below=math.log1p(math.exp(-threshold)) / beta,
    )


def elu(f: Scalar, scale: float, rate: float) -> Curve:
    """A function scale (exp(rate x) - 1) left of 0 and linear right of it."""
    return Curve(f, lambda s: ((s.clamp(min=0) / (scale * rate)).log() / rate, torch.zeros_like(s)))


@cache
def tabulated(f: Scalar, most: float = 1.3, reach: float = 40.0, cells: int = 1 << 17) -> Curve:
    """A smooth function whose derivative has no inverse in closed form: its roots are read off a table.

    The true extremum is in the same cell of width h, where f(x) - s x is higher by at most max|f''| h^2 / 2.

    Args:
        f: Its derivative is constant but for rounding outside the table.
        most: A bound of |f''|.
        reach: The table is of [-reach, reach].
        cells: Cells of the table.
    """
    with torch.enable_grad():
        x = torch.linspace(-reach, reach, cells + 1, dtype=torch.float64).requires_grad_()
        (d,) = torch.autograd.grad(f(x).sum(), x)
    x = x.detach()
    rising = d.diff() >= 0
    cuts = [0, *(rising.diff().nonzero().flatten() + 1).tolist(), cells]
    pieces = [(a, b) for a, b in pairwise(cuts) if b - a > cells // 100]

    def turns(s: Tensor) -> tuple[Tensor, ...]:
        found = []
        for a, b in pieces:
            own, at = d[a : b + 1].to(s), x[a : b + 1].to(s)
            if own[0] > own[-1]:
                own, at = own.flip(0), at.flip(0)
            own = own.cummax(0).values
            right = torch.searchsorted(own, s.contiguous()).clamp(1, len(own) - 1)
            low, high = own[right - 1], own[right]
            share = ((s - low) / (high - low).clamp(min=1e-300)).clamp(0, 1)
            found.append(at[right - 1] + share * (at[right] - at[right - 1]))
        return tuple(found)

    return Curve(f, turns, slack=most * (2 * reach / cells) ** 2 / 2)
