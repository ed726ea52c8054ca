"""The parallel scan (Blelloch 1990) of a model's own gates: it is the loop, and log T steps suffice.

:func:`gated` finds the recurrences z_t = a_t z_{t-1} + b_t inside a model, with their gates on its inputs.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.engine.evaluation import drawn_rows, eval_mode
from margin.nn.recurrence import Recurrence, without_padding
from margin.nn.scan import CHUNK, compose, doublings, scan
from margin.sequence.linear.lru import LRU
from margin.sequence.linear.mingru import MinGRU, classifier
from margin.sequence.linear.minlstm import MinLSTM
from margin.sequence.recurrent.captured import NOT_WHOLE, Call, captured_calls, example, numbered

ANY = (MinGRU, MinLSTM, LRU)
AVERAGES = (MinGRU, MinLSTM)

EXAMPLES, STEPS = 8, 2048
"""Held-out examples that a question is put to, and their first steps."""

NOTHING = torch.full((1,), math.nan, dtype=torch.float64)
"""The value where no layer was called on whole sequences."""


class Gated(NamedTuple):
    """A gated linear recurrence inside a model, as it was called: z_t = a_t z_{t-1} + b_t.

    The states are those that the layer returned; of a linear recurrent unit, which returns what it reads of
    them, there are none.
    """

    name: str
    layer: Recurrence
    a: Tensor
    b: Tensor
    start: Tensor
    lengths: Tensor | None
    x: Tensor
    states: Tensor | None


def kinds(subject: Subject, *wanted: type[nn.Module]) -> list[tuple[str, nn.Module]]:
    """The layers of these kinds in a model, by name."""
    named = subject.model.named_modules()
    return [(name.removeprefix("model."), layer) for name, layer in named if isinstance(layer, wanted)]


def has_gated(subject: Subject) -> bool:
    """Whether the model has a layer that is a gated linear recurrence, and there are held-out examples."""
    return len(subject.test) > 0 and bool(kinds(subject, *ANY))


def has_average(subject: Subject) -> bool:
    """Whether the model has a layer that averages its input over time, and there are held-out examples."""
    return len(subject.test) > 0 and bool(kinds(subject, *AVERAGES))


def gated(subject: Subject, *wanted: type[nn.Module]) -> list[Gated]:
    """The layers with their gates and terms on drawn held-out examples, in the model's own type.

    Examples of several shapes are several batches: then each layer is there once for each, named with its
    number.

    Args:
        subject: A model with such layers; one that is called several times is captured at its first call, and
            one that is called step by step is left out.
        wanted: The kinds of layers.
    """
    layers, found = kinds(subject, *wanted), list[Gated]()
    batches = drawn_rows(subject.test, EXAMPLES).batches
    for number, batch in enumerate(batches):
        with torch.no_grad(), eval_mode(subject.model), captured_calls(layers) as calls:
            subject.model(*(x[:EXAMPLES] for x in batch.inputs))
            called = [(name, layer, calls[name][0]) for name, layer in layers if calls[name]]
            found += [
                _terms(numbered(name, number, len(batches)), layer, call) for name, layer, call in called
            ]
    return found


def _terms(name: str, layer: Any, call: Call) -> Gated:
    lengths = call.lengths
    x = without_padding(call.x, lengths)[:, :STEPS]
    start = (layer.initial(x) if call.state is None else call.state)[0]
    lengths = None if lengths is None else lengths.clamp_max(STEPS)
    if isinstance(layer, LRU):
        return Gated(name, layer, layer.eigenvalues, layer.driven(x), start, lengths, x, None)
    gates = layer.logits(x).sigmoid()
    b = (1 - gates) * layer.candidate(x)
    return Gated(name, layer, gates, b, start, lengths, x, call.output[0][:, :STEPS])


def wide(x: Tensor) -> Tensor:
    """The tensor in 64 bits."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """The states by their definition, a step at a time."""
    states = []
    for a_t, b_t in zip(a.expand(b.shape).unbind(1), b.unbind(1), strict=True):
        start = a_t * start + b_t
        states.append(start)
    return torch.stack(states, 1) if states else b


def bounded(found: list[Gated]) -> Premise:
    """Whether no gate exceeds 1 in modulus, so that no product overflows; else the layer is named."""
    most = {one.name: float(one.a.abs().max()) if one.a.numel() else 0.0 for one in found}
    over = [
        f"{one.name} ({most[one.name]:.6g})"
        for one in found
        if most[one.name] > 1 + 4 * torch.finfo(one.a.dtype).eps
    ]
    evidence = (
        f"above it: {', '.join(over)}" if over else f"the largest is {max(most.values(), default=0):.6g}"
    )
    return Premise("no gate exceeds 1 in modulus", "refuted" if over else "proved", evidence)


def demo() -> Subject:
    """A minGRU with memories of up to 50 steps, on short noise of several lengths."""
    lengths = (50, 33, 0, 17, 1, 50)
    return example(lambda: classifier(2, 3, hidden=8, layers=2, memory=50), (6, 50, 2), lengths, classes=3)


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
        failure="" if found else NOT_WHOLE,
    )
