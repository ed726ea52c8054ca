"""Differences between two proportions or means, of the same examples or of different ones, with their limits.

Newcombe (1998) recovers the limits of a difference of independent proportions from Wilson's limits of each;
Tango (1998) inverts the score test for two proportions of the same examples. Neither leaves [-1, 1], and both
leave room where a sample shows no difference at all.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from margin.core.findings import STANDARD_ERRORS
from margin.theory.prediction.held_out import (
    Terms,
    are_whole,
    normal_quantile,
    per_example,
    student_quantile,
    weighted_mean,
    wilson,
)
from margin.theory.prediction.residuals import Interval

SURE = math.erf(STANDARD_ERRORS / math.sqrt(2))
"""The level of the interval that a verdict rests on: a normal error beyond it is 1 in 16,000."""

PRINTED_LEVEL = 0.95
LEVELS = (SURE, PRINTED_LEVEL)
HALVINGS = 60
"""Halvings of an interval in which a limit lies: as many as a float64 has digits."""


class Levels(NamedTuple):
    """Values with the ends of the interval of a verdict, and of the one that is printed."""

    value: Tensor
    interval: tuple[Tensor, Tensor]
    printed: tuple[Tensor, Tensor]


def at_both_levels(measure: Callable[[float], list[Interval]]) -> Levels:
    """Estimates at the level of a verdict and at 95 %.

    Args:
        measure: ``level -> intervals``, of the same values at every level.
    """
    found = [torch.tensor(measure(level), dtype=torch.float64).reshape(-1, 3).T for level in LEVELS]
    value = found[1][0]
    # A finding widens its intervals by the rounding of its value: an end at 0 is to stay there.
    rounding = torch.finfo(torch.float64).eps * value.abs()
    wide, printed = ((low + rounding, high - rounding) for _, low, high in found)
    return Levels(value, wide, printed)


def scalar(levels: Levels) -> Levels:
    """The same of a single value, without its axis."""
    value, interval, printed = levels
    return Levels(value[0], (interval[0][0], interval[1][0]), (printed[0][0], printed[1][0]))


def share_limits(share: float, trials: float, *, level: float = PRINTED_LEVEL) -> Interval:
    """A proportion with Wilson's limits."""
    return Interval(share, *wilson(share, trials, level=level))


def independent_difference(first: Interval, second: Interval) -> Interval:
    r"""The difference of two estimates of different examples, its limits recovered from theirs.

    .. math:: d - \sqrt{(\hat\theta_1 - l_1)^2 + (h_2 - \hat\theta_2)^2}, \quad
        d + \sqrt{(h_1 - \hat\theta_1)^2 + (\hat\theta_2 - l_2)^2}

    Of proportions with Wilson's limits it is Newcombe's interval.

    Reference: Newcombe 1998 (independent proportions), method 10; Zou and Donner 2008 (any estimates).
    """
    d = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Interval(d, d - below, d + above)


def paired_difference(
    ahead: float, behind: float, trials: float, *, level: float = PRINTED_LEVEL
) -> Interval:
    r"""The difference of two proportions of the same examples, with the limits of the score test.

    .. math:: \{\delta : n (b - c - \delta)^2 \le z^2 (2 q + \delta (1 - \delta))\}

    with q the likeliest probability of the second alone under the difference delta, the larger root of
    :math:`2 q^2 - (b + c - (2 - b + c) \delta) q - c \delta (1 - \delta) = 0`.

    Args:
        ahead: b, the share of the examples of which the first alone is right.
        behind: c, the share of which the second alone is.
        trials: n > 0; a real number where it is an effective count.
        level: Intended probability of covering the truth, in (0, 1).

    Raises:
        ValueError: A share or the number of examples is out of range.

    Reference: Tango 1998, Section 2.
    """
    if not (ahead >= 0 and behind >= 0 and ahead + behind <= 1 + 1e-9 and trials > 0):
        raise ValueError(f"shares lie in [0, 1], trials > 0: got {ahead} and {behind} of {trials}")
    found, z2 = ahead - behind, normal_quantile(level) ** 2

    def rejected(delta: float) -> bool:
        B = (2 - ahead + behind) * delta - ahead - behind
        C = behind * delta * (1 - delta)
        q = (math.sqrt(max(B * B + 8 * C, 0.0)) - B) / 4
        return trials * (found - delta) ** 2 > z2 * (2 * q + delta * (1 - delta))

    return Interval(found, _last_kept(found, -1.0, rejected), _last_kept(found, 1.0, rejected))


def _last_kept(inside: float, end: float, rejected: Callable[[float], bool]) -> float:
    """The last value from ``inside`` on towards ``end`` that is not rejected, by bisection."""
    if not rejected(end):
        return end
    for _ in range(HALVINGS):
        middle = (inside + end) / 2
        inside, end = (inside, middle) if rejected(middle) else (middle, end)
    return end


def paired_shares(first: Tensor, second: Tensor, terms: Terms, *, level: float = PRINTED_LEVEL) -> Interval:
    """The weighted difference of how often each of two is right on the same terms, with its limits.

    Where examples have several terms, as an image has pixels, an example's own difference is no longer right
    or wrong: the limits are then Student's, of the spread between examples.

    Args:
        first: Which terms the first is right on.
        second: Which the second is.
        terms: Weight and example of the same terms; their values are not read.
        level: Intended probability of covering the truth, in (0, 1).
    """
    apart = terms._replace(values=first.double() - second.double())
    total, weight = per_example(apart)
    if not are_whole(total, weight):
        estimate = weighted_mean(apart)
        found, half = float(estimate.mean), student_quantile(level, len(total)) * float(estimate.stderr)
        return Interval(found, max(found - half, -1.0), min(found + half, 1.0))
    ahead, behind = (
        weighted_mean(terms._replace(values=alone.double())) for alone in (first & ~second, second & ~first)
    )
    return paired_difference(float(ahead.mean), float(behind.mean), ahead.examples, level=level)
