"""Sinusoids of the time (Vaswani et al. 2017): how a denoising network is told how much noise there is."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def time_features(t: Float[Tensor, " batch"], width: int) -> Float[Tensor, "batch width"]:
    r"""Cosines and sines of t at frequencies from 1 down to almost 1/10000, evenly in the logarithm.

    .. math:: (\cos \omega_0 t, .., \cos \omega_{h-1} t, \sin \omega_0 t, .., \sin \omega_{h-1} t), \qquad
        \omega_i = 10000^{-i / h}, \quad h = width / 2

    Args:
        t: Times, in steps of the chain.
        width: Numbers of a time, even and positive.

    Raises:
        ValueError: The width is odd or not positive.

    Reference: Vaswani et al. 2017, Section 3.5; Ho, Jain and Abbeel 2020, Appendix B.
    """
    if width < 2 or width % 2:
        raise ValueError(f"the width of time features must be even and positive: got {width}")
    half = width // 2
    omega = torch.exp(-math.log(10000) / half * torch.arange(half, dtype=t.dtype, device=t.device))
    angle = t[:, None] * omega
    return torch.cat((angle.cos(), angle.sin()), 1)
