"""How gradients fare over time in a model: by lag, and below the bound that makes them vanish."""

import math

import torch
from torch import Tensor, nn

from margin.core.findings import Finding, Subject
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.evaluation import eval_mode
from margin.engine.loop import risk
from margin.nn.recurrence import Recurrence
from margin.sequence.dynamics.contraction import Contraction, contractions, simple, step_is_its_own
from margin.sequence.dynamics.gradient_by_lag import LOST, ByLag, by_lag, rates
from margin.sequence.recurrent.elman import classifier
from margin.sequence.recurrent.heard import NOT_WHOLE, TOO_SHORT, Heard, causal_ones, heard

ROUNDING = 1e-9
"""Relative, of a norm in float64 and of the bound itself."""

REFERENCE = (
    "Pascanu, Mikolov and Bengio 2013, Section 2.1; Goodfellow, Bengio and Courville 2016, Section 10.7"
)


def feeding_back(model: nn.Module) -> list[tuple[str, Recurrence]]:
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
    return len(subject.test) > 0 and len(feeding_back(subject.model)) > 0


def has_bound(subject: Subject) -> bool:
    """Whether a layer's step is a phi of an affine map of its state, and there are held-out examples."""
    return len(subject.test) > 0 and len(simple(subject.model)) > 0


def measured(one: Heard, part: slice | None = None, block: int = 0) -> ByLag:
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
    layers = heard(subject, feeding_back)
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
        unit="1",
        range=(0.0, math.inf),
        kind="exact" if exact else "estimate",
        interval=None if exact else (value - error, value + error),
        labels=names,
        premises=(),
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
    layers = heard(subject, simple)
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
        unit="1",
        range=(0.0, math.inf),
        kind="exact" if exact else "estimate",
        interval=None if exact else (value - error, value + error),
        high=high if each else None,
        labels=names,
        premises=tuple(step_is_its_own(one) for one in layers),
        reference=REFERENCE,
        failure=_failure(names, [found for *_, found in each]),
        curves=curves,
    )


def _shown(one: Heard) -> str:
    return one.name.removeprefix("model.")


def _named(one: Heard, part: Contraction) -> str:
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


def _reading(one: Heard, part: Contraction) -> str:
    what = "vanishing is implied" if part.stretch < 1 else "explosion is allowed, not implied"
    if part.stretch == 1:
        what = "neither explosion nor, by it, vanishing"
    return f"{_named(one, part)}: {what} ({part.formula} = {part.stretch:.4g})"


def demo() -> Subject:
    """An Elman network of 8 units whose recurrent matrix is orthogonal, times .9."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = classifier(2, 2, hidden=8, recurrent_init="orthogonal")
    with torch.no_grad():
        model.recurrence.layer.weight_hh_l0 *= 0.9  # type: ignore[union-attr,operator]
    x = torch.randn(4, 30, 2, generator=torch.Generator().manual_seed(0))
    batch = Batch((x, torch.tensor([30, 12, 0, 30])), torch.arange(4) % 2)
    return Subject(model=model, test=[batch], task=CLASSES, objective=risk(CLASSES))
