r"""What a share of errors on a sample says of the risk: bounds for one classifier, for many, for a class.

A classifier that the sample did not choose has the exact binomial bound. One that was chosen among several
by the sample pays for the choice: ln N of a class of N, its code length in nats under a code that was fixed
beforehand (Occam), the logarithm of the growth function of an infinite class (Vapnik and Chervonenkis).
Losses lie in [0, 1], examples are independent.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from margin.theory.bounds.binary_kl import Shares, kl_upper
from margin.theory.bounds.pac_bayes import check_sample, in_unit
from margin.theory.prediction.risk import clopper_pearson


def binomial_bound(errors: int | float, n: int | float, delta: float = 0.05) -> float:
    r"""The exact binomial bound of the risk of a classifier that did not see the sample.

    .. math:: \max\{p : P(\mathrm{Bin}(n, p) \le k) \ge \delta\}

    Args:
        errors: k, from 0 to n; a real number where it is an effective count.
        n: Examples.
        delta: Probability that it fails, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Langford 2005, Theorem 3.3; Clopper and Pearson 1934.
    """
    check_sample(math.ceil(n), delta)
    if delta >= 0.5:  # of a two-sided interval of level 1 - 2 delta, which there is none of
        from scipy.special import betaincinv

        return 1.0 if errors >= n else float(betaincinv(errors + 1, n - errors, 1 - delta))
    return clopper_pearson(errors, n, level=1 - 2 * delta)[1]


def hoeffding_bound(
    risk: Shares | float, n: int, delta: float = 0.05, *, choice: Shares | float = 0.0
) -> Shares:
    r"""Hoeffding's bound with a union over a choice: r + sqrt((ln N + ln(1/delta)) / 2n), at most 1.

    Args:
        risk: The mean loss on the sample, in [0, 1].
        n: Examples.
        delta: Probability that it fails for some classifier of the class, in (0, 1).
        choice: ln N of a class of N classifiers, or the code length of this one in nats; 0 is no choice.

    Raises:
        ValueError: A number is out of range.

    Reference: Hoeffding 1963, Theorem 1; Shalev-Shwartz and Ben-David 2014, Theorem 7.7.
    """
    return (in_unit(risk) + (granted(n, delta, choice) / 2).sqrt()).clamp(max=1.0)


def occam_bound(risk: Shares | float, n: int, delta: float = 0.05, *, choice: Shares | float = 0.0) -> Shares:
    r"""Chernoff's bound with a union over a choice: kl^-1(r, (ln N + ln(1/delta)) / n), below Hoeffding's.

    The arguments and errors are those of :func:`hoeffding_bound`.

    Reference: Langford 2005, Corollary 4.2.
    """
    return kl_upper(risk, granted(n, delta, choice))


def vc_bound(risk: Shares | float, log_growth: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The bound of Vapnik and Chervonenkis: r + sqrt(32 (ln F(n) + ln(8/delta)) / n), at most 1.

    It solves :math:`8 F(n) e^{-n \epsilon^2 / 32} = \delta` for the distance of risk and empirical risk.

    Args:
        risk: The mean error on the sample, in [0, 1].
        log_growth: ln F(n), the growth function at n.
        n: Examples.
        delta: Probability that it fails for some classifier of the class, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Devroye, Gyorfi and Lugosi 1996, Theorem 12.5.
    """
    check_sample(n, delta)
    return (in_unit(risk) + (32 * granted(n, delta / 8, log_growth)).sqrt()).clamp(max=1.0)


def vc_probability(epsilon: Float[Tensor, "*batch"], log_growth: float, n: int) -> Float[Tensor, "*batch"]:
    r"""What the inequality grants to a distance: min(1, 8 F(n) exp(-n epsilon^2 / 32)).

    Args:
        epsilon: A distance between risk and empirical risk, above 0.
        log_growth: ln F(n).
        n: Examples.

    Reference: Devroye, Gyorfi and Lugosi 1996, Theorem 12.5.
    """
    return (math.log(8) + log_growth - n * epsilon.double().square() / 32).exp().clamp(max=1.0)


def rademacher_bound(risk: Shares | float, complexity: Shares | float, n: int, delta: float = 0.05) -> Shares:
    r"""The bound by Rademacher complexity: r + 2 R_n + sqrt(ln(1/delta) / 2n), at most 1.

    Args:
        risk: The mean loss on the sample, in [0, 1].
        complexity: R_n of the class of losses (not of the class of functions), in expectation over samples.
        n: Examples.
        delta: Probability that it fails for some function of the class, in (0, 1).

    Raises:
        ValueError: A number is out of range.

    Reference: Mohri, Rostamizadeh and Talwalkar 2018, Theorem 3.3, Equation 3.3.
    """
    R = torch.as_tensor(complexity, dtype=torch.float64)
    return (in_unit(risk) + 2 * R + (granted(n, delta) / 2).sqrt()).clamp(max=1.0)


def sample_size(gap: float, delta: float = 0.05, *, choice: float = 0.0) -> int:
    """How many examples it takes until Hoeffding's bound lies by no more than a gap above the empirical risk.

    Args:
        gap: In (0, 1).
        delta: Probability that the bound fails, in (0, 1).
        choice: As of :func:`hoeffding_bound`.

    Raises:
        ValueError: A number is out of range.

    Reference: Shalev-Shwartz and Ben-David 2014, Corollary 4.6.
    """
    if not 0 < gap < 1:
        raise ValueError(f"gap must lie in (0, 1): got {gap}")
    return math.ceil(float(granted(1, delta, choice)) / (2 * gap**2))


def granted(n: int, delta: float, choice: Shares | float = 0.0) -> Shares:
    """(choice + ln(1/delta)) / n, in float64.

    Raises:
        ValueError: n is below 1, delta outside (0, 1), or the choice negative.
    """
    check_sample(n, delta)
    nats = torch.as_tensor(choice, dtype=torch.float64)
    if not bool((nats >= 0).all()):
        raise ValueError(f"the logarithm of a number must be at least 0: got {float(nats.min()):g}")
    return (nats - math.log(delta)) / n
