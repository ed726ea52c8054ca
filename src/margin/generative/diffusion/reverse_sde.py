"""The reverse stochastic equation of diffusion (Anderson 1982; Song et al. 2021), by Euler and Maruyama."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from margin.generative.diffusion.ddpm import Denoise
from margin.generative.diffusion.schedules import Schedule


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
    :func:`~margin.generative.diffusion.ddpm.ddpm_step`, up to terms of order B^2.

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
