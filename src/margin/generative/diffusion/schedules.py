"""Noise schedules of diffusion (Ho, Jain and Abbeel 2020): how much of the data is left after t steps.

All in float64: 1 - alpha_bar has digits to lose at both ends.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

Levels = Float64[Tensor, " times"]
Beta = Literal["linear", "cosine"]
Terminal = Literal["kept", "zero"]
Variance = Literal["small", "large"]
"""That of a step back: the posterior's, or beta_t: the ends of the interval in which the best one lies."""

REFERENCE = 1000
"""Steps of the chain whose beta are given for the linear schedule."""

LARGEST = 0.999
"""Where the cosine schedule cuts beta (Nichol and Dhariwal 2021, Section 3.2)."""

OFFSET = 0.008
"""The cosine schedule's s: beta is small, but not 0, at the first steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    r"""The variances of a chain of T steps that turns data into noise.

    .. math:: x_t = \sqrt{\alpha_t}\, x_{t-1} + \sqrt{\beta_t}\, z_t, \qquad
        \bar\alpha_t = \prod_{i \le t} \alpha_i, \qquad \beta_t = 1 - \alpha_t

    Args:
        alpha_bar: The T + 1 numbers, from alpha_bar_0 = 1, falling; the last may be 0, the others are above.

    Raises:
        ValueError: They are not so.

    Reference: Ho, Jain and Abbeel 2020, Equations 2 and 4.
    """

    alpha_bar: Levels

    def __post_init__(self) -> None:
        a = self.alpha_bar
        if len(a) < 2 or float(a[0]) != 1 or not bool((a.diff() < 0).all()) or not float(a[-1]) >= 0:
            shown = ", ".join(f"{x:g}" for x in a[:4].tolist())
            raise ValueError(
                f"alpha_bar must fall from 1, over at least one step, to no less than 0: got {shown}, ..."
            )

    @property
    def steps(self) -> int:
        """T, the number of steps."""
        return len(self.alpha_bar) - 1

    @property
    def alpha(self) -> Levels:
        """alpha_t of t = 0 .. T, with alpha_0 = 1."""
        return torch.cat((self.alpha_bar[:1], self.alpha_bar[1:] / self.alpha_bar[:-1]))

    @property
    def beta(self) -> Levels:
        """beta_t = 1 - alpha_t of t = 0 .. T, with beta_0 = 0."""
        return 1 - self.alpha


def linear_schedule(steps: int, *, first: float = 1e-4, last: float = 0.02) -> Schedule:
    r"""The schedule whose beta rises evenly over 1000 steps, seen at ``steps`` of them.

    .. math:: \bar\alpha_t = \bar a(1000\, t / T), \qquad \log \bar a(i) = \sum_{j \le i} \log(1 - b_j),
        \quad b_j \text{ even from first to last}, \quad j = 1 .. 1000

    with log a linear between whole i. At T = 1000 it is Ho's; where T divides 1000, every (1000 / T)-th step
    of his; alpha_bar_T is 4.04e-5 at every T. (To multiply beta by 1000 / T has no sense below T = 20.)

    Args:
        steps: T, at least 1.
        first: beta of the first of 1000 steps, in (0, last].
        last: beta of the last, below 1.

    Raises:
        ValueError: An option is out of range.

    Reference: Ho, Jain and Abbeel 2020, Section 4.
    """
    check_steps(steps)
    if not 0 < first <= last < 1:
        raise ValueError(f"a linear schedule needs 0 < first <= last < 1: got first={first:g}, last={last:g}")
    beta = torch.linspace(first, last, REFERENCE, dtype=torch.float64)
    logs = torch.cat((beta.new_zeros(1), torch.log1p(-beta).cumsum(0)))
    if steps == REFERENCE:
        return Schedule(logs.exp())
    at = torch.arange(steps + 1, dtype=torch.float64) * REFERENCE / steps
    below = at.floor().long().clamp_max(REFERENCE - 1)
    return Schedule(torch.lerp(logs[below], logs[below + 1], at - below).exp())


def cosine_schedule(steps: int) -> Schedule:
    r"""The schedule of a squared cosine, its beta cut at .999.

    .. math:: \bar\alpha_t = f(t) / f(0), \qquad
        f(t) = \cos^2\left(\frac{t / T + s}{1 + s} \cdot \frac\pi2\right), \quad s = .008

    Args:
        steps: T, at least 1.

    Raises:
        ValueError: There is no step.

    Reference: Nichol and Dhariwal 2021, Equation 17.
    """
    check_steps(steps)
    at = torch.arange(steps + 1, dtype=torch.float64) / steps
    f = ((at + OFFSET) / (1 + OFFSET) * (math.pi / 2)).cos().square()
    beta = (1 - f[1:] / f[:-1]).clamp_max(LARGEST)
    return Schedule(torch.cat((f.new_ones(1), (1 - beta).cumprod(0))))


def zero_terminal(schedule: Schedule) -> Schedule:
    r"""The schedule shifted and stretched so that nothing of the data is left at T, and x_1 is as it was.

    .. math:: \sqrt{\bar\alpha'_t} = \left(\sqrt{\bar\alpha_t} - \sqrt{\bar\alpha_T}\right)
        \frac{\sqrt{\bar\alpha_1}}{\sqrt{\bar\alpha_1} - \sqrt{\bar\alpha_T}}, \qquad t \ge 1

    A network that predicts the noise cannot tell x_0 at T from it: it needs "v" or "x0".

    Args:
        schedule: Of two steps or more.

    Raises:
        ValueError: There is one step only.

    Reference: Lin, Liu, Li and Yang 2024, Algorithm 1.
    """
    if schedule.steps < 2:
        raise ValueError("a terminal signal of 0 with the first step kept needs two steps or more: got 1")
    root = schedule.alpha_bar[1:].sqrt()
    moved = (root - root[-1]) * (root[0] / (root[0] - root[-1]))
    return Schedule(torch.cat((root.new_ones(1), schedule.alpha_bar[1:2], moved[1:].square())))


def schedule_of(steps: int, beta: Beta, terminal: Terminal) -> Schedule:
    """The schedule of a model's options.

    Args:
        steps: T.
        beta: Linear or cosine.
        terminal: What of the data is left at T: what the schedule leaves (kept), or nothing (zero).

    Raises:
        ValueError: An option is out of range.
    """
    schedule = linear_schedule(steps) if beta == "linear" else cosine_schedule(steps)
    return schedule if terminal == "kept" else zero_terminal(schedule)


def strided(schedule: Schedule, steps: int) -> Int64[Tensor, " steps"]:
    """The times at which a sampler of so many steps stops: evenly from T down to 1, rounded.

    Args:
        schedule: Of T steps.
        steps: How many times, from 1 (T alone) to T (all).

    Raises:
        ValueError: There are more than T, or none.

    Reference: Nichol and Dhariwal 2021, Section 4; Lin, Liu, Li and Yang 2024, Table 2 (linspace).
    """
    check_stops(schedule, steps)
    return torch.linspace(schedule.steps, 1, steps, dtype=torch.float64).round().long()


def strided_by_ratio(schedule: Schedule, steps: int) -> Int64[Tensor, " steps"]:
    r"""The times at which log(signal / noise) is nearest to even values from T down to 1.

    .. math:: \lambda_t = \tfrac12 \log\frac{\bar\alpha_t}{1 - \bar\alpha_t}

    A method that draws a line through two values against lambda needs strides that do not jump. Where even
    values are closer than the times, the times follow one another. A last alpha_bar of 0, where lambda is
    infinite, is a stop, and the others are even from T - 1.

    Args:
        schedule: Of T steps.
        steps: How many times, from 1 (T alone) to T (all).

    Raises:
        ValueError: There are more than T, or none.

    Reference: Lu, Zhou, Bao, Chen, Li and Zhu 2022 (DPM-Solver), Section 4.2 (uniform lambda).
    """
    check_stops(schedule, steps)
    place = torch.logit(schedule.alpha_bar[1:]) / 2
    first = schedule.steps - int(float(schedule.alpha_bar[-1]) == 0)
    stops = [schedule.steps] * (schedule.steps - first)
    left = steps - len(stops)
    for k, wanted in enumerate(torch.linspace(float(place[first - 1]), float(place[0]), left).tolist()):
        nearest = int((place - wanted).abs().argmin()) + 1
        stops.append(max(min(nearest, stops[-1] - 1 if stops else first), left - k))
    return torch.tensor(stops)


def check_stops(schedule: Schedule, steps: int) -> None:
    """Refuse more stops than the chain has, or none.

    Raises:
        ValueError: They are not from 1 to T.
    """
    if not 1 <= steps <= schedule.steps:
        raise ValueError(f"steps must be from 1 to the {schedule.steps:,} of the schedule: got {steps}")


def check_steps(steps: int) -> None:
    """Refuse a chain without steps.

    Raises:
        ValueError: There is none.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1: got {steps}")
