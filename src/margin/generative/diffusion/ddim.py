"""DDIM (Song, Meng and Ermon 2021): the chain back of a process that may keep its noise."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from margin.generative.diffusion.ddpm import Denoise
from margin.generative.diffusion.parametrizations import to_x0
from margin.generative.diffusion.schedules import Schedule


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
        times: Falling, the last at least 1; :func:`margin.generative.diffusion.schedules.strided` gives even
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
