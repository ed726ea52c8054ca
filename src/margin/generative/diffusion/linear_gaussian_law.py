r"""The law of a sampler's samples for Gaussian data and the exact denoiser: a linear recursion.

For data N(mu, s^2) the best prediction is affine in x_t,

.. math:: E[x_0 | x_t] = \mu + \frac{\sqrt{\bar\alpha_t}\, s^2}{p_t} (x_t - \sqrt{\bar\alpha_t}\, \mu), \qquad
    p_t = \bar\alpha_t s^2 + 1 - \bar\alpha_t,

so each step of a sampler is affine, and :math:`x_k = A_k x_T + B_k + N(0, V_k)`. The steps are derived here
from the conditional means, the score and the noise of Gaussian laws, not from the samplers' formulas. A
covariance is met axis by axis: the samplers treat all directions alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from margin.generative.diffusion.schedules import Schedule, Variance

Axes = Float64[Tensor, " dim"]
Method = Literal["ddpm", "ddim", "euler", "heun", "dpm++", "sde"]


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A random affine map of numbers, x -> slope x + shift + N(0, noise), one of each axis.

    Args:
        slope: A.
        shift: B.
        noise: Variance V of what is added.
    """

    slope: Axes
    shift: Axes
    noise: Axes

    def then(self, other: "Affine") -> "Affine":
        """The map that is followed by another, whose noise is independent."""
        return Affine(
            other.slope * self.slope,
            other.slope * self.shift + other.shift,
            other.slope.square() * self.noise + other.noise,
        )

    def law(self, mean: Axes | float = 0.0, variance: Axes | float = 1.0) -> tuple[Axes, Axes]:
        """Mean and variance of the map of N(mean, variance)."""
        return self.slope * mean + self.shift, self.slope.square() * variance + self.noise


@dataclass(frozen=True, slots=True, eq=False)
class GaussianData:
    """Data N(mean, variance), axis by axis, and what is known of them at a level of noise.

    Args:
        mean: mu.
        variance: s^2, at least 0.
    """

    mean: Axes
    variance: Axes

    def marginal(self, level: Tensor) -> tuple[Axes, Axes]:
        """Mean and variance of noisy data at alpha_bar = level."""
        return level.sqrt() * self.mean, level * self.variance + 1 - level

    def denoised(self, level: Tensor) -> Affine:
        """E[x_0 | x_t] as a map of x_t."""
        m, p = self.marginal(level)
        gain = level.sqrt() * self.variance / p
        return Affine(gain, self.mean - gain * m, torch.zeros_like(p))

    def score(self, level: Tensor) -> Affine:
        """The gradient of log q_t as a map of x_t."""
        m, p = self.marginal(level)
        return Affine(-1 / p, m / p, torch.zeros_like(p))


def law_of(
    method: Method,
    schedule: Schedule,
    stops: Sequence[int],
    data: GaussianData,
    *,
    eta: float = 0.0,
    variance: Variance = "large",
) -> Affine:
    """What a sampler makes of x at the first stop, with the exact denoiser: the map to the last.

    Args:
        method: The sampler.
        schedule: Of T steps.
        stops: Times, falling; the last may be 0, whose law is the samples'.
        data: Their law.
        eta: Of DDIM.
        variance: Of DDPM's steps.

    Reference:
        Ho, Jain and Abbeel 2020, Equation 7; Song, Meng and Ermon 2021, Equation 7; Karras, Aittala, Aila and
        Laine 2022, Equation 4; the recursion itself is elementary.
    """
    if method == "dpm++":
        return _two_steps(schedule, stops, data)
    steps: dict[str, Callable[[int, int], Affine]] = {
        "ddpm": lambda t, s: _posterior(schedule, t, s, data, variance),
        "ddim": lambda t, s: _implicit(schedule, t, s, data, eta),
        "euler": lambda t, s: _drift(schedule, t, s, data, 0.5),
        "sde": lambda t, s: _drift(schedule, t, s, data, 1.0),
        "heun": lambda t, s: _trapezoid(schedule, t, s, data),
    }
    one, zero = torch.ones_like(data.mean), torch.zeros_like(data.mean)
    whole = Affine(one, zero, zero)
    for t, s in pairwise(stops):
        whole = whole.then(steps[method](t, s))
    return whole


