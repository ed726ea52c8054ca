r"""PAC-Bayes bounds: the risk of a classifier drawn from a law over classifiers, from its errors on a sample.

One theorem in four forms. With probability at least 1 - delta over n independent examples, for every
posterior Q at once, with P a prior chosen without them, r the mean error of Q on them and R its risk,

.. math:: \mathrm{kl}(r \| R) \le \frac{\mathrm{KL}(Q \| P) + \ln(2\sqrt n/\delta)}{n}

(Maurer 2004), and what follows by bounds on the divergence. Losses lie in [0, 1].
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from margin.math.probability.information import divergence
from margin.theory.bounds.binary_kl import Shares, kl_upper


def check_sample(n: int, delta: float) -> None:
    """Refuse a sample that is none, and a probability that is none.

    Raises:
        ValueError: n is below 1, or delta outside (0, 1).
    """
    if n < 1:
        raise ValueError(f"n must be at least 1: got {n}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), the probability that the bound fails: got {delta}")


def complexity(kl: Shares | float, n: int, delta: float) -> Shares:
    r"""What the theorem grants for the choice of Q and for chance: (KL + ln(2 sqrt(n) / delta)) / n.

    Args:
        kl: KL(Q || P) in nats, at least 0.
        n: Examples.
        delta: Probability that the bound fails, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Maurer 2004, Theorem 5.
    """
    check_sample(n, delta)
    kl = torch.as_tensor(kl, dtype=torch.float64)
    if not bool((kl >= 0).all()):
        raise ValueError(f"a divergence must be at least 0: got {float(kl.min()):g}")
    return (kl + math.log(2 * math.sqrt(n) / delta)) / n


def pac_bayes_kl(risk: Shares | float, kl: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The bound itself: the largest risk whose divergence from the mean error is granted. The tightest form.

    Args:
        risk: r, the mean error of Q on the sample, in [0, 1].
        kl: KL(Q || P) in nats.
        n: Examples.
        delta: Probability that the bound fails.

    Raises:
        ValueError: A number is out of range.

    Reference: Maurer 2004, Theorem 5; Langford and Seeger 2001 with n + 1 in place of 2 sqrt(n).
    """
    return kl_upper(risk, complexity(kl, n, delta))


