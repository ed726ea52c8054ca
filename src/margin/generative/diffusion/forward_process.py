"""The forward process of diffusion and its posterior (Sohl-Dickstein et al. 2015; Ho et al. 2020)."""

import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor

from margin.generative.diffusion.parametrizations import Level, Points, roots
from margin.generative.diffusion.schedules import Schedule


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
