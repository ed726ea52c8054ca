"""The mu-law (Smith 1957): amplitudes on a logarithmic scale, so that few levels serve loud and quiet."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEVELS = 256
"""Levels of the telephone's code, mu = 255 (ITU-T G.711)."""

Amplitudes = Float[Tensor, "*shape"]
Codes = Int[Tensor, "*shape"]


def compress(x: Amplitudes, levels: int = LEVELS) -> Amplitudes:
    r"""The amplitude on the logarithmic scale, an odd increasing map of [-1, 1] onto itself.

    .. math:: y = \mathrm{sign}(x) \frac{\ln(1 + \mu |x|)}{\ln(1 + \mu)}, \qquad \mu = \mathrm{levels} - 1

    Args:
        x: Amplitudes in [-1, 1].
        levels: mu + 1, at least 2.

    Raises:
        ValueError: There are fewer than two levels, or an amplitude is not in [-1, 1].

    Reference: Smith 1957, Section III; van den Oord et al. 2016, Section 2.2.
    """
    _check_levels(levels)
    if not bool((x.abs() <= 1).all()):  # so written that a NaN fails
        worst = x[~(x.abs() <= 1)].flatten()[0].item()
        raise ValueError(f"amplitudes must be in [-1, 1]: got {worst:g}")
    mu = levels - 1
    return x.sign() * torch.log1p(mu * x.abs()) / math.log1p(mu)


def expand(y: Amplitudes, levels: int = LEVELS) -> Amplitudes:
    r"""The inverse of :func:`compress`: sign(y) ((1 + mu)^|y| - 1) / mu."""
    _check_levels(levels)
    mu = levels - 1
    return y.sign() * torch.expm1(y.abs() * math.log1p(mu)) / mu


def mu_law_encode(x: Amplitudes, levels: int = LEVELS) -> Codes:
    """The nearest of ``levels`` equally spaced points of [-1, 1] to each compressed amplitude, by its number.

    With an even number of levels none is 0: silence gets the level above.

    Args:
        x: Amplitudes in [-1, 1].
        levels: Number of levels.

    Returns:
        Codes 0 (for -1) .. levels - 1 (for 1), int64.

    Raises:
        ValueError: As :func:`compress`.
    """
    steps = (compress(x.double(), levels) + 1) / 2 * (levels - 1)
    return (steps + 0.5).floor().long()


def mu_law_decode(codes: Codes, levels: int = LEVELS) -> Float[Tensor, "*shape"]:
    """The amplitude of each level, float32.

    Raises:
        ValueError: A code is not in 0 .. levels - 1.
    """
    _check_levels(levels)
    if not bool(((codes >= 0) & (codes < levels)).all()):
        worst = codes[(codes < 0) | (codes >= levels)].flatten()[0].item()
        raise ValueError(f"codes must be in 0 .. {levels - 1}: got {worst}")
    return expand(codes.double() / (levels - 1) * 2 - 1, levels).float()


def mu_law_error(x: Amplitudes, levels: int = LEVELS) -> Amplitudes:
    r"""The largest error that encoding and decoding can make at an amplitude.

    The compressed amplitude moves by 1 / mu at most, half a step, and the inverse is steepest outward:

    .. math:: |x - \hat x| \le \left(|x| + \tfrac1\mu\right) \left((1 + \mu)^{1/\mu} - 1\right)

    With 256 levels 2.2 % of a loud amplitude. It is attained at silence.
    """
    _check_levels(levels)
    mu = levels - 1
    return (x.abs() + 1 / mu) * math.expm1(math.log1p(mu) / mu)


def _check_levels(levels: int) -> None:
    if levels < 2:
        raise ValueError(f"levels must be at least 2: got {levels}")
