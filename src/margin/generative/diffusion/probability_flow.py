r"""The probability-flow equation of diffusion (Song et al. 2021): paths without noise that have its laws.

.. math:: \frac{dx}{d \log \bar\alpha}
    = \frac12 \left(x - \frac{\epsilon(x, t)}{\sqrt{1 - \bar\alpha}}\right), \qquad\text{that is}\qquad
    \frac{dy}{d\varsigma} = \epsilon, \quad
    y = \frac{x}{\sqrt{\bar\alpha}}, \quad \varsigma = \sqrt{\frac{1 - \bar\alpha}{\bar\alpha}}

The methods divide the path by the chain's time, by the noise-to-signal ratio, or by its logarithm. Euler's by
the ratio is DDIM with eta = 0.
"""

import math
from itertools import pairwise

from jaxtyping import Float, Int64
from torch import Tensor

from margin.generative.diffusion.ddpm import Denoise
from margin.generative.diffusion.parametrizations import to_x0
from margin.generative.diffusion.schedules import Schedule

Points = Float[Tensor, " batch *shape"]
Times = Int64[Tensor, " steps"]


def euler(eps: Denoise, schedule: Schedule, x_T: Points, *, times: Times) -> Points:
    r"""Points x_0 by Euler's method in the chain's own time: order 1, a pass of the network a step.

    .. math:: x_s = x_t + \tfrac12 \log\frac{\bar\alpha_s}{\bar\alpha_t}
        \left(x_t - \frac{\epsilon}{\sqrt{1 - \bar\alpha_t}}\right)

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the path begins, of the time ``times[0]``, where alpha_bar is above 0.
        times: Falling, the last at least 1.

    Reference: Song et al. 2021, Equation 13, for the variance-preserving equation.
    """
    x, stops = x_T, [*times.tolist(), 0]
    for t, s in pairwise(stops):
        level, before = float(schedule.alpha_bar[t]), float(schedule.alpha_bar[s])
        x = x + 0.5 * math.log(before / level) * (x - eps(x, t) / math.sqrt(1 - level))
    return x


def heun(eps: Denoise, schedule: Schedule, x_T: Points, *, times: Times) -> Points:
    r"""Points x_0 by Heun's method in the noise-to-signal ratio: order 2, two passes a step but the last.

    .. math:: y' = y_t + (\varsigma_s - \varsigma_t)\, \epsilon(y_t), \qquad
        y_s = y_t + \tfrac12 (\varsigma_s - \varsigma_t) (\epsilon(y_t) + \epsilon(y'))

    The last step is Euler's: there is nothing to predict where there is no noise.

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the path begins, of the time ``times[0]``, where alpha_bar is above 0.
        times: Falling, the last at least 1.

    Reference: Karras, Aittala, Aila and Laine 2022, Algorithm 1 (no noise added).
    """
    x, stops = x_T, [*times.tolist(), 0]
    for t, s in pairwise(stops):
        (signal, ratio), (signal_s, ratio_s) = _signal(schedule, t), _signal(schedule, s)
        slope = eps(x, t)
        x_s = signal_s * (x / signal + (ratio_s - ratio) * slope)
        if s > 0:
            mean = (slope + eps(x_s, s)) / 2
            x_s = signal_s * (x / signal + (ratio_s - ratio) * mean)
        x = x_s
    return x


def _signal(schedule: Schedule, t: int) -> tuple[float, float]:
    """The root of alpha_bar_t, and the noise-to-signal ratio."""
    level = float(schedule.alpha_bar[t])
    return math.sqrt(level), math.sqrt((1 - level) / level)


def multistep(eps: Denoise, schedule: Schedule, x_T: Points, *, times: Times) -> Points:
    r"""Points x_0 by DPM-Solver++ (2M): order 2 in log(signal / noise), a pass of the network a step.

    .. math:: x_s = \frac{\sigma_s}{\sigma_t} x_t - \alpha_s (e^{-h} - 1) D, \qquad
        D = \left(1 + \frac{1}{2r}\right) \hat x_0(x_t) - \frac{1}{2r}\, \hat x_0(x_u)

    with :math:`\alpha_t^2 = \bar\alpha_t`, :math:`\sigma_t^2 = 1 - \bar\alpha_t`,
    :math:`\lambda = \log(\alpha / \sigma)`, :math:`h = \lambda_s - \lambda_t`,
    :math:`r = (\lambda_t - \lambda_u) / h`, u the stop before t. The first step has no stop before it and the
    last, where h is infinite, ends at the predicted data: in both :math:`D = \hat x_0(x_t)`.

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the path begins, of the time ``times[0]``, where alpha_bar is above 0.
        times: Falling, the last at least 1.

    Reference: Lu, Zhou, Bao, Chen, Li and Zhu 2022 (DPM-Solver++), Algorithm 2.
    """
    x, stops = x_T, [*times.tolist(), 0]
    before: tuple[Tensor, float] | None = None
    for t, s in pairwise(stops):
        level = schedule.alpha_bar[t]
        x0 = to_x0(eps(x, t), x, level, "eps")
        if s == 0:
            return x0
        (_, noise, place), (signal_s, noise_s, place_s) = _place(schedule, t), _place(schedule, s)
        h, D = place_s - place, x0
        if before is not None:
            ahead = h / (2 * (place - before[1]))  # 1 / (2r)
            D = (1 + ahead) * x0 - ahead * before[0]
        x, before = noise_s / noise * x - signal_s * math.expm1(-h) * D, (x0, place)
    return x


def _place(schedule: Schedule, t: int) -> tuple[float, float, float]:
    """The roots of alpha_bar_t and of 1 - alpha_bar_t, and the log of their ratio, t >= 1."""
    level = float(schedule.alpha_bar[t])
    signal, noise = math.sqrt(level), math.sqrt(1 - level)
    return signal, noise, math.log(signal / noise)
