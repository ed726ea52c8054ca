"""Ancestral sampling of diffusion (Ho, Jain and Abbeel 2020): the learned reverse chain, step by step."""

from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from margin.generative.diffusion.forward_process import posterior_factors, posterior_mean
from margin.generative.diffusion.schedules import Schedule, Variance

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
        times: Falling, the last at least 1; :func:`margin.generative.diffusion.schedules.strided` gives even
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
