"""What a parallel scan promises (Blelloch 1990): it is the loop, and log T steps suffice."""

import math

import torch
from torch import Tensor

from margin.core.findings import Finding, Subject
from margin.nn.prefix_scan import compose, doublings
from margin.nn.scan import CHUNK, scan
from margin.sequence.linear.gated_layers import ANY, NOTHING, Gated, bounded, gated, loop, wide
from margin.sequence.recurrent.captured import NOT_WHOLE


def rounding(found: Gated) -> tuple[Tensor, float]:
    r"""The scan's largest distance from the loop in 64 bits, in eps, and the largest that rounding allows.

    Each product of a gate and each sum rounds once: a term of z_t has at most T + levels of both, so

    .. math:: |\hat z_t - z_t| \le (T + \text{levels}) \, \epsilon \, \bar z_t (1 + O(T \epsilon)), \qquad
        \bar z_t = |a_t| \bar z_{t-1} + |b_t|

    and T times the least normal number where products underflow. Complex products round more: 4 times as much
    is allowed.

    Reference: Higham 2002, Sections 3.1 and 3.6 (complex arithmetic).
    """
    a, b, start = wide(found.a), wide(found.b), wide(found.start)
    size = loop(a.abs(), b.abs(), start.abs())
    apart = (wide(scan(found.a, found.b, found.start)) - loop(a, b, start)).abs()
    time, info = b.shape[1], torch.finfo(found.b.dtype)
    apart = (apart - time * info.tiny).clamp_min(0)
    ratio = torch.where(apart == 0, apart, apart / (info.eps * size))
    levels = math.ceil(math.log(max(time, 2), CHUNK)) + 1
    most = (time + levels) * (4 if b.is_complex() else 1)
    return ratio.max() if ratio.numel() else ratio.new_zeros(()), 1.01 * most


@torch.no_grad()
def is_loop(subject: Subject) -> Finding:
    """Whether the scan gives the states of the loop, on the gates that the model has on its own inputs.

    Args:
        subject: A model with gated linear recurrences.
    """
    found = gated(subject, *ANY)
    measured = [rounding(one) for one in found]
    longest = max((one.b.shape[1] for one in found), default=0)
    return Finding(
        statement=f"Over {longest} steps the scan of each layer is the loop z_t = a_t z_(t-1) + b_t, but "
        "for rounding: the largest distance, in rounding errors of the loop of absolute values.",
        value=torch.stack([value for value, _ in measured]) if found else NOTHING,
        unit="eps",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.tensor([most for _, most in measured], dtype=torch.float64) if found else None,
        labels=tuple(one.name for one in found),
        premises=(bounded(found),),
        reference="Blelloch 1990, Section 1.4; Higham 2002, Section 3.1",
        failure="" if found else NOT_WHOLE,
    )


def _associativity(found: Gated) -> Tensor:
    """The largest |(e3 o e2) o e1 - e3 o (e2 o e1)| of neighbors, in eps of the sum of absolute values."""
    a, b = found.a.expand(found.b.shape), found.b
    if b.shape[1] < 3:
        return torch.zeros((), dtype=torch.float64)
    e1, e2, e3 = ((a[:, i : b.shape[1] - 2 + i], b[:, i : b.shape[1] - 2 + i]) for i in range(3))
    left, right = compose(compose(e3, e2), e1), compose(e3, compose(e2, e1))
    absolute = [(x.abs(), y.abs()) for x, y in (e1, e2, e3)]
    size = compose(absolute[2], compose(absolute[1], absolute[0]))
    info = torch.finfo(b.dtype)
    ratios = []
    for x, y, s in zip(left, right, size, strict=True):
        apart = ((wide(x) - wide(y)).abs() - info.tiny).clamp_min(0)
        ratios.append(torch.where(apart == 0, apart, apart / (info.eps * wide(s))).max())
    return torch.stack(ratios).max()


@torch.no_grad()
def associative(subject: Subject) -> Finding:
    r"""Whether composing the model's own steps is associative, as the scan needs, up to rounding.

    (a_2, b_2) o (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2): in either grouping a term of b has two products and
    two sums at most, each off by eps / 2, so the groupings differ by 4 eps of the sum of absolute values at
    most (complex: 16).

    Args:
        subject: A model with gated linear recurrences.
    """
    found = gated(subject, *ANY)
    return Finding(
        statement="Of three steps of each layer it does not matter, but for rounding, which two join first.",
        value=torch.stack([_associativity(one) for one in found]) if found else NOTHING,
        unit="eps",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.tensor([16.0 if one.b.is_complex() else 4.0 for one in found]) if found else None,
        labels=tuple(one.name for one in found),
        premises=(bounded(found),),
        reference="Blelloch 1990, Section 1.4",
        failure="" if found else NOT_WHOLE,
    )


def _doublings_needed(found: Gated) -> float:
    """After how many doublings every state is the loop's, but for rounding; one more, if after none."""
    a, b, start = (wide(x) for x in (found.a, found.b, found.start))
    a = a.expand(b.shape)
    b = torch.cat((b[:, :1] + a[:, :1] * start[:, None], b[:, 1:]), 1)
    zero = torch.zeros_like(start)
    expected, size = loop(a, b, zero), loop(a.abs(), b.abs(), zero.abs())
    allowed = 4 * b.shape[1] * torch.finfo(torch.float64).eps * size
    if not bool(expected.isfinite().all()):
        return math.nan
    doubled = (elements[1] for elements in doublings(compose, (a, b)))
    for count, states in enumerate((b, *doubled)):
        if bool(((states - expected).abs() <= allowed).all()):
            return count
    return count + 1


@torch.no_grad()
def depth(subject: Subject) -> Finding:
    """After how many doublings all states of each layer are right: ceil(log2 T) always suffice.

    Fewer do where the gates forget: contributions older than 2^k steps are then below rounding.

    Args:
        subject: A model with gated linear recurrences.
    """
    found = gated(subject, *ANY)
    steps = [one.b.shape[1] for one in found]
    return Finding(
        statement=f"Of {' and '.join(f'{n}' for n in sorted(set(steps))) or 0} steps, ceil(log2 T) doublings "
        "give all states: how many of them each layer needs in float64.",
        value=torch.tensor([_doublings_needed(one) for one in found]).double() if found else NOTHING,
        unit="doublings",
        range=(0.0, math.inf),
        low=torch.tensor(0.0, dtype=torch.float64),
        high=torch.tensor([math.ceil(math.log2(max(n, 1))) for n in steps]) if found else None,
        tolerance=1e-9,
        labels=tuple(one.name for one in found),
        premises=(bounded(found),),
        reference="Hillis and Steele 1986, Section All Partial Sums of an Array",
        failure="" if found else NOT_WHOLE,
    )
