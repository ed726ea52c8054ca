r"""The evidence lower bound of diffusion (Ho, Jain and Abbeel 2020), term by term, in nats.

.. math:: -\log p(x_0) \le L_T + \sum_{t=2}^T L_{t-1} + L_0, \qquad
    L_T = \mathrm{KL}(q(x_T | x_0) \| N(0, I)), \quad
    L_{t-1} = \mathrm{KL}(q(x_{t-1} | x_t, x_0) \| p(x_{t-1} | x_t)), \quad L_0 = -\log p(x_0 | x_1)

in the mean over the noises, with :math:`p(x_{t-1} | x_t) = N(\mu(x_t, t), s_t^2 I)`. Every term is a constant
and a weight times the squared error of what the network predicts.
"""

import math

import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor

from margin.generative.diffusion.parametrizations import Parametrization
from margin.generative.diffusion.schedules import Levels, Schedule, Variance


def variances(schedule: Schedule, kind: Variance) -> Levels:
    r"""s_t^2 of t = 0 .. T: :math:`\tilde\beta_t` (small) or :math:`\beta_t` (large).

    They are the best ones for data in a single point and for N(0, I). The posterior's is 0 at t = 1, where
    p(x_0 | x_1) needs a density: there both take beta_1. (At t = 0 there is no step: 0.)

    Data with a density look like noise to the last steps, whose best variance is beta_t: with large ones the
    bound of an exact network tends to log p(x_0) as T grows; with small ones it stays below by a number of
    nats a dimension, Euler's gamma / 2 = .289 where beta_t is the same for all t.

    Args:
        schedule: Of T steps.
        kind: Which end.

    Reference: Ho, Jain and Abbeel 2020, Section 3.2.
    """
    beta = schedule.beta
    if kind == "large":
        return beta
    left = 1 - schedule.alpha_bar
    small = left[1:-1] / left[2:] * beta[2:]
    return torch.cat((beta[:2], small))


def weights(schedule: Schedule, of: Parametrization, variance: Variance) -> Levels:
    r"""What :math:`\|\hat y - y\|^2` is multiplied by in L_{t-1}, t = 1 .. T (0 at t = 0), y as predicted.

    .. math:: \frac{\|\tilde\mu - \mu\|^2}{2 s_t^2} =
        \frac{\beta_t^2}{2 s_t^2 \alpha_t (1 - \bar\alpha_t)} \|\epsilon - \hat\epsilon\|^2 =
        \frac{\bar\alpha_{t-1} \beta_t^2}{2 s_t^2 (1 - \bar\alpha_t)^2} \|x_0 - \hat x_0\|^2 =
        \frac{\bar\alpha_{t-1} \beta_t^2}{2 s_t^2 (1 - \bar\alpha_t)} \|v - \hat v\|^2

    Args:
        schedule: Of T steps.
        of: What is predicted.
        variance: Which s_t^2.

    Reference: Ho, Jain and Abbeel 2020, Equation 12.
    """
    beta, left = schedule.beta[1:], 1 - schedule.alpha_bar[1:]
    shared = beta.square() / (2 * variances(schedule, variance)[1:] * left)
    factor = {
        "eps": 1 / schedule.alpha[1:],
        "x0": schedule.alpha_bar[:-1] / left,
        "v": schedule.alpha_bar[:-1],
    }[of]
    return torch.cat((beta.new_zeros(1), shared * factor))


def constant(schedule: Schedule, variance: Variance, dim: int) -> Levels:
    r"""What L_{t-1} adds to the weighted error, t = 1 .. T (0 at t = 0).

    .. math:: \tfrac d2 \log(2 \pi s_1^2), \qquad
        \tfrac d2 \left(\tilde\beta_t / s_t^2 - 1 - \log(\tilde\beta_t / s_t^2)\right) \quad (t > 1)

    Args:
        schedule: Of T steps.
        variance: Which s_t^2; the second is 0 for small ones.
        dim: d, numbers of an example.
    """
    s2 = variances(schedule, variance)
    ratio = variances(schedule, "small")[2:] / s2[2:]
    first = 0.5 * dim * (2 * math.pi * s2[1:2]).log()
    return torch.cat((s2.new_zeros(1), first, 0.5 * dim * (ratio - 1 - ratio.log())))


def terminal(x0: Float[Tensor, " batch *shape"], schedule: Schedule) -> Float64[Tensor, " batch"]:
    r"""L_T of each example: what x_T still tells of it.

    .. math:: \tfrac12 \left(\bar\alpha_T \|x_0\|^2 - \bar\alpha_T d - d \log(1 - \bar\alpha_T)\right)

    Args:
        x0: Data.
        schedule: Its last step counts.

    Reference: Ho, Jain and Abbeel 2020, Equation 5.
    """
    square = x0.flatten(1).double().square()
    last = schedule.alpha_bar[-1].to(square)
    return 0.5 * (last * square.sum(1) - (last + torch.log1p(-last)) * square.shape[1])


def importance(schedule: Schedule, variance: Variance) -> Levels:
    r"""The mean of each term's weighted error were the data N(0, I) and the network right, by dimension.

    There :math:`E\|\epsilon - \hat\epsilon\|^2 = \bar\alpha_t d`. Times are drawn in this proportion; then
    the sum over the times is estimated with an error that comes from the data alone.

    Args:
        schedule: Of T steps.
        variance: Which s_t^2.
    """
    return weights(schedule, "x0", variance) * (1 - schedule.alpha_bar)


def drawn_times(share: Levels, count: int, generator: Generator) -> Tensor:
    """Times in proportion to ``share``, one in each of ``count`` strata of equal share, in random order.

    Each by itself has the law ``share``, whatever the others.

    Args:
        share: Not normalized, of t = 0 .. T; 0 at t = 0.
        count: How many.
        generator: Where they are drawn from.

    Returns:
        Integers from 1 to T.
    """
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    strata = torch.randperm(count, generator=generator)
    summed = share.cumsum(0)
    t = torch.searchsorted(summed, (strata + u) / count * summed[-1], right=True)
    return t.clamp_max(len(share) - 1)
