"""Learning-rate schedules as pure functions of the step: factors of the first learning rate.

Nothing is remembered, so a resumed training follows the schedule of the unbroken one.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from margin.core.catalog import call_with, nearest, user_options

Schedule = Callable[[int], float]
"""The factor at a step."""

DROP = 0.1
"""What each drop of a staircase multiplies by, where nothing is given."""


def constant() -> Schedule:
    """The factor 1."""
    return lambda step: 1.0


def cosine(span: int) -> Schedule:
    """Half a cosine from 1 to 0: (1 + cos(pi t / span)) / 2, and 0 from then on.

    Args:
        span: Steps from the rise to the end.

    Reference: Loshchilov and Hutter (2017), "SGDR", Equation 5 with one period.
    """
    return lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / span)))


def linear(span: int) -> Schedule:
    """A straight line from 1 to 0, and 0 from then on.

    Args:
        span: Steps from the rise to the end.
    """
    return lambda step: 1 - min(1.0, step / span)


def step(*, every: float, factor: float = DROP) -> Schedule:
    """A staircase: factor^floor(t / every).

    Args:
        every: Steps between two drops, a whole number >= 1.
        factor: What each drop multiplies by, in (0, 1].

    Raises:
        ValueError: An option is out of range.
    """
    if every < 1 or every != int(every):
        raise ValueError(f"every must be a whole number of steps, at least 1: got {every}")
    _check_factor(factor)
    return lambda step: factor ** (step // int(every))


def exponential(*, factor: float) -> Schedule:
    """A geometric sequence: factor^t.

    Args:
        factor: What each step multiplies by, in (0, 1].

    Raises:
        ValueError: The factor is out of range.
    """
    _check_factor(factor)
    return lambda step: factor**step


def power(*, p: float, t0: float = 1.0) -> Schedule:
    """A power of the time: (1 + t / t0)^-p, whose sum and sum of squares Robbins and Monro ask about.

    Args:
        p: The exponent, >= 0; their conditions hold for 1/2 < p <= 1.
        t0: Steps after which the factor is 2^-p, > 0.

    Raises:
        ValueError: An option is out of range.

    Reference: Robbins and Monro (1951), "A stochastic approximation method".
    """
    if not 0 <= p < math.inf:
        raise ValueError(f"p must be at least 0 and finite: got {p}")
    if not 0 < t0 < math.inf:
        raise ValueError(f"t0 must be positive and finite: got {t0}")
    return lambda step: float((1 + step / t0) ** -p)


def inverse_sqrt(warmup: int) -> Schedule:
    """The inverse square root that joins the rise: sqrt(w / (t + w + 1)) after w steps of warmup.

    With the rise it is sqrt(w) min(n^-1/2, n w^-3/2) at the n-th step; without one it is n^-1/2.

    Args:
        warmup: Steps of the rise.

    Reference: Vaswani et al. (2017), "Attention is all you need", Equation 3, scaled to the peak 1.
    """
    peak = max(1, warmup)
    return lambda step: math.sqrt(peak / (step + warmup + 1))


_FACTORIES: Mapping[str, Callable[..., Schedule]] = {
    made.__name__: made for made in (constant, cosine, linear, step, exponential, power, inverse_sqrt)
}

SCHEDULES = tuple(_FACTORIES)
"""The names that :func:`schedule_of` knows."""


def schedule_of(name: str, *, total: int, warmup: int, options: Mapping[str, Any] | None = None) -> Schedule:
    """The factor of the learning rate at each step: a linear rise to 1, then the named shape.

    The rise is (t + 1) / warmup over ``warmup`` steps; the shape's own time begins after it.

    Args:
        name: One of ``SCHEDULES``: the shape after the rise.
        total: Steps of the training.
        warmup: Steps of the rise; 0 for none.
        options: The shape's own numbers.

    Raises:
        ValueError: There is no such schedule, or an option is missing, unknown or out of range.
    """
    if name not in _FACTORIES:
        near = ", ".join(nearest(name, SCHEDULES) or SCHEDULES)
        raise ValueError(f"unknown schedule {name!r}; nearest: {near}")
    factory, options = _FACTORIES[name], dict(options or {})
    parameters = inspect.signature(factory).parameters
    needed = [key for key in user_options(factory) if parameters[key].default is inspect.Parameter.empty]
    if missing := [key for key in needed if key not in options]:
        raise ValueError(f"the schedule {name} needs {' and '.join(missing)}: got {options or 'no options'}")
    given = {"span": max(1, total - warmup), "warmup": warmup}
    shape: Schedule = call_with(factory, given, options, f"the schedule {name}")
    return lambda step: (step + 1) / warmup if step < warmup else shape(step - warmup)


def plateau(values: Sequence[float], *, patience: float, factor: float) -> float:
    """The factor factor^n after n drops, where a drop follows more than ``patience`` values without a best.

    After a drop the count begins anew. A value that is not a number is no best. It is what
    ``torch.optim.lr_scheduler.ReduceLROnPlateau`` with threshold 0 makes of the same values.

    Args:
        values: What is watched, a value for each evaluation so far; less is better.
        patience: Evaluations in a row that may bring no best, a whole number >= 0; the next one drops.
        factor: What each drop multiplies by, in (0, 1].

    Raises:
        ValueError: An option is out of range.
    """
    if patience < 0 or patience != int(patience):
        raise ValueError(f"patience must be a whole number of evaluations, at least 0: got {patience}")
    _check_factor(factor)
    best, waited, drops = math.inf, 0, 0
    for value in values:
        if value < best:
            best, waited = value, 0
        else:
            waited += 1
        if waited > patience:
            waited, drops = 0, drops + 1
    return float(factor**drops)


def _check_factor(factor: float) -> None:
    if not 0 < factor <= 1:
        raise ValueError(f"factor must be in (0, 1]: got {factor}")
