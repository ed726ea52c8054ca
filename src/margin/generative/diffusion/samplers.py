r"""Samplers of diffusion: from noise back to data, given a network that predicts the noise.

- DDPM, ancestral sampling (Ho, Jain and Abbeel 2020): the learned reverse chain, step by step.
- DDIM (Song, Meng and Ermon 2021): the chain back of a process that may keep its noise.
- Probability flow (Song et al. 2021): the ordinary equation whose paths have the laws of the chain,

  .. math:: \frac{dx}{d \log \bar\alpha}
      = \frac12 \left(x - \frac{\epsilon(x, t)}{\sqrt{1 - \bar\alpha}}\right), \qquad\text{that is}\qquad
      \frac{dy}{d\varsigma} = \epsilon, \quad
      y = \frac{x}{\sqrt{\bar\alpha}}, \quad \varsigma = \sqrt{\frac{1 - \bar\alpha}{\bar\alpha}}

  by Euler's method in the chain's time, Heun's in the noise-to-signal ratio, or DPM-Solver++ in its
  logarithm. Euler's method in the ratio is DDIM with eta = 0.
- Reverse SDE (Anderson 1982; Song et al. 2021), by the method of Euler and Maruyama.

Classifier-free guidance (Ho and Salimans 2021) pushes a class's noise away from that of no class. The guided
noise is that of the score of :math:`q_t(x | c)^{1 + w} q_t(x)^{-w}` at every t. These are not the noised
densities of :math:`p(x | c)^{1 + w} p(x)^{-w}`: raising to a power and adding noise do not commute. So the
samples do not have the latter law, not even with exact networks and infinitely many steps.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from margin.generative.diffusion.process import Schedule, Variance, posterior_factors, posterior_mean, to_x0

Denoise = Callable[[Tensor, int], Tensor]
"""``(x_t, t) -> eps``: the noise in points of one time."""


def ddpm_step(
    eps: Float[Tensor, " batch *shape"],
    x_t: Float[Tensor, " batch *shape"],
    z: Float[Tensor, " batch *shape"],
    schedule: Schedule,
    times: tuple[int, int],
    *,
    variance: Variance = "large",
) -> Float[Tensor, " batch *shape"]:
    r"""One step back, from t to an earlier s.

    .. math:: x_s = \frac1{\sqrt{\alpha}} \left(x_t - \frac{\beta}{\sqrt{1 - \bar\alpha_t}}\, \epsilon\right)
        + \sigma z, \qquad \alpha = \bar\alpha_t / \bar\alpha_s, \quad \beta = 1 - \alpha

    sigma^2 is the posterior's variance (small) or beta (large); the step to s = 0 is the mean alone.

    Args:
        eps: The predicted noise.
        x_t: Noisy points.
        z: Noise of the law N(0, I).
        schedule: Of T steps.
        times: t and s, t > s >= 0.
        variance: Which sigma^2.

    Reference: Ho, Jain and Abbeel 2020, Algorithm 2.
    """
    t, s = times
    level, before = schedule.alpha_bar[t], schedule.alpha_bar[s]
    mean = posterior_mean(eps, x_t, level, before)
    if s == 0:
        return mean
    sigma2 = posterior_factors(level, before)[2] if variance == "small" else 1 - level / before
    return mean + float(sigma2.sqrt()) * z


def ddpm(
    eps: Denoise,
    schedule: Schedule,
    x_T: Float[Tensor, " batch *shape"],
    *,
    times: Int64[Tensor, " steps"],
    generator: Generator,
    variance: Variance = "large",
) -> Float[Tensor, " batch *shape"]:
    """Points x_0 by the reverse chain that stops at ``times``.

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the chain begins, of the time ``times[0]``.
        times: Falling, the last at least 1; :func:`margin.generative.diffusion.process.strided` gives even
            ones.
        generator: Where the steps' noise is drawn from.
        variance: That of each step: the posterior's, or beta.

    Reference: Ho, Jain and Abbeel 2020, Algorithm 2; Nichol and Dhariwal 2021, Section 4 (fewer steps).
    """
    x, stops = x_T, [*times.tolist(), 0]
    for t, s in pairwise(stops):
        z = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x)
        x = ddpm_step(eps(x, t), x, z, schedule, (t, s), variance=variance)
    return x


def ddim_step(
    eps: Float[Tensor, " batch *shape"],
    x_t: Float[Tensor, " batch *shape"],
    z: Float[Tensor, " batch *shape"] | None,
    schedule: Schedule,
    times: tuple[int, int],
    *,
    eta: float = 0.0,
) -> Float[Tensor, " batch *shape"]:
    r"""One step back, from t to an earlier s.

    .. math:: x_s = \sqrt{\bar\alpha_s}\, \hat x_0 + \sqrt{1 - \bar\alpha_s - \sigma^2}\, \epsilon + \sigma z,
        \qquad \hat x_0 = \frac{x_t - \sqrt{1 - \bar\alpha_t}\, \epsilon}{\sqrt{\bar\alpha_t}}

    .. math:: \sigma = \eta \sqrt{\frac{1 - \bar\alpha_s}{1 - \bar\alpha_t}
        \left(1 - \frac{\bar\alpha_t}{\bar\alpha_s}\right)}

    The step to s = 0 is :math:`\hat x_0`, whatever eta is.

    Args:
        eps: The predicted noise.
        x_t: Noisy points.
        z: Noise of the law N(0, I); None where eta is 0.
        schedule: Of T steps.
        times: t and s, t > s >= 0.
        eta: Noise of the step, in [0, 1]: 0 is a map, 1 the chain of Ho et al. with small variances.

    Raises:
        ValueError: eta is out of range.

    Reference: Song, Meng and Ermon 2021, Equations 12 and 16.
    """
    sigma = deviation(schedule, times, eta)
    level, before = schedule.alpha_bar[times[0]], float(schedule.alpha_bar[times[1]])
    direction = math.sqrt(max(0.0, 1 - before - sigma**2))  # below 0 by rounding alone
    x_s = math.sqrt(before) * to_x0(eps, x_t, level, "eps") + direction * eps
    return x_s if z is None else x_s + sigma * z


def deviation(schedule: Schedule, times: tuple[int, int], eta: float) -> float:
    """The standard deviation sigma of the noise that a step from t to s adds.

    Args:
        schedule: Of T steps.
        times: t and s, t > s >= 0.
        eta: In [0, 1]; sigma is in proportion to it, and at 1 the posterior's.

    Raises:
        ValueError: eta is out of range.

    Reference: Song, Meng and Ermon 2021, Equation 16.
    """
    check_eta(eta)
    level, before = (float(schedule.alpha_bar[t]) for t in times)
    return eta * math.sqrt((1 - before) / (1 - level) * (1 - level / before))


def ddim(
    eps: Denoise,
    schedule: Schedule,
    x_T: Float[Tensor, " batch *shape"],
    *,
    times: Int64[Tensor, " steps"],
    generator: Generator,
    eta: float = 0.0,
) -> Float[Tensor, " batch *shape"]:
    """Points x_0 by DDIM's steps over ``times``; without noise they are a function of x_T.

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the chain begins, of the time ``times[0]``.
        times: Falling, the last at least 1; :func:`margin.generative.diffusion.process.strided` gives even
            ones.
        generator: Where the steps' noise is drawn from; it is left alone where eta is 0.
        eta: Noise of the steps, in [0, 1].

    Raises:
        ValueError: eta is out of range.

    Reference: Song, Meng and Ermon 2021, Equation 12 and Section 4.2.
    """
    check_eta(eta)
    x, stops = x_T, [*times.tolist(), 0]
    for t, s in pairwise(stops):
        z = None
        if eta > 0:
            z = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x)
        x = ddim_step(eps(x, t), x, z, schedule, (t, s), eta=eta)
    return x


def check_eta(eta: float) -> None:
    """Refuse more noise than the posterior's, or less than none.

    Raises:
        ValueError: eta is out of range.
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must be in [0, 1]: got {eta:g}")


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


