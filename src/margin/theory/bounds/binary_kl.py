"""The divergence of two coins and its inverse, by which a risk is bounded from an observed share of errors.

Langford (2005, Section 3.2); Maurer (2004).
"""

import torch
from jaxtyping import Float
from torch import Tensor

Shares = Float[Tensor, "*#batch"]

STEPS = 60
"""Newton's steps at most."""

CLOSE = 1e-7
"""Of the excess, the length of the last step at most: what it leaves is of the order of its square."""

CHUNK = 16_384
"""Arguments that are computed together: they stay in the processor's cache."""


def binary_kl(q: Shares | float, p: Shares | float) -> Shares:
    r"""The Kullback-Leibler divergence of a coin of bias q from one of bias p, in nats.

    .. math:: \mathrm{kl}(q \| p) = q \ln\frac{q}{p} + (1-q) \ln\frac{1-q}{1-p}

    Args:
        q: In [0, 1].
        p: In [0, 1]; infinite where it is 0 or 1 and q is not.

    Raises:
        ValueError: A share is outside [0, 1].

    Reference: Langford 2005, Equation 3 (its divergence); Cover and Thomas 2006, Equation 2.26.
    """
    q, p = _shares(q, "q"), _shares(p, "p")
    of_ones, of_zeros = torch.xlogy(q, q / p), torch.xlogy(1 - q, (1 - q) / (1 - p))
    # 0 ln 0 = 0, whatever p is
    return torch.where(q == 0, 0.0, of_ones) + torch.where(q == 1, 0.0, of_zeros)


def kl_upper(q: Shares | float, c: Shares | float) -> Shares:
    r"""The largest bias whose divergence from an observed share is at most c.

    .. math:: \mathrm{kl}^{-1}(q, c) = \sup\{p \ge q : \mathrm{kl}(q \| p) \le c\}

    Newton's method on the excess d = p - q: the divergence is convex in it, and the start lies above the
    root, so the steps fall towards it. To about 1e-15.

    Args:
        q: Observed shares, in [0, 1]; computed in float64.
        c: At least 0, broadcast against q.

    Raises:
        ValueError: A share is outside [0, 1], or a divergence negative.

    Reference: Langford 2005, Section 3.2; start: Pinsker's inequality, and -h(q) - (1-q) ln(1-p) <= kl(q||p).
    """
    shares, grants = _shares(q, "q"), torch.as_tensor(c, dtype=torch.float64)
    if not bool((grants >= 0).all()):
        raise ValueError(f"a divergence must be at least 0: got {float(grants.min()):g}")
    shares, grants = torch.broadcast_tensors(shares, grants)
    parts = zip(shares.reshape(-1).split(CHUNK), grants.reshape(-1).split(CHUNK), strict=True)
    return torch.cat([_root(*part) for part in parts]).reshape(shares.shape)


def _root(q: Float[Tensor, " n"], c: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    rest = 1 - q
    entropy = torch.special.entr(q) + torch.special.entr(rest)
    # the divergence is at least d^2 / 2v, with v the largest variance between q and p: 1/4, p, 1 - q
    widest = torch.minimum(torch.minimum((c / 2).sqrt(), (2 * c * rest).sqrt()), c + (c * (c + 2 * q)).sqrt())
    d = torch.minimum(widest, rest - (-(c + entropy) / rest).exp())
    by_q, by_rest = (torch.where(x == 0, 0.0, 1 / x) for x in (q, rest))  # 0 ln 0 = 0
    for _ in range(STEPS):
        excess = q * torch.log1p(d * by_q) + rest * torch.log1p(-d * by_rest) + c
        fall = excess * (q + d) * (d - rest) / d
        # at an end the excess is infinite, or the quotient 0 / 0
        fall = torch.where((fall > 0) & (fall < d), fall, 0.0)
        d = d - fall
        if not bool((fall > CLOSE * d).any()):
            break
    return torch.where(c == 0, q, (q + d).clamp(max=1.0))


def kl_lower(q: Shares | float, c: Shares | float) -> Shares:
    """The least bias whose divergence from an observed share is at most c: 1 - :func:`kl_upper` of 1 - q.

    Args:
        q: Observed shares, in [0, 1]; computed in float64.
        c: At least 0, broadcast against q.

    Raises:
        ValueError: A share is outside [0, 1], or a divergence negative.

    Reference: Langford 2005, Section 3.2.
    """
    return 1 - kl_upper(1 - _shares(q, "q"), c)


def _shares(x: Shares | float, name: str) -> Shares:
    """In float64, if all lie in [0, 1]."""
    x = torch.as_tensor(x, dtype=torch.float64)
    if not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(f"{name} must lie in [0, 1]: got {float(x.min()):g} to {float(x.max()):g}")
    return x
