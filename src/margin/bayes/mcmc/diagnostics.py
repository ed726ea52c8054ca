r"""Whether chains have mixed: the potential scale reduction and the effective sample size of their draws.

Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), "Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC". Chains are split in halves, so that a chain that drifts is
as one that disagrees with others, and values are replaced by normal scores of their ranks, so that neither
asks for a finite variance.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Draws = Float[Tensor, "draws chains *numbers"]
Number = Float[Tensor, " *numbers"]

FEWEST = 4
"""Draws of a chain from which halves have a variance."""


def split(draws: Draws) -> Float[Tensor, "half halves *numbers"]:
    """The halves of each chain as chains of their own; of an odd number the middle draw is left out.

    Raises:
        ValueError: There are fewer than four draws of each chain.
    """
    if len(draws) < FEWEST:
        raise ValueError(f"draws of a chain must be at least {FEWEST}: got {len(draws)}")
    half = len(draws) // 2
    return torch.cat((draws[:half], draws[len(draws) - half :]), 1)


def rank_normalized(draws: Draws) -> Draws:
    """The normal scores of the ranks among all draws of all chains, ties sharing their mean rank.

    Reference: Vehtari et al. 2021, Equation 14.
    """
    values = draws.double().flatten(0, 1).movedim(0, -1).contiguous()
    order = values.sort(-1)[0]
    below, upto = (torch.searchsorted(order, values, side=side) for side in ("left", "right"))
    ranks = (below + upto + 1).double() / 2
    scores = torch.special.ndtri((ranks - 3 / 8) / (values.shape[-1] + 1 / 4))
    return scores.movedim(-1, 0).reshape(draws.shape)


def _reduction(draws: Draws) -> Number:
    """sqrt(((n - 1) / n W + B / n) / W) of chains, W within and B / n between them."""
    n = len(draws)
    within = draws.var(0).mean(0)
    between = draws.mean(0).var(0)
    return (((n - 1) / n * within + between) / within).sqrt()


def r_hat(draws: Draws) -> Number:
    """The larger of the reductions of ranks and of ranks of distances from the median: 1 where chains agree.

    NaN where no draw differs from another.

    Args:
        draws: Of each chain.

    Reference: Vehtari et al. 2021, Sections 4.1 and 4.2; they ask for less than 1.01.
    """
    halves = split(draws.double())
    median = halves.flatten(0, 1).quantile(0.5, 0)
    bulk, tail = (_reduction(rank_normalized(z)) for z in (halves, (halves - median).abs()))
    return torch.maximum(bulk, tail)


def autocovariance(draws: Draws) -> Draws:
    """The biased autocovariance of each chain at every lag, by the Fourier transform."""
    n = len(draws)
    off = draws - draws.mean(0)
    spectrum = torch.fft.rfft(off, n=2 * n, dim=0)
    return torch.fft.irfft(spectrum * spectrum.conj(), n=2 * n, dim=0)[:n] / n


def _effective(draws: Draws) -> Number:
    r"""Draws over the autocorrelation time, which ends where sums of pairs stop being positive and falling.

    .. math:: \hat\rho_t = 1 - \frac{W - \frac1m \sum_c \gamma_{c,t}}{\widehat{\mathrm{var}}^+}, \quad
        \gamma_{c,t} = \frac1n \sum_i (x_{c,i} - \bar x_c) (x_{c,i+t} - \bar x_c)

    Reference: Vehtari et al. 2021, Equations 10 to 13; Geyer 1992, Section 3.3, initial monotone sequences.
    """
    n, m = draws.shape[:2]
    covariance = autocovariance(draws).mean(1)
    within = covariance[0] * n / (n - 1)
    plus = covariance[0] + (draws.mean(0).var(0) if m > 1 else 0)
    rho = 1 - (within - covariance) / plus
    rho[0] = 1
    most = (n - 3) // 2  # pairs of lags (2 k, 2 k + 1)
    pairs = rho[: 2 * most].unflatten(0, (-1, 2)).sum(1)
    positive = (pairs > 0).long().cumprod(0)
    kept = torch.where(positive > 0, pairs, 0).cummin(0)[0].sum(0)
    # of the first pair that is left out the even lag counts once, where it is positive
    following = rho.gather(0, 2 * positive.sum(0)[None])[0].clamp_min(0)
    time = (-1 + 2 * kept + following).clamp_min(1 / math.log10(m * n))
    return torch.where(plus > 0, m * n / time, math.nan)


def effective_sample_size(draws: Draws) -> Number:
    """How many independent draws give the mean as precisely: of normal scores, of halves of chains.

    NaN where no draw differs from another.

    Args:
        draws: Of each chain.

    Reference: Vehtari et al. 2021, Section 4.3, the bulk effective sample size.
    """
    return _effective(rank_normalized(split(draws.double())))


def tail_sample_size(draws: Draws) -> Number:
    """The smaller effective sample size of the events to be below the 5 % and above the 95 % quantile.

    Args:
        draws: Of each chain.

    Reference: Vehtari et al. 2021, Section 4.3.
    """
    halves = split(draws.double())
    flat = draws.double().flatten(0, 1)
    found = [_effective((halves <= flat.quantile(level, 0)).double()) for level in (0.05, 0.95)]
    return torch.minimum(*found)