def reverse_sde(
    eps: Denoise,
    schedule: Schedule,
    x_T: Float[Tensor, " batch *shape"],
    *,
    times: Int64[Tensor, " steps"],
    generator: Generator,
) -> Float[Tensor, " batch *shape"]:
    r"""Points x_0 by Euler and Maruyama's method on the reverse equation: order 1 in the law.

    .. math:: dx = \left[-\tfrac12 \beta x - \beta \nabla \log q_t(x)\right] dt + \sqrt\beta\, d\bar w, \qquad
        dt < 0

    .. math:: x_s = x_t + B \left(\tfrac12 x_t - \frac{\epsilon}{\sqrt{1 - \bar\alpha_t}}\right)
        + \sqrt B\, z, \qquad B = \int_s^t \beta = \log\frac{\bar\alpha_s}{\bar\alpha_t}

    The last step adds no noise. As B tends to 0 a step is that of
    :func:`~margin.generative.diffusion.samplers.ddpm_step`, up to terms of order B^2.

    Args:
        eps: The noise in points of one time.
        schedule: Of T steps.
        x_T: Where the path begins, of the time ``times[0]``, where alpha_bar is above 0.
        times: Falling, the last at least 1.
        generator: Where the steps' noise is drawn from.

    Reference: Song et al. 2021, Equation 6 and Appendix B, for the variance-preserving equation.
    """
    x, stops = x_T, [*times.tolist(), 0]
    for t, s in pairwise(stops):
        level, before = float(schedule.alpha_bar[t]), float(schedule.alpha_bar[s])
        B = math.log(before / level)
        drift = 0.5 * x - eps(x, t) / math.sqrt(1 - level)
        x = x + B * drift
        if s > 0:
            x = x + math.sqrt(B) * torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x)
    return x


