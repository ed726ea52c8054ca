"""Whether a training was finished: the slope of the loss over its last quarter, with an honest error.

Losses of a training are a trend with noise that lasts from one evaluation to the next: the error of a slope
that takes them for independent is too small. Here it is that of noise of as long a memory, by simulation.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from margin.core.findings import Finding, Premise, Subject
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import risk

FEWEST = 8
"""Evaluations in the stretch whose slope is measured, at least."""

DRAWS, SEED = 4000, 1998
LONGEST = 0.95
"""The largest correlation of one evaluation's noise with the next that is allowed for."""

LONGEST_STRETCH = 500
"""Evaluations in it at most."""

STATIONARY = Premise(
    "in its last stretch the loss is a line and noise of one memory",
    "assumed",
    "what is curved or lasts otherwise counts as noise",
)


class Slope(NamedTuple):
    """A least-squares slope with its interval, and the correlation of the noise of neighbors."""

    value: float
    low: float
    high: float
    correlation: float


def _fit(x: Float[Tensor, " n"], y: Float[Tensor, "*draws n"]) -> tuple[Tensor, Tensor, Tensor]:
    """The slope of each series over x, its standard error were the noise independent, and what is left."""
    d, off = x - x.mean(), y - y.mean(-1, keepdim=True)
    slope = off @ d / d.square().sum()
    left = off - slope[..., None] * d
    stderr = (left.square().sum(-1) / (len(x) - 2) / d.square().sum()).sqrt()
    return slope, stderr, left


def correlation_of(left: Float[Tensor, " n"]) -> float:
    r"""The correlation of neighbors that residuals of a line allow for, a standard error above the likeliest.

    .. math:: r = \frac{\sum_t u_t u_{t+1}}{\sum_t u_t^2}, \quad \rho = \frac{n r + 2}{n - 4}, \quad
        \rho + \sqrt{(1 - \rho^2) / n}

    from 0 to .95: of residuals of a line r lies below the noise's by (2 + 4 rho) / n, and few of them hardly
    tell how long the noise lasts.

    Reference: Kendall 1954 (the bias where a mean is removed; a line removes as much again).
    """
    n, total = len(left), float(left.square().sum())
    if not total > 0:
        return 0.0
    r = float(left[1:] @ left[:-1]) / total
    rho = min(max((n * r + 2) / (n - 4), 0.0), LONGEST)
    return min(rho + math.sqrt((1 - rho**2) / n), LONGEST)


def critical_value(x: Float[Tensor, " n"], correlation: float, *, level: float = 0.95) -> float:
    """How many standard errors of independent noise a slope of noise with this memory is off, at most.

    The share ``level`` of seeded series of stationary normal noise of the first order keeps within it. Of
    correlation 0 it is Student's quantile of n - 2 degrees of freedom.

    Args:
        x: Where the series are observed, in the order of the noise.
        correlation: Of the noise at one place with that at the next, in [0, 1).
        level: The share, in (0, 1).

    Reference: Davidson and MacKinnon 1999, Section 2 (a simulated quantile of a t statistic).
    """
    generator = Generator().manual_seed(SEED)
    shocks = torch.randn(DRAWS, len(x), generator=generator, dtype=torch.float64)
    noise = torch.empty_like(shocks)
    noise[:, 0] = shocks[:, 0]
    for t in range(1, len(x)):
        noise[:, t] = correlation * noise[:, t - 1] + math.sqrt(1 - correlation**2) * shocks[:, t]
    slope, stderr, _ = _fit(x, noise)
    return float((slope.abs() / stderr).quantile(level))


def slope_of(x: Float[Tensor, " n"], y: Float[Tensor, " n"], *, level: float = 0.95) -> Slope:
    """The slope of a series with an interval that allows for noise that lasts.

    Args:
        x: Where it is observed, increasing, at least 8 places.
        y: The series, finite.
        level: Intended probability of covering the slope, in (0, 1).
    """
    value, stderr, left = (part.squeeze(0) for part in _fit(x, y[None]))
    correlation = correlation_of(left)
    half = critical_value(x, correlation, level=level) * float(stderr)
    return Slope(float(value), float(value) - half, float(value) + half, correlation)


def losses_of(subject: Subject) -> tuple[str, Tensor, Tensor]:
    """Which loss the history holds, the validation's where it does, and its steps and values.

    Values that are not finite are among them.
    """
    for key, words in (("val_loss", "validation loss"), ("train_loss", "training loss")):
        rows = [
            (row["step"], row[key]) for row in subject.history if _number(row, key) and _number(row, "step")
        ]
        if len(rows) >= FEWEST:
            steps, losses = torch.tensor(rows, dtype=torch.float64).unbind(1)
            return words, steps, losses
    return "loss", torch.zeros(0), torch.zeros(0)


def _number(row: Mapping[str, Any], key: str) -> bool:
    return isinstance(row.get(key), int | float)


def has_losses(subject: Subject) -> bool:
    """Whether the history holds enough losses for a slope, at steps that increase."""
    _, steps, _ = losses_of(subject)
    return len(steps) >= FEWEST and bool((steps.diff() > 0).all())


def last_stretch(count: int) -> int:
    """How many of so many evaluations the slope is of."""
    return min(max(FEWEST, count // 4), LONGEST_STRETCH)


def falling(subject: Subject) -> Finding:
    """The slope of the loss at the end of the training, per 1,000 steps: below 0 it was still falling.

    It is that of the line through the last quarter of the evaluations, of eight at least and of 500 at
    most. The interval is wide where few evaluations tell how long noise lasts; of 10 whose noise has a
    correlation of .8 from one to the next it holds the slope in 88 % of trainings, else in 93 % or more.

    Args:
        subject: A model with a history of at least 8 losses.

    Reference: Davidson and MacKinnon 1999, Section 2 (a simulated t statistic); Kendall 1954 (its
    correlation).
    """
    words, steps, losses = losses_of(subject)
    stretch = last_stretch(len(steps))
    x, y = steps[-stretch:], losses[-stretch:]
    bad = ~y.isfinite()
    failure = f"the {words} is not finite at step {x[bad][0]:.0f}" if bool(bad.any()) else ""
    found = Slope(*(math.nan,) * 4) if failure else slope_of(x / 1000, y)
    value, low, high = (torch.tensor(z, dtype=torch.float64) for z in found[:3])
    moved = float(value) * float(x[-1] - x[0]) / 1000
    said = f"Along its line the {words} changed by {moved:.2g} in that stretch, of {y.mean():.3g} on average."
    return Finding(
        statement=f"The slope of the {words} over the last {stretch} of {len(steps):,} evaluations, from "
        f"step {x[0]:,.0f} to {x[-1]:,.0f}: below 0 it was still falling.",
        value=value,
        unit="loss / 1,000 steps",
        range=(-math.inf, math.inf),
        premises=(STATIONARY,),
        kind="estimate",
        interval=(low, high),
        failure=failure,
        remarks=() if failure else (said,),
        curves={"step": steps, words: losses},
    )


def demo() -> Subject:
    """A validation loss that falls by .2 every 1,000 steps, with ripples of 1/100, every 100 steps."""
    history = [
        {"step": 100 * k, "val_loss": 3 - 0.02 * k + 0.01 * (-1) ** (k // 2), "lr": 0.1} for k in range(1, 41)
    ]
    batch = Batch((torch.ones(2, 1),), torch.ones(2, 1))
    return Subject(model=nn.Linear(1, 1), test=[batch], task=VALUES, objective=risk(VALUES), history=history)
