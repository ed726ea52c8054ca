"""The forward process of diffusion (Sohl-Dickstein et al. 2015; Ho, Jain and Abbeel 2020): data to noise.

Noise schedules say how much of the data is left after t steps; parametrizations say what a network predicts
of a noisy point (the noise, the data, or the velocity between them: Salimans and Ho 2022); jump and chain add
the noise, and the posterior is the law of an earlier step given a later one and the data. Schedules are in
float64: 1 - alpha_bar has digits to lose at both ends.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor

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
    r"""The schedule whose beta rises evenly over 1000 steps, sampled at ``steps`` of them.

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


Parametrization = Literal["eps", "x0", "v"]

Points = Float[Tensor, "*shape"]
"""Points with any axes; the first, if any, is the example."""

Level = Float[Tensor, " *batch"]
"""alpha_bar of each example, or one of all (no axes); in float64 to keep the digits of 1 - alpha_bar."""


def roots(alpha_bar_t: Level, like: Points) -> tuple[Tensor, Tensor]:
    r"""The factors of data and noise, :math:`\sqrt{\bar\alpha_t}` and :math:`\sqrt{1 - \bar\alpha_t}`.

    Args:
        alpha_bar_t: In [0, 1], one of each example or one of all.
        like: What they shall multiply: they come in its type, with as many axes.
    """
    shape = (-1,) + (1,) * (like.ndim - 1) if alpha_bar_t.ndim else ()
    level = alpha_bar_t.reshape(shape)
    return level.sqrt().to(like), (1 - level).sqrt().to(like)


def target(x0: Points, eps: Points, alpha_bar_t: Level, kind: Parametrization) -> Points:
    r"""What the network is to answer.

    .. math:: \epsilon, \qquad x_0, \qquad v = \sqrt{\bar\alpha_t}\, \epsilon - \sqrt{1 - \bar\alpha_t}\, x_0

    Args:
        x0: Data.
        eps: The noise that was added, of the same shape.
        alpha_bar_t: Of each example, or one of all.
        kind: Which of the three.

    Reference: Salimans and Ho 2022, Section 4.
    """
    if kind == "eps":
        return eps
    if kind == "x0":
        return x0
    signal, noise = roots(alpha_bar_t, x0)
    return signal * eps - noise * x0


def to_eps(output: Points, x_t: Points, alpha_bar_t: Level, kind: Parametrization) -> Points:
    r"""The noise that a network's answer implies.

    .. math:: \epsilon, \qquad \frac{x_t - \sqrt{\bar\alpha_t}\, x_0}{\sqrt{1 - \bar\alpha_t}}, \qquad
        \sqrt{1 - \bar\alpha_t}\, x_t + \sqrt{\bar\alpha_t}\, v

    Args:
        output: What the network answered at x_t.
        x_t: Noisy data.
        alpha_bar_t: Of each example, or one of all.
        kind: What the answer is.

    Raises:
        ValueError: The answer is x_0 where nothing was added: then no noise explains x_t.
    """
    if kind == "eps":
        return output
    signal, noise = roots(alpha_bar_t, x_t)
    if kind == "v":
        return noise * x_t + signal * output
    if bool((noise == 0).any()):
        raise ValueError("the noise follows from x0 only where there is some: got alpha_bar = 1 (t = 0)")
    return (x_t - signal * output) / noise


def to_x0(output: Points, x_t: Points, alpha_bar_t: Level, kind: Parametrization) -> Points:
    r"""The data that a network's answer implies.

    .. math:: \frac{x_t - \sqrt{1 - \bar\alpha_t}\, \epsilon}{\sqrt{\bar\alpha_t}}, \qquad x_0, \qquad
        \sqrt{\bar\alpha_t}\, x_t - \sqrt{1 - \bar\alpha_t}\, v

    Args:
        output: What the network answered at x_t.
        x_t: Noisy data.
        alpha_bar_t: Of each example, or one of all.
        kind: What the answer is.

    Raises:
        ValueError: The answer is the noise where no data are left: any x_0 would fit.
    """
    if kind == "x0":
        return output
    signal, noise = roots(alpha_bar_t, x_t)
    if kind == "v":
        return signal * x_t - noise * output
    if bool((signal == 0).any()):
        raise ValueError(f"{NO_SIGNAL}: got alpha_bar = 0")
    return (x_t - noise * output) / signal


NO_SIGNAL = 'the data follow from "eps" only where alpha_bar is above 0; predict "v" or "x0"'
"""The rule of a network that predicts the noise."""


def check_terminal(schedule: Schedule, kind: Parametrization) -> None:
    """Refuse a network that predicts the noise where nothing else is left at the end.

    Raises:
        ValueError: alpha_bar_T is 0 (or rounds to it in float32) and the kind is "eps".

    Reference: Lin, Liu, Li and Yang 2024, Section 3.1.
    """
    last = float(schedule.alpha_bar[-1])
    if kind == "eps" and last < torch.finfo(torch.float32).tiny:
        raise ValueError(f"{NO_SIGNAL}: got a schedule that ends with alpha_bar = {last:g}")


def jump(x0: Points, eps: Points, alpha_bar_t: Level) -> Points:
    r"""x_t at once: :math:`\sqrt{\bar\alpha_t}\, x_0 + \sqrt{1 - \bar\alpha_t}\, \epsilon`.

    Args:
        x0: Data.
        eps: Noise of the law N(0, I): all that was added on the way, not that of the last step.
        alpha_bar_t: Of each example, or one of all.

    Reference: Ho, Jain and Abbeel 2020, Equation 4.
    """
    signal, noise = roots(alpha_bar_t, x0)
    return signal * x0 + noise * eps