Noise = Float[Tensor, " batch *shape"]
DenoiseLabeled = Callable[[Tensor, Tensor], Tensor]
"""``(x_t, label) -> eps``, for labels of a class each or of none."""


def guided(eps_class: Noise, eps_none: Noise, weight: float) -> Noise:
    r"""The noise :math:`(1 + w)\, \epsilon_c - w\, \epsilon_\emptyset`.

    Args:
        eps_class: Predicted with the class.
        eps_none: Predicted without.
        weight: w: 0 is conditional, -1 unconditional, above 0 leans away from what all classes share.

    Reference: Ho and Salimans 2021, Equation 6.
    """
    return (1 + weight) * eps_class - weight * eps_none


def guided_eps(
    denoise: DenoiseLabeled, x: Noise, label: Int64[Tensor, " batch"], none: int, weight: float
) -> Noise:
    """The guided noise at x; a network of weight 0 is not evaluated.

    Args:
        denoise: The noise that is predicted for points and their labels.
        x: Noisy points.
        label: The class of each.
        none: The label of no class.
        weight: w of :func:`guided`.
    """
    if weight == 0:
        return denoise(x, label)
    without = denoise(x, label.new_full(label.shape, none))
    return without if weight == -1 else guided(denoise(x, label), without, weight)


def classes_of(
    turn: Int64[Tensor, " count"], num_classes: int, weight: float, label: int | None
) -> Int64[Tensor, " count"] | None:
    """The classes of samples that are to be drawn, None of a model without classes.

    Args:
        turn: 0, 1, 2, ...: the samples' numbers, on the model's device.
        num_classes: Number of classes, 0 of a model without.
        weight: w of :func:`guided`.
        label: The class of all; None: the classes in turn.

    Raises:
        ValueError: Guidance or a class is given to a model without classes, or a class does not exist.
    """
    if not num_classes:
        if weight or label is not None:
            asked = f"label={label}" if label is not None else f"guidance={weight:g}"
            raise ValueError(f"guidance and label need a model trained on classes: got {asked}")
        return None
    if label is not None and not 0 <= label < num_classes:
        raise ValueError(f"label must be from 0 to {num_classes - 1}: got {label}")
    return turn % num_classes if label is None else turn.new_full(turn.shape, label)


def dropped(
    label: Int64[Tensor, " batch"], none: int, probability: float, generator: Generator
) -> Int64[Tensor, " batch"]:
    """The labels, each replaced by that of no class with a probability, so that both are learned.

    Args:
        label: The class of each.
        none: The label of no class.
        probability: In [0, 1].
        generator: Where it is drawn which are replaced.

    Reference: Ho and Salimans 2021, Algorithm 1.
    """
    kept = torch.rand(len(label), generator=generator).to(label.device) >= probability
    return torch.where(kept, label, none)


def finite(samples: Noise) -> Noise:
    """The samples themselves, checked to be finite.

    Raises:
        ValueError: Some are not finite.
    """
    bad = int((~samples.isfinite()).flatten(1).any(1).sum())
    if bad:
        raise ValueError(f"samples must be finite: got {bad} of {len(samples)} that are not")
    return samples
