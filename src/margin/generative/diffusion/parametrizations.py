"""What a denoising network predicts (Salimans and Ho 2022): noise, data, or the velocity between them."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from margin.generative.diffusion.schedules import Schedule

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