def _posterior(schedule: Schedule, t: int, s: int, data: GaussianData, kind: Variance) -> Affine:
    """x_s as the law of a Gaussian between x_t and E[x_0 | x_t], by the precisions of the two."""
    a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
    x0 = data.denoised(a_t)
    zero = torch.zeros_like(x0.slope)
    if s == 0:
        return x0
    alpha = a_t / a_s
    prior, evidence = 1 / (1 - a_s), alpha / (1 - alpha)
    small = 1 / (prior + evidence)
    of_x0, of_x_t = small * prior * a_s.sqrt(), small * evidence / alpha.sqrt()
    noise = small if kind == "small" else 1 - alpha
    return Affine(of_x0 * x0.slope + of_x_t, of_x0 * x0.shift, zero + noise)


def _implicit(schedule: Schedule, t: int, s: int, data: GaussianData, eta: float) -> Affine:
    """x_s of the mean that q(x_s | x_t, x_0) has in DDIM's process, x_0 as predicted.

    Its part along x_t - sqrt(alpha_bar_t) x_0 is such that, given x_0, x_s has the variance 1 - alpha_bar_s.
    """
    a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
    x0 = data.denoised(a_t)
    noise = torch.zeros_like(x0.slope)
    if s > 0:
        noise = noise + eta**2 / (1 / (1 - a_s) + a_t / (a_s - a_t))
    along = ((1 - a_s - noise).clamp_min(0) / (1 - a_t)).sqrt()
    of_x0 = a_s.sqrt() - along * a_t.sqrt()
    return Affine(of_x0 * x0.slope + along, of_x0 * x0.shift, noise)


def _drift(schedule: Schedule, t: int, s: int, data: GaussianData, weight: float) -> Affine:
    """The step x + B (x / 2 + weight * score); but for the last, with noise of variance (2 weight - 1) B."""
    B = schedule.alpha_bar[s].log() - schedule.alpha_bar[t].log()
    score = data.score(schedule.alpha_bar[t])
    noise = torch.zeros_like(score.slope)
    if s > 0:
        noise = noise + (2 * weight - 1) * B
    return Affine(1 + B * (0.5 + weight * score.slope), B * weight * score.shift, noise)


def _trapezoid(schedule: Schedule, t: int, s: int, data: GaussianData) -> Affine:
    """Heun's step for y = x / sqrt(alpha_bar), whose law at the ratio r is N(mu, s^2 + r^2).

    There dy/dr = r (y - mu) / (s^2 + r^2): with e = y - mu, a step multiplies e.
    """
    (a_t, a_s), v = (schedule.alpha_bar[t], schedule.alpha_bar[s]), data.variance
    r_t, r_s = (1 / a_t - 1).sqrt(), (1 / a_s - 1).sqrt()
    h = r_s - r_t
    first = r_t / (v + r_t**2)
    factor = 1 + h * first
    if s > 0:
        factor = 1 + h / 2 * (first + r_s / (v + r_s**2) * factor)
    slope = a_s.sqrt() / a_t.sqrt() * factor
    return Affine(slope, a_s.sqrt() * data.mean * (1 - factor), torch.zeros_like(slope))


def _two_steps(schedule: Schedule, stops: Sequence[int], data: GaussianData) -> Affine:
    """DPM-Solver++ (2M): the rule of Adams and Bashforth for the data that are predicted.

    With y = x / noise and l = log(signal / noise), dy = exp(l) x_0 dl. Over a step x_0 is taken constant, at
    what the line through its last two values has in the middle of the step.
    """
    one, zero = torch.ones_like(data.mean), torch.zeros_like(data.mean)
    A, B = one, zero
    last: tuple[Tensor, Tensor, Tensor] | None = None
    for t, s in pairwise(stops):
        a_t, a_s = schedule.alpha_bar[t], schedule.alpha_bar[s]
        x0 = data.denoised(a_t)
        C, D = x0.slope * A, x0.slope * B + x0.shift
        if s == 0:
            return Affine(C, D, zero)
        place, place_s = (0.5 * (a / (1 - a)).log() for a in (a_t, a_s))
        middle_C, middle_D = C, D
        if last is not None:
            share = (place_s - place) / 2 / (place - last[2])
            middle_C, middle_D = C + share * (C - last[0]), D + share * (D - last[1])
        n_t, n_s = (1 - a_t).sqrt(), (1 - a_s).sqrt()
        grown = place_s.exp() - place.exp()
        A, B = n_s * (A / n_t + grown * middle_C), n_s * (B / n_t + grown * middle_D)
        last = (C, D, place)
    return Affine(A, B, zero)
