"""Gradients over time: their norm by lag, and below the bound that makes them vanish (Pascanu et al. 2013).

Gates (Feng et al. 2024): averages stay in range, and a memory is a product of gates.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.types import Batch
from margin.engine.evaluation import drawn_rows, eval_mode, in_double
from margin.nn.recurrence import Recurrence, valid
from margin.nn.scan import scan
from margin.sequence.dynamics.gradients import (
    LOST,
    ByLag,
    Contraction,
    altered,
    by_lag,
    contractions,
    rates,
    simple,
    step_of_its_class,
)
from margin.sequence.linear.scan_claims import (
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
from margin.sequence.recurrent.captured import (
    NOT_WHOLE,
    TOO_SHORT,
    Captured,
    captured,
    causal_ones,
    example,
    first_inputs,
)
from margin.sequence.recurrent.elman import classifier

ROUNDING = 1e-9
"""Relative, of a norm in float64 and of the bound itself."""

REFERENCE = (
    "Pascanu, Mikolov and Bengio 2013, Section 2.1; Goodfellow, Bengio and Courville 2016, Section 10.7"
)


def feedback_recurrences(model: nn.Module) -> list[tuple[str, Recurrence]]:
    """The topmost causal recurrences, with their names, whose state is more than a window of inputs.

    One that states a receptive field, as a convolution does, feeds nothing back.
    """
    return [
        (name, one)
        for name, one in causal_ones(model)
        if not isinstance(getattr(one, "receptive_field", None), int)
    ]


def has_feedback(subject: Subject) -> bool:
    """Whether the model has a recurrence that feeds a state back, and there are held-out examples."""
    return len(subject.test) > 0 and len(feedback_recurrences(subject.model)) > 0


def has_bound(subject: Subject) -> bool:
    """Whether a layer's step is a phi of an affine map of its state, and there are held-out examples."""
    return len(subject.test) > 0 and len(simple(subject.model)) > 0


def measured(one: Captured, part: slice | None = None, block: int = 0) -> ByLag:
    """The gradient by lag of what a recurrence was given, wherever the model runs."""
    with (
        eval_mode(one.recurrence),
        torch.backends.cudnn.flags(enabled=False),
    ):  # cuDNN has no second derivative
        return by_lag(one.recurrence, one.x, one.lengths, one.state, part, block)


def drawn(name: str, found: ByLag, longest: int) -> dict[str, Tensor]:
    """The median, least and largest norm at each lag up to the longest of all layers, as curves."""
    places = torch.arange(1, longest + 1)
    curves = {}
    for what, values in (
        ("median", found.norms.nanmedian(0).values),
        ("least", found.norms.nan_to_num(nan=math.inf).amin(0)),
        ("largest", found.norms.nan_to_num(nan=-math.inf).amax(0)),
    ):
        row = torch.full((longest,), math.nan, dtype=torch.float64)
        row[found.lags - 1] = values.where(values.isfinite(), math.nan)
        curves[f"{name}: {what} norm"] = row
    return {"lag": places, **curves}


def last_rates(found: ByLag) -> tuple[Tensor, Tensor]:
    """Of each example, the factor a step over its longest lag, and the error of it; NaN without a step."""
    seen = ~found.norms.isnan()
    if not seen.shape[1]:
        nothing = torch.full((len(found.norms),), math.nan, dtype=torch.float64)
        return nothing, nothing
    place = seen.long().cumsum(1).argmax(1)[:, None]
    rate, error = rates(found).gather(1, place)[:, 0], found.errors.gather(1, place)[:, 0]
    return rate, rate * error / found.lags[place[:, 0]]


def decay(subject: Subject) -> Finding:
    """How far the last state of each recurrence still moves with the state k steps before it.

    The value is the factor a step over the longest lag, the median of a few held-out examples. Below 1 a
    gradient vanishes exponentially; above 1 it explodes. Nothing is promised of a recurrence as such.

    Args:
        subject: A model with recurrences; they are asked on the inputs that the held-out examples give them.
    """
    layers = captured(subject, feedback_recurrences)
    names, found = tuple(_shown(one) for one in layers), [measured(one) for one in layers]
    longest = max((int(one.lags.max()) for one in found if len(one.lags)), default=0)
    ends = [last_rates(one) for one in found]
    value = torch.stack([rate.nanmedian() for rate, _ in ends]) if ends else torch.full((1,), math.nan)
    error = torch.stack([e.nan_to_num(0.0).amax() for _, e in ends]) if ends else torch.zeros(1)
    exact = not bool(error.any())
    curves: dict[str, Tensor] = {}
    for name, seen in zip(names, found, strict=True):
        curves |= drawn(name, seen, longest) if longest else {}
    return Finding(
        statement="The factor a step by which a move of a state reaches the last one, "
        f"||dz_T / dz_(T-k)||^(1/k), over up to {longest} steps: below 1 gradients vanish, above 1 explode.",
        value=value.double(),
        range=(0.0, math.inf),
        kind="exact" if exact else "estimate",
        interval=None if exact else (value - error, value + error),
        labels=names,
        reference=REFERENCE,
        failure=_failure(names, found),
        curves=curves,
    )