def chain(
    x0: Float[Tensor, " batch *shape"], schedule: Schedule, generator: Generator
) -> Float[Tensor, " times batch *shape"]:
    r"""x_0 .. x_T step by step: :math:`x_t = \sqrt{1 - \beta_t}\, x_{t-1} + \sqrt{\beta_t}\, z_t`.

    Args:
        x0: Data.
        schedule: Of T steps.
        generator: Where the z_t are drawn from.

    Reference: Ho, Jain and Abbeel 2020, Equation 2.
    """
    states = [x0]
    for alpha in schedule.alpha[1:]:
        z = torch.randn(x0.shape, generator=generator, dtype=x0.dtype).to(x0)
        states.append(jump(states[-1], z, alpha))
    return torch.stack(states)


def posterior(x0: Points, x_t: Points, alpha_bar_t: Level, alpha_bar_s: Level) -> tuple[Points, Level]:
    r"""Mean and variance of x_s given x_t and x_0, of an earlier time s < t.

    With :math:`\alpha = \bar\alpha_t / \bar\alpha_s` and :math:`\beta = 1 - \alpha`, those of step t if
    s = t - 1,

    .. math:: \tilde\mu = \frac{\sqrt{\bar\alpha_s}\, \beta}{1 - \bar\alpha_t}\, x_0
        + \frac{\sqrt{\alpha}\, (1 - \bar\alpha_s)}{1 - \bar\alpha_t}\, x_t, \qquad
        \tilde\beta = \frac{1 - \bar\alpha_s}{1 - \bar\alpha_t}\, \beta

    Args:
        x0: Data.
        x_t: Noisy data.
        alpha_bar_t: Of each example, or one of all; below 1.
        alpha_bar_s: Likewise, above alpha_bar_t.

    Reference: Ho, Jain and Abbeel 2020, Equations 6 and 7.
    """
    of_x0, of_x_t, variance = posterior_factors(alpha_bar_t, alpha_bar_s)
    return spread(of_x0, x0) * x0 + spread(of_x_t, x_t) * x_t, variance


def posterior_factors(alpha_bar_t: Level, alpha_bar_s: Level) -> tuple[Level, Level, Level]:
    """What x_0 and x_t are multiplied by in the mean of :func:`posterior`, and its variance."""
    alpha, left = alpha_bar_t / alpha_bar_s, 1 - alpha_bar_t
    kept = (1 - alpha_bar_s) / left
    return alpha_bar_s.sqrt() * (1 - alpha) / left, alpha.sqrt() * kept, kept * (1 - alpha)


def posterior_mean(eps: Points, x_t: Points, alpha_bar_t: Level, alpha_bar_s: Level) -> Points:
    r"""The mean of :func:`posterior` by the noise instead of x_0.

    .. math:: \tilde\mu = \frac1{\sqrt{\alpha}}
        \left(x_t - \frac{\beta}{\sqrt{1 - \bar\alpha_t}}\, \epsilon\right)

    Args:
        eps: The noise in x_t.
        x_t: Noisy data.
        alpha_bar_t: Of each example, or one of all; in (0, 1).
        alpha_bar_s: Likewise, above alpha_bar_t.

    Reference: Ho, Jain and Abbeel 2020, Equation 11.
    """
    alpha = alpha_bar_t / alpha_bar_s
    factor = (1 - alpha) / (1 - alpha_bar_t).sqrt()
    return (x_t - spread(factor, x_t) * eps) / spread(alpha.sqrt(), x_t)


def bayes(x0: Points, x_t: Points, alpha_bar_t: Level, alpha_bar_s: Level) -> tuple[Points, Level]:
    r"""Mean and variance of :func:`posterior` by Bayes' rule: precisions add, means are weighted by them.

    .. math:: \frac1{\tilde\beta} = \frac1{1 - \bar\alpha_s} + \frac{\alpha}{\beta}, \qquad
        \frac{\tilde\mu}{\tilde\beta} = \frac{\sqrt{\bar\alpha_s}\, x_0}{1 - \bar\alpha_s}
        + \frac{\sqrt{\alpha}\, x_t}{\beta}

    Args:
        x0: Data.
        x_t: Noisy data.
        alpha_bar_t: Of each example, or one of all.
        alpha_bar_s: Likewise, above alpha_bar_t and below 1: at s = 0 x_s is x_0 itself.

    Reference: Sohl-Dickstein, Weiss, Maheswaranathan and Ganguli 2015, Section 2.2.
    """
    alpha = alpha_bar_t / alpha_bar_s
    prior, evidence = 1 / (1 - alpha_bar_s), alpha / (1 - alpha)
    variance = 1 / (prior + evidence)
    of_x0 = variance * prior * alpha_bar_s.sqrt()
    of_x_t = variance * alpha.sqrt() / (1 - alpha)
    return spread(of_x0, x0) * x0 + spread(of_x_t, x_t) * x_t, variance


def energy(first: float, schedule: Schedule, dim: int) -> Float64[Tensor, " times"]:
    r"""The mean square norm :math:`E\|x_t\|^2 = \alpha_t E\|x_{t-1}\|^2 + \beta_t d` of t = 0 .. T.

    It tends to d, and stays there if it begins there.

    Args:
        first: E|x_0|^2.
        schedule: Of T steps.
        dim: d, numbers of an example.

    Reference: Ho, Jain and Abbeel 2020, Equation 2 (its second moment).
    """
    return schedule.alpha_bar * first + (1 - schedule.alpha_bar) * dim


def spread(factor: Level, like: Points) -> Tensor:
    """A factor of each example (or one of all) in the type of what it multiplies, with as many axes."""
    return factor.reshape((-1,) + (1,) * (like.ndim - 1) if factor.ndim else ()).to(like)
