"""What gates promise (Feng et al. 2024): averages stay in range, and a memory is a product of gates."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from margin.core.findings import Finding, Premise, Subject
from margin.core.types import Batch
from margin.engine.evaluation import in_double
from margin.nn.recurrence import valid
from margin.nn.scan import scan
from margin.sequence.dynamics.contraction import altered
from margin.sequence.linear.gated_layers import (
    ANY,
    AVERAGES,
    EXAMPLES,
    NOTHING,
    Gated,
    bounded,
    gated,
    loop,
    wide,
)
from margin.sequence.recurrent.heard import NOT_WHOLE, TOO_SHORT, some

LAGS = 64
"""Lags at which derivatives are taken, at most."""


@torch.no_grad()
def in_range(subject: Subject) -> Finding:
    r"""Whether each coordinate of z_t stays in the range of that coordinate of z_0, v_1 .. v_t.

    The vector z_t need not stay in the convex hull of these vectors: each coordinate has weights of its own.
    Rounding may add T eps of the largest value.

    Args:
        subject: A model with layers that average their input over time.
    """
    excess, allowed, found = [], 0.0, gated(subject, *AVERAGES)
    for one in found:
        if one.states is None or not one.states.numel():
            excess.append(torch.zeros((), dtype=torch.float64))
            continue
        seen = torch.cat((one.start[:, None], one.layer.candidate(one.x)), 1)  # type: ignore[operator]
        low, high = seen.cummin(1).values[:, 1:], seen.cummax(1).values[:, 1:]
        outside = torch.maximum(one.states - high, low - one.states)
        if one.lengths is not None:
            steps = torch.arange(outside.shape[1], device=outside.device)
            outside = outside.masked_fill((steps >= one.lengths[:, None])[..., None], -math.inf)
        excess.append(wide(outside.max()))
        eps = torch.finfo(seen.dtype).eps
        allowed = max(allowed, 2 * eps * outside.shape[1] * float(seen.abs().max()))
    return Finding(
        statement="Each coordinate of a state lies between the least and the largest value that it averages: "
        "by how much it is outside, at most (below 0: inside by so much).",
        value=torch.stack(excess).nan_to_num(nan=math.nan, neginf=0.0) if found else NOTHING,
        unit="state units",
        range=(-math.inf, math.inf),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=allowed,
        labels=tuple(one.name for one in found),
        premises=(shares_are_sigmoids(found),),
        reference="Feng et al. 2024, Section 3.1",
        failure="" if found else NOT_WHOLE,
    )


def shares_are_sigmoids(found: list[Gated]) -> Premise:
    """The premise that each layer averages by shares in [0, 1].

    It is proved of layers of the kinds known, as they were made; of another, its states are compared with the
    averages by the sigmoids of its logits.

    Args:
        found: The layers with their states.
    """
    text, others, wrong = "the shares are in [0, 1]", list[str](), list[str]()
    for one in found:
        what = altered(one.layer, *AVERAGES)
        if not what or one.states is None or not one.states.numel():
            continue
        averages = loop(wide(one.a), wide(one.b), wide(one.start))
        here = torch.ones_like(averages[..., 0], dtype=torch.bool)
        if one.lengths is not None:
            here = valid(one.lengths, here.shape[1])
        gap = float((wide(one.states) - averages)[here].abs().amax()) if bool(here.any()) else 0.0
        size = float(torch.cat((one.start[:, None], one.layer.candidate(one.x)), 1).abs().max())  # type: ignore[operator]
        others.append(f"{one.name} is {what}, whose states are {gap:.3g} from averages by sigmoids")
        if not gap <= 8 * torch.finfo(one.b.dtype).eps * averages.shape[1] * size:
            wrong.append(others[-1])
    if wrong:
        return Premise(text, "refuted", "; ".join(wrong))
    return Premise(text, "sampled" if others else "proved", "; ".join(others) or "each is a sigmoid")


def survival(one: Gated) -> Tensor:
    """The derivative of z_k by z_0, k = 1 .. T, by autograd: through the layer, or the scan that it reads."""
    start = one.start.detach().requires_grad_()
    with torch.enable_grad():
        states = scan(one.a, one.b, start) if one.states is None else one.layer(one.x, None, (start,))[0]
        total = states.sum((0, 2))  # a state reads its own example's and unit's start alone
        rows = [torch.autograd.grad(z.real, start, retain_graph=True)[0].conj() for z in total.unbind(0)]
    return torch.stack(rows, 1)


def product(subject: Subject) -> Finding:
    r"""Whether the derivative of z_k by z_0 is the product of the k gates between, s^k for a constant gate.

    It is asked of a copy in float64.

    Args:
        subject: A model with gated linear recurrences.
    """
    inputs = tuple(x[:, :LAGS] if x.ndim > 1 else x.clamp_max(LAGS) for x in some(subject.test[0], EXAMPLES))
    found = gated(replace(subject, model=in_double(subject.model), test=[Batch(inputs)]), *ANY)
    errors = []
    for one in found:
        expected = one.a.expand(one.b.shape).cumprod(1)
        got = survival(one) if one.b.numel() else expected
        relative = (got - expected).abs() / expected.abs().clamp_min(1e-290)  # below it products underflow
        errors.append(relative.max() if relative.numel() else torch.zeros((), dtype=torch.float64))
    return Finding(
        statement=f"The derivative of a state by the one k <= {LAGS} steps before it is the product of the k "
        "gates between: the largest relative difference.",
        value=torch.stack(errors) if found else NOTHING,
        unit="1",
        range=(0.0, math.inf),
        low=torch.zeros((), dtype=torch.float64),
        high=torch.zeros((), dtype=torch.float64),
        tolerance=16 * LAGS * torch.finfo(torch.float64).eps,
        labels=tuple(one.name for one in found),
        premises=(bounded(found),),
        reference="Hochreiter and Schmidhuber 1997, Section 3.1; Feng et al. 2024, Section 3.1",
        failure="" if found else NOT_WHOLE,
    )


def _steps(one: Gated) -> int:
    batch, time = one.b.shape[:2]
    return batch * time if one.lengths is None else int(one.lengths.sum())


@torch.no_grad()
def memory(subject: Subject) -> Finding:
    """For how many steps the states last: where the product of gates falls to 1/e, at the mean logarithm.

    A unit's time constant is -1 / mean(log |gate|) over the held-out steps. Measured; nothing is promised. A
    unit whose mean gate is 1 to rounding lasts as long as that can tell.

    Args:
        subject: A model with gated linear recurrences.
    """
    found, constants = gated(subject, *ANY), []
    for one in found:
        gates = wide(one.a).abs().expand(one.b.shape)
        log = gates.clamp_min(torch.finfo(torch.float64).tiny).log()
        if one.lengths is not None:
            here = valid(one.lengths, log.shape[1])
            log = log.masked_fill(~here[..., None], 0.0)
            mean = log.sum((0, 1)) / here.sum()  # NaN where no example has a step
        else:
            mean = log.mean((0, 1))
        constants.append(-1 / mean.clamp_max(-torch.finfo(one.b.dtype).eps))
    ends = [x for c in constants for x in (c.median(), c.max())]
    failure = "" if all(_steps(one) for one in found) else TOO_SHORT
    curve = {"steps of each unit, sorted": torch.cat(constants).sort().values} if found else {}
    return Finding(
        statement="For how many steps a state lasts until 1/e of it is left, in the median unit of each "
        "layer and in its longest.",
        value=torch.stack(ends) if found else NOTHING,
        unit="steps",
        range=(0.0, math.inf),
        labels=tuple(f"{one.name}, {which}" for one in found for which in ("median", "longest")),
        premises=(),
        reference="Tallec and Ollivier 2018, Section 2",
        failure=failure if found else NOT_WHOLE,
        curves=curve,
    )
