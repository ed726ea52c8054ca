"""What theory says of Hopfield's network: which patterns are fixed points, how many bits err, how many fit.

The first is exact for any patterns; the others are for patterns of independent fair signs: an exact law of
one bit, its limit, and the loads at which recall breaks down in the limit of many units.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from margin.classic.memory.associative_memory import check_signs
from margin.classic.memory.hopfield_dynamics import Ties


def crosstalk(patterns: Float[Tensor, "patterns units"]) -> Float[Tensor, "patterns units"]:
    r"""What the other patterns add to each unit's field in a stored pattern.

    .. math:: C_{ti} = \frac1n \sum_{j \ne i} \sum_{r \ne t} x_{ri} x_{rj} x_{tj}

    The field is h_ti = x_ti (n - 1) / n + C_ti for Hebbian weights of zero diagonal, so the sum leaves out
    j = i; with it, the diagonal is kept and the pattern's own part is 1.

    Args:
        patterns: Stored patterns of -1 and +1, one a row.

    Raises:
        ValueError: An entry is neither -1 nor +1.

    Reference: Hertz, Krogh and Palmer 1991, Section 2.2 (with j = i).
    """
    check_signs(patterns)
    count, units = patterns.shape
    others = (patterns @ patterns.T).fill_diagonal_(0)  # x_r . x_t
    return (others @ patterns - (count - 1) * patterns) / units


def fixed_patterns(
    patterns: Float[Tensor, "patterns units"],
    thresholds: Float[Tensor, " units"] | None = None,
    *,
    ties: Ties = "up",
) -> Bool[Tensor, " patterns"]:
    """Which stored patterns are fixed points: those that no unit's cross-talk outweighs.

    Pattern t is one if and only if x_ti ((n - 1) x_ti / n + C_ti - b_i) > 0 for every i, or is 0 where the
    rule for ties keeps the unit. For b = 0, C_ti^2 < ((n - 1) / n)^2 for every i is sufficient.

    Args:
        patterns: Stored patterns of -1 and +1, one a row.
        thresholds: The thresholds b; 0 if not given.
        ties: What a field of 0 does.
    """
    x = patterns.double()
    units = x.shape[1]
    fields = (units - 1) * x + (units * crosstalk(x)).round()
    if thresholds is not None:
        fields = fields - (units * thresholds.double()).round()
    aligned = x * fields
    kept = torch.ones_like(x, dtype=torch.bool) if ties == "keep" else x > 0
    return ((aligned > 0) | ((aligned == 0) & kept)).all(1)


def flip_probability(units: int, patterns: int, *, ties: Ties = "up") -> float:
    r"""The probability that a bit of a stored pattern is not aligned with its field, exactly.

    For patterns of independent fair signs n x_ti C_ti is a sum S of (n - 1)(s - 1) independent signs, so

    .. math:: P = P(S < -(n - 1)) + \tfrac12 P(S = -(n - 1))

    where the second term is left out if ties keep the unit.

    Args:
        units: n.
        patterns: s.
        ties: What a field of 0 does.

    Raises:
        ValueError: A number is below 1.

    Reference: Hertz, Krogh and Palmer 1991, Section 2.2 (the sum; there in the normal approximation).
    """
    from scipy.stats import binom

    if units < 1 or patterns < 1:
        raise ValueError(f"units and patterns must be at least 1: got {units} and {patterns}")
    terms = (units - 1) * (patterns - 1)
    # S = terms - 2 K with K fair coins: S < -(n - 1) if K > (terms + n - 1) / 2
    edge = terms + units - 1
    beyond = float(binom.sf(edge // 2, terms, 0.5))
    tie = float(binom.pmf(edge // 2, terms, 0.5)) if edge % 2 == 0 and ties == "up" else 0.0
    return beyond + tie / 2


def flip_probability_limit(load: float) -> float:
    r"""The limit of :func:`flip_probability` for many units at s / n = ``load``.

    .. math:: \tfrac12 \bigl(1 - \mathrm{erf} \sqrt{n / (2 s)}\bigr) = Q(\sqrt{n / s})

    Raises:
        ValueError: The load is not positive.

    Reference: Hertz, Krogh and Palmer 1991, Section 2.2.
    """
    if not load > 0:
        raise ValueError(f"load must be positive: got {load}")
    return math.erfc(math.sqrt(1 / (2 * load))) / 2


def exact_recall_capacity(units: int, *, every: bool = False) -> float:
    """The number of random patterns up to which a typical one, or every one, is a fixed point.

    n / (2 ln n) for a typical one, n / (4 ln n) for every one, with a probability that tends to 1 as n
    grows. The logarithm is natural: it comes from n Q(sqrt(n / s)) -> 0.

    Args:
        units: n, at least 2.
        every: Whether all patterns are to be recalled.

    Raises:
        ValueError: There are fewer than 2 units.

    Reference: McEliece, Posner, Rodemich and Venkatesh 1987, Section V.
    """
    if units < 2:
        raise ValueError(f"units must be at least 2: got {units}")
    return units / ((4 if every else 2) * math.log(units))


def critical_load() -> float:
    """The load s / n above which no state near a stored pattern is stable, for many units: 0.1379.

    Reference: Amit, Gutfreund and Sompolinsky 1985; Hertz, Krogh and Palmer 1991, Section 2.5.
    """
    return _root_load(_turning_point()) ** 2 / 2


def retrieval_overlap(load: float) -> float:
    r"""The overlap of the stable state near a stored pattern, for many units; 0 above the critical load.

    At temperature 0 the mean-field equations reduce to m = erf(y) with the larger root y of

    .. math:: y \bigl(\sqrt{2 \alpha} + \tfrac{2}{\sqrt\pi} e^{-y^2}\bigr) = \mathrm{erf}(y)

    At the critical load the overlap is still 0.967: recall breaks down at once.

    Args:
        load: alpha = s / n, positive.

    Raises:
        ValueError: The load is not positive.

    Reference: Amit, Gutfreund and Sompolinsky 1985; Hertz, Krogh and Palmer 1991, Section 2.5.
    """
    from scipy.optimize import brentq

    if not load > 0:
        raise ValueError(f"load must be positive: got {load}")
    turn, wanted = _turning_point(), math.sqrt(2 * load)
    if wanted > _root_load(turn):
        return 0.0
    return math.erf(brentq(lambda y: _root_load(y) - wanted, turn, 1 / wanted))


def _root_load(y: float) -> float:
    """sqrt(2 alpha) as a function of y."""
    return math.erf(y) / y - 2 / math.sqrt(math.pi) * math.exp(-(y**2))


def _turning_point() -> float:
    """The y at which the load is largest."""
    from scipy.optimize import minimize_scalar

    return float(
        minimize_scalar(
            lambda y: -_root_load(y), bounds=(1.0, 2.0), method="bounded", options={"xatol": 1e-10}
        ).x
    )
