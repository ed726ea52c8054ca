r"""Stochastic gradient descent: its rates, its floor at a constant step, and when it arrives at all.

.. math:: \theta_{t+1} = \theta_t - \alpha_t g_t, \qquad E[g_t \mid \theta_t] = \nabla h(\theta_t)

For convex Lipschitz h and alpha ~ 1/sqrt t the averaged iterate is O(1/sqrt t) from the minimum; for strongly
convex h and alpha = 1/(mu t) O(1/t) where it is smooth or the later iterates are averaged, else O(log t / t).
(Robbins and Monro 1951; Nemirovski, Juditsky, Lan and Shapiro 2009; Shamir and Zhang 2013.)
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Noisy = Callable[[Tensor], Tensor]
"""``theta of shape (runs, dim) -> an unbiased gradient of each run``, from a generator of its own."""

Rate = Callable[[int], float]
"""Step t = 1, 2, ... to its rate alpha_t."""


class Trace(NamedTuple):
    """What was seen of independent runs after given numbers of steps.

    Args:
        last: The iterates theta_t.
        mean: The mean of theta_0 .. theta_{t-1}, each weighed by its rate.
        late: The mean of the later half, theta_{t/2} .. theta_{t-1}, all alike.
        value: The mean of h(theta_0) .. h(theta_{t-1}), weighed by the rates; NaN where h was not given.
    """

    last: Float[Tensor, "times runs dim"]
    mean: Float[Tensor, "times runs dim"]
    late: Float[Tensor, "times runs dim"]
    value: Float[Tensor, "times runs"]


def stochastic_descent(
    gradient: Noisy,
    start: Float[Tensor, "runs dim"],
    rate: Rate,
    at: Sequence[int],
    *,
    value: Callable[[Tensor], Tensor] | None = None,
) -> Trace:
    """Runs of stochastic gradient descent side by side.

    Args:
        gradient: An unbiased gradient at each run's weights.
        start: theta_0 of each run.
        rate: alpha_t.
        at: Numbers of steps after which the runs are looked at, increasing, the first at least 1.
        value: h of each run's weights.

    Raises:
        ValueError: ``at`` does not increase from 1 on.
    """
    if not at or at[0] < 1 or any(b <= a for a, b in pairwise(at)):
        raise ValueError(f"at must increase from 1 or more: got {list(at)}")
    theta, weight = start.clone(), 0.0
    mean, total = torch.zeros_like(start), torch.zeros(len(start), dtype=start.dtype)
    sums, halves = torch.zeros_like(start), {t // 2: start.new_zeros(start.shape) for t in at}
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for t in range(1, at[-1] + 1):
        if t - 1 in halves:
            halves[t - 1] = sums.clone()
        alpha = rate(t)
        mean += alpha * theta
        total += alpha * value(theta) if value is not None else math.nan
        sums += theta
        weight += alpha
        theta = theta - alpha * gradient(theta)
        if t == at[len(seen)]:
            late = (sums - halves[t // 2]) / (t - t // 2)
            seen.append((theta, mean / weight, late, total / weight))
    last, means, lates, values = (torch.stack(column) for column in zip(*seen, strict=True))
    return Trace(last, means, lates, values)


def lipschitz_bound(distance: float, G: float, rates: Sequence[float]) -> float:
    r"""The bound on E h - h* at the mean of the iterates, weighed by the rates, for a convex h.

    .. math:: E\, h(\bar\theta) - h^* \le
        \frac{|\theta_0 - \theta^*|^2 + G^2 \sum_t \alpha_t^2}{2 \sum_t \alpha_t}

    With alpha = c / sqrt t it is of the order of log t / sqrt t, with a constant c / sqrt T of 1 / sqrt T.

    Args:
        distance: \|theta_0 - theta*\|, >= 0.
        G: sqrt(E \|g\|^2), or more.
        rates: alpha_1 .. alpha_T, positive.

    Raises:
        ValueError: A rate is not positive, or there is none.

    Reference: Nemirovski, Juditsky, Lan and Shapiro 2009, Section 2.2 (robust stochastic approximation).
    """
    if not rates or not all(0 < alpha < math.inf for alpha in rates):
        raise ValueError(f"rates must be positive and finite, one at least: got {list(rates)[:5]}")
    return (distance**2 + G**2 * math.fsum(a * a for a in rates)) / (2 * math.fsum(rates))


def noise_floor(eta: float, curvature: float, variance: float) -> float:
    r"""The expected gap at which a constant step stalls on lambda x^2 / 2 with noisy gradients.

    .. math:: \lim_t E\, h(\theta_t) = \frac{\eta \sigma^2}{2 (2 - \eta \lambda)} \approx \eta \sigma^2 / 4

    Args:
        eta: The constant step, in (0, 2 / lambda).
        curvature: lambda > 0.
        variance: sigma^2 of the gradient's noise, >= 0.

    Raises:
        ValueError: An argument is out of range: from eta = 2 / lambda on the iterates diverge.

    Reference: Bottou, Curtis and Nocedal 2018, Theorem 4.6 (of which this is the exact scalar case).
    """
    if not (curvature > 0 and 0 < eta < 2 / curvature and variance >= 0):
        raise ValueError(
            f"eta must lie in (0, 2 / curvature), variance be >= 0: got eta={eta:g}, "
            f"curvature={curvature:g}, variance={variance:g}"
        )
    return eta * variance / (2 * (2 - eta * curvature))


class Moments(NamedTuple):
    """Mean and variance of an iterate: E x^2 is mean^2 + variance."""

    mean: float
    variance: float


def moments(
    rate: Rate, steps: int, *, start: float, curvature: float = 1.0, variance: float = 1.0
) -> Moments:
    r"""The exact mean and variance of x_T on lambda x^2 / 2, each gradient with noise of variance sigma^2.

    .. math:: m_{t+1} = (1 - \alpha_t \lambda) m_t, \qquad
        v_{t+1} = (1 - \alpha_t \lambda)^2 v_t + \alpha_t^2 \sigma^2

    Both go to 0 under the conditions of Robbins and Monro. Where sum alpha converges the mean stops short,
    where sum alpha^2 does not the variance may stay.

    Args:
        rate: alpha_t for t = 1, 2, ...
        steps: T >= 0.
        start: x_0.
        curvature: lambda.
        variance: sigma^2.

    Reference: Robbins and Monro 1951, Theorem 1.
    """
    mean, spread = start, 0.0
    for t in range(1, steps + 1):
        alpha = rate(t)
        mean, spread = (
            (1 - alpha * curvature) * mean,
            (1 - alpha * curvature) ** 2 * spread + alpha**2 * variance,
        )
    return Moments(mean, spread)