def _failure(names: tuple[str, ...], found: list[ByLag]) -> str:
    if not names:
        return NOT_WHOLE
    if not all(one.norms.shape[1] for one in found):
        return TOO_SHORT
    bad = [name for name, one in zip(names, found, strict=True) if bool(one.norms.isinf().any())]
    return f"the derivatives of {', '.join(bad)} are not finite" if bad else ""


def bound(subject: Subject) -> Finding:
    r"""Whether gradients stay below the bound of a simple recurrent layer at every lag.

    .. math:: \|dz_i / dz_t\|_2 \le (\alpha \sigma_1(U))^{i-t}, \qquad |\varphi'| \le \alpha

    The value is the largest of the factors a step, ||dz_T / dz_{T-k}||^{1/k}, over lags and examples, the
    promise alpha sigma_1(U): the one is below the other where every norm is below its bound. Below 1 the
    bound implies that gradients vanish. Above 1 it allows that they explode, and does not imply it: a
    nilpotent U of large norm forgets all within a few steps. A norm that is 0 but for rounding is not judged.

    Args:
        subject: A model with simple recurrent layers, linear systems or linear recurrent units.
    """
    layers = captured(subject, simple)
    each = [
        (one, part, measured(one, part.part, part.block))
        for one in layers
        for part in contractions(one.recurrence)
    ]
    names = tuple(_named(one, part) for one, part, _ in each)
    longest = max((int(found.lags.max()) for *_, found in each if len(found.lags)), default=0)
    values, errors, curves = [], [], dict[str, Tensor]()
    for one, part, found in each:
        most, error = _largest(found)
        values.append(most)
        errors.append(error)
        if longest:
            curves |= drawn(_named(one, part), found, longest)
            curves[f"{_named(one, part)}: bound"] = part.stretch ** torch.arange(1, longest + 1).double()
    # with its rounding, of which each layer has its own
    high = torch.tensor([part.stretch * (1 + ROUNDING) for _, part, _ in each], dtype=torch.float64)
    value, error = (torch.stack(v) if v else torch.full((1,), math.nan) for v in (values, errors))
    exact = not bool(error.any())
    return Finding(
        statement=f"No norm ||dz_T / dz_(T-k)||, k up to {longest}, exceeds (alpha sigma_1(U))^k: the "
        f"largest factor a step, to a relative {ROUNDING:g}. "
        f"{'; '.join(_reading(one, part) for one, part, _ in each)}.",
        value=value.double(),
        range=(0.0, math.inf),
        kind="exact" if exact else "estimate",
        interval=None if exact else (value - error, value + error),
        high=high if each else None,
        labels=names,
        premises=tuple(step_of_its_class(one) for one in layers),
        reference=REFERENCE,
        failure=_failure(names, [found for *_, found in each]),
        curves=curves,
    )


def _shown(one: Captured) -> str:
    return one.name.removeprefix("model.")


def _named(one: Captured, part: Contraction) -> str:
    return f"{_shown(one)}, {part.name}" if part.name else _shown(one)


def _largest(found: ByLag) -> tuple[Tensor, Tensor]:
    """The largest factor a step over lags and examples, and its error; NaN without a step.

    Norms whose digits are lost are left out; where all are, the factor is 0.
    """
    if not bool((~found.norms.isnan()).any()):
        return torch.tensor(math.nan).double(), torch.tensor(0.0).double()
    factor = rates(found).where(found.norms >= LOST, 0.0)
    error = factor * found.errors.nan_to_num(0.0) / found.lags
    place = factor.flatten().argmax()
    return factor.flatten()[place], error.flatten()[place]


def _reading(one: Captured, part: Contraction) -> str:
    what = "vanishing is implied" if part.stretch < 1 else "explosion is allowed, not implied"
    if part.stretch == 1:
        what = "neither explosion nor, by it, vanishing"
    return f"{_named(one, part)}: {what} ({part.formula} = {part.stretch:.4g})"


def demo() -> Subject:
    """An Elman network of 8 units whose recurrent matrix is orthogonal, times .9."""
    subject = example(
        lambda: classifier(2, 2, hidden=8, recurrent_init="orthogonal"), (4, 30, 2), (30, 12, 0, 30)
    )
    with torch.no_grad():
        subject.model.recurrence.layer.weight_hh_l0 *= 0.9  # type: ignore[union-attr,operator]
    return subject


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
    batches = [
        Batch(tuple(x[:, :LAGS] if x.ndim > 1 else x.clamp_max(LAGS) for x in first_inputs(batch, EXAMPLES)))
        for batch in drawn_rows(subject.test, EXAMPLES).batches
    ]
    found = gated(replace(subject, model=in_double(subject.model), test=batches), *ANY)
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
        range=(0.0, math.inf),
        equals=0.0,
        tolerance=16 * LAGS * torch.finfo(torch.float64).eps,
        labels=tuple(one.name for one in found),
        premises=(bounded(found),),
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
        failure=failure if found else NOT_WHOLE,
        curves=curve,
    )
