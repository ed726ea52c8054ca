"""Modes of a known mixture that a generator covers, and the share of its samples that are good.

How mode collapse is counted: Srivastava et al. 2017 (VEEGAN), Section 5.1; Metz et al. 2017, Section 3.1.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from margin.math.two_samples.distances import distances, pair

WITHIN = 3.0
"""Standard deviations from the nearest mean within which a sample is good."""


class Coverage(NamedTuple):
    """What a sample covers of a mixture.

    Args:
        covered: Number of modes with enough good samples.
        good: Share of samples that are good: within so many deviations of the nearest mean.
        divergence: KL from the shares of the modes among the good samples to the mixture's weights, in nats;
            0 where they agree, log K where one of K equal modes has all; infinite without a good sample.
        counts: Good samples of each mode.
    """

    covered: int
    good: float
    divergence: float
    counts: Int[Tensor, " modes"]


def mode_coverage(
    samples: Float[Tensor, "n dim"],
    means: Float[Tensor, "modes dim"],
    std: float | Float[Tensor, " modes"],
    *,
    weights: Float[Tensor, " modes"] | None = None,
    within: float = WITHIN,
    least: int = 1,
) -> Coverage:
    r"""The modes of a mixture of round Gaussians that a sample covers.

    A sample belongs to the mode whose mean is the fewest deviations away; it is good within ``within`` of
    them.

    Args:
        samples: Points.
        means: Of the components.
        std: Standard deviation of each coordinate, of all components or of each; positive.
        weights: Of the components, positive with sum 1; equal if not given.
        within: Deviations, positive.
        least: Good samples that a covered mode has, at least 1.

    Raises:
        ValueError: A number is not finite, the widths differ, or an option is out of range.
    """
    samples, means = pair(samples, means, names=("the sample", "the means"))
    deviation = torch.as_tensor(std, dtype=torch.float64, device=means.device).expand(len(means))
    if not bool((deviation > 0).all()) or not within > 0 or least < 1:
        raise ValueError(
            f"std and within must be positive, least at least 1: got std={float(deviation.min())}, "
            f"within={within}, least={least}"
        )
    share = (
        torch.full_like(deviation, 1 / len(means)) if weights is None else weights.double().to(means.device)
    )
    if share.shape != deviation.shape or not bool((share > 0).all()) or abs(float(share.sum()) - 1) > 1e-6:
        raise ValueError(f"weights must be positive with sum 1, one for each mean: got {share.tolist()}")
    apart, mode = (distances(samples, means) / deviation).min(1)
    good = apart <= within
    counts = torch.bincount(mode[good], minlength=len(means))
    frequency = counts.double() / max(1, int(good.sum()))
    divergence = float((torch.xlogy(frequency, frequency) - torch.xlogy(frequency, share)).sum())
    return Coverage(
        covered=int((counts >= least).sum()),
        good=float(good.double().mean()),
        divergence=max(0.0, divergence) if bool(good.any()) else math.inf,
        counts=counts,
    )


def good_share(dim: int, *, within: float = WITHIN) -> float:
    r"""P(\|z\| <= within) of a standard normal z: the share of good samples of the mixture itself.

    The modes must be apart. In the plane it is 1 - exp(-within^2 / 2), .98889 for 3 deviations.

    Args:
        dim: Number of coordinates.
        within: Deviations.
    """
    half = torch.tensor([dim / 2, within**2 / 2], dtype=torch.float64)
    return float(torch.special.gammainc(half[0], half[1]))