def pac_bayes_root(risk: Shares | float, kl: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The form of McAllester with Maurer's constant, by Pinsker's inequality: r + sqrt(c / 2), at most 1.

    The arguments and errors are those of :func:`pac_bayes_kl`.

    Reference: McAllester 1999, Theorem 1; Maurer 2004, Theorem 5.
    """
    return (in_unit(risk) + (complexity(kl, n, delta) / 2).sqrt()).clamp(max=1.0)


def pac_bayes_quadratic(risk: Shares | float, kl: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The form that is solved for the root: (sqrt(r + c/2) + sqrt(c/2))^2, tighter where r is below 1/4.

    The arguments and errors are those of :func:`pac_bayes_kl`.

    Reference: Perez-Ortiz, Rivasplata, Shawe-Taylor and Szepesvari 2021 (their objective f_quad).
    """
    half = complexity(kl, n, delta) / 2
    return ((in_unit(risk) + half).sqrt() + half.sqrt()).square().clamp(max=1.0)


def catoni(
    risk: Shares | float, kl: Shares | float, n: int, delta: float = 0.05, *, slope: float = 1.0
) -> Shares:
    r"""The linear form: with a slope C that was fixed beforehand, and no root of n beside delta.

    .. math:: R \le \frac{1 - \exp(-C r - (\mathrm{KL} + \ln(1/\delta))/n)}{1 - e^{-C}}

    Args:
        risk: r, the mean error of Q on the sample, in [0, 1].
        kl: KL(Q || P) in nats.
        n: Examples.
        delta: Probability that the bound fails.
        slope: C > 0; to try k of them on the same sample takes delta / k.

    Raises:
        ValueError: A number is out of range.

    Reference: Catoni 2007, Theorem 1.2.6.
    """
    if not slope > 0:
        raise ValueError(f"slope must be above 0: got {slope}")
    grant = complexity(kl, n, delta) - math.log(2 * math.sqrt(n)) / n
    return (torch.expm1(-slope * in_unit(risk) - grant) / math.expm1(-slope)).clamp(max=1.0)


def drawn_bound(risk: Shares | float, log_ratio: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The bound of one classifier that was drawn from Q, once: what it says is no longer drawn.

    .. math:: \mathrm{kl}^{-1}\Big(r(h), \tfrac1n \big(\ln \tfrac{dQ}{dP}(h) + \ln(2\sqrt n/\delta)\big)\Big)

    It holds with probability at least 1 - delta over the sample and the draw of h; of classifiers that were
    drawn and compared it says nothing.

    Args:
        risk: The mean error of h on the sample, in [0, 1].
        log_ratio: ln dQ/dP at h, in nats; below 0 it counts as 0.
        n: Examples.
        delta: Probability that it fails.

    Raises:
        ValueError: A number is out of range.

    Reference: Rivasplata, Kuzborskij, Szepesvari and Shawe-Taylor 2020, Theorem 1 (i); Catoni 2007, Theorem
    1.2.7.
    """
    ratio = torch.as_tensor(log_ratio, dtype=torch.float64)
    if bool(ratio.isnan().any()):
        raise ValueError("log_ratio must be a number: got nan")
    return pac_bayes_kl(risk, ratio.clamp(min=0), n, delta)


def averaged_risk(
    errors: Float[Tensor, " draws"],
    n: int,
    delta: float = 0.01,
    *,
    sizes: Float[Tensor, " draws"] | None = None,
) -> Float[Tensor, ""]:
    r"""An upper bound of the mean error of Q on the sample, from a few classifiers drawn from Q.

    .. math:: \min\Big\{\mathrm{kl}^{-1}\Big(\bar r, \frac{\ln(2/\delta)}{m}\Big),\;
        \bar r + \sqrt{\frac{2 V \ln(4/\delta)}{m}} + \frac{7 \ln(4/\delta)}{3 (m - 1)}\Big\}

    with r-bar the mean over m draws and V their sample variance, each at half of delta: the one is tight
    where few draws err at all, the other (empirical Bernstein) where each answers many examples, so that all
    err about alike. It fails with probability delta at most; that of the bound is added. Draws may each
    answer a part of the sample: then r-bar weighs them by their sizes. For the first, m is the sum of the
    sizes by the largest, since E exp(s w X) <= (E exp(s X))^w for w <= 1 and ln(1 - p + p e^s) is concave in
    p; the second is of draws times their sizes by the largest, independent and in [0, 1].

    Args:
        errors: The share of errors of each draw on the sample or on its part of it, in [0, 1].
        n: Examples of the sample, of which each error is a share.
        delta: Probability that it fails.
        sizes: Examples that each draw has answered, > 0, all parts so that each example is answered equally
            often; None where each answers all.

    Raises:
        ValueError: A number is out of range, or there is no draw.

    Reference: Langford and Caruana 2002, Theorem 2.5, and Hoeffding 1963, Theorem 1, of draws that differ;
    Maurer and Pontil 2009, Theorem 11.
    """
    check_sample(n, delta)
    if not errors.numel():
        raise ValueError("at least one classifier must be drawn: got none")
    sizes = torch.ones_like(errors) if sizes is None else sizes
    if not bool((sizes > 0).all()):
        raise ValueError(f"sizes must be above 0: got {float(sizes.min()):g}")
    part = sizes.double() / sizes.max()
    draws, m = part.sum(), len(part)
    mean = (errors.double() @ part / draws).clamp(max=1.0)
    by_share = kl_upper(mean, math.log(2 / delta) / draws)
    if m == 1:
        return by_share
    spread = (2 * (errors.double() * part).var() * math.log(4 / delta) / m).sqrt()
    beyond = spread + 7 * math.log(4 / delta) / (3 * (m - 1))
    return torch.minimum(by_share, mean + beyond * m / draws)


def gaussian_kl(
    mean: Float[Tensor, "*batch dim"],
    std: Float[Tensor, "*batch dim"],
    prior_mean: Float[Tensor, "*batch dim"],
    prior_std: Float[Tensor, "*batch dim"] | float,
) -> Float[Tensor, "*batch"]:
    r"""The divergence of independent normal weights from a prior of such.

    .. math:: \tfrac12 \sum_i \Big( \frac{\sigma_i^2 + (\mu_i - m_i)^2}{s_i^2} - 1
        - \ln\frac{\sigma_i^2}{s_i^2} \Big)

    Args:
        mean: Of Q.
        std: Of Q, above 0.
        prior_mean: Of P.
        prior_std: Of P, above 0.

    Reference: Bishop 2006, Exercise 2.13.
    """
    ratio = (std / prior_std).square()
    return 0.5 * (ratio - 1 - ratio.log() + ((mean - prior_mean) / prior_std).square()).sum(-1)


def change_of_measure(
    values: Float[Tensor, "*batch outcomes"],
    q: Float[Tensor, "*batch outcomes"],
    p: Float[Tensor, "*batch outcomes"],
) -> Float[Tensor, "*batch"]:
    r"""How far the bound of Donsker and Varadhan lies above what it bounds, on a finite set; at least 0.

    .. math:: \mathrm{KL}(q \| p) + \ln E_p e^X - E_q X

    It is KL(q || g) with the law g proportional to p e^X, so 0 where q is that law. q must be absolutely
    continuous with respect to p: where p has no support that q has, the bound is infinite.

    Args:
        values: X, an outcome a column.
        q: The law whose mean is bounded.
        p: The law whose exponential moment bounds it.

    Raises:
        ValueError: q or p is no law.

    Reference: Donsker and Varadhan 1975, Theorem 2.1; Boucheron, Lugosi and Massart 2013, Corollary 4.15.
    """
    log_moment = (values + p.log()).logsumexp(-1)
    return divergence(q, p) + log_moment - torch.where(q > 0, q * values, 0.0).sum(-1)


def in_unit(risk: Shares | float) -> Shares:
    """In float64, if losses lie in [0, 1].

    Raises:
        ValueError: One does not.
    """
    risk = torch.as_tensor(risk, dtype=torch.float64)
    if not bool(((risk >= 0) & (risk <= 1)).all()):
        raise ValueError(f"losses must lie in [0, 1]: got a mean of {float(risk.min()):g}")
    return risk
