r"""Exchangeable models: bits, partitions and binary features whose law does not depend on the order.

An infinite exchangeable sequence of bits is a mixture of coins (de Finetti 1937). A finite one need not be:
mixtures have covariances of at least 0.

Chinese restaurant process (Aldous 1985): customer n sits down at table k with probability
:math:`n_k / (n - 1 + \alpha)`, at a new one with :math:`\alpha / (n - 1 + \alpha)`.

Indian buffet process (Griffiths and Ghahramani 2005): customer n takes dish k with probability
:math:`m_k / n`, of those m_k that took it before, and then a number of new dishes that is Poisson of mean
:math:`\alpha / n`. BP-means (Broderick, Kulis and Jordan 2013) is its limit of small variance: binary
features of rows, as many as a penalty allows.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def _parameters(a: float, b: float) -> tuple[Tensor, Tensor]:
    if not (0 < a < float("inf") and 0 < b < float("inf")):
        raise ValueError(f"a and b must be positive and finite: got {a}, {b}")
    return torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)


def urn_log_prob(bits: Int[Tensor, " length"], a: float, b: float) -> Float[Tensor, ""]:
    """The log-probability of bits drawn from an urn, each put back with another of its kind, in nats.

    Args:
        bits: Of 0 and 1, in order.
        a: Ones in the urn at first, positive.
        b: Zeros.

    Raises:
        ValueError: A number is not positive and finite.

    Reference: Eggenberger and Polya 1923, Section 2; Blackwell and MacQueen 1973, Section 2.
    """
    one, zero = _parameters(a, b)
    before = torch.arange(len(bits)).double()
    ones = bits.double().cumsum(0) - bits
    chance = torch.where(bits > 0, one + ones, zero + before - ones) / (one + zero + before)
    return chance.log().sum()


def beta_bernoulli_log_prob(bits: Int[Tensor, " length"], a: float, b: float) -> Float[Tensor, ""]:
    r"""The same as a mixture of coins: log of :math:`\int z^s (1 - z)^{n - s} \mathrm{Beta}(z; a, b) dz`.

    Args:
        bits: Of 0 and 1; s of n are 1.
        a: Of the Beta law of z, positive.
        b: Its other parameter.

    Raises:
        ValueError: A parameter is not positive and finite.

    Reference: Bernardo and Smith 1994, Section 4.3.1, Proposition 4.1.
    """
    one, zero = _parameters(a, b)
    s, n = bits.double().sum(), len(bits)

    def log_beta(x: Tensor, y: Tensor) -> Tensor:
        return x.lgamma() + y.lgamma() - (x + y).lgamma()

    return log_beta(one + s, zero + n - s) - log_beta(one, zero)


def urn(count: int, length: int, a: float, b: float, *, generator: Generator) -> Int[Tensor, "count length"]:
    """Sequences of bits drawn from urns.

    Args:
        count: Urns.
        length: Draws from each.
        a: Ones in an urn at first, positive.
        b: Zeros.
        generator: What is drawn from.

    Raises:
        ValueError: A number is not positive and finite.
    """
    one, zero = _parameters(a, b)
    u = torch.rand(count, length, generator=generator, dtype=torch.float64)
    bits, ones = torch.zeros(count, length, dtype=torch.int64), torch.zeros(count, dtype=torch.float64)
    for n in range(length):
        bits[:, n] = (u[:, n] < (one + ones) / (one + zero + n)).long()
        ones += bits[:, n]
    return bits


def without_replacement(ones: int, total: int) -> Float[Tensor, "2 2"]:
    """The law of two draws without replacement from ``total`` bits, ``ones`` of them 1: exchangeable.

    Its covariance is -p(1 - p) / (total - 1), below 0, so it is no mixture of independent pairs.

    Args:
        ones: From 0 to total.
        total: At least 2.

    Raises:
        ValueError: Two cannot be drawn, or there are more ones than bits.

    Reference: Diaconis and Freedman 1980, Section 1.
    """
    if not (total >= 2 and 0 <= ones <= total):
        raise ValueError(f"two draws need 2 bits or more, and ones among them: got {ones} ones of {total}")
    kinds = torch.tensor([total - ones, ones], dtype=torch.float64)
    return (kinds[:, None] * kinds - kinds.diag()) / (total * (total - 1))


def positive(concentration: float) -> float:
    """The concentration itself, checked to be positive and finite.

    Raises:
        ValueError: It is not.
    """
    if not 0 < concentration < math.inf:
        raise ValueError(f"concentration must be positive and finite: got {concentration}")
    return concentration


def seats(count: int, concentration: float, *, generator: Generator) -> Int[Tensor, " customers"]:
    """The table of each customer, numbered as they are opened.

    Args:
        count: Customers, at least 1.
        concentration: alpha, positive.
        generator: What is drawn from.

    Raises:
        ValueError: There is no customer, or the concentration is not positive and finite.

    Reference: Aldous 1985, Section 11; Pitman 2006, Section 3.1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1: got {count}")
    alpha, sizes, tables = positive(concentration), [0] * count, []
    u = torch.rand(count, generator=generator, dtype=torch.float64).tolist()
    opened = 0
    for n in range(count):
        left, table = u[n] * (n + alpha), 0
        while table < opened and left >= sizes[table]:
            left -= sizes[table]
            table += 1
        opened = max(opened, table + 1)
        sizes[table] += 1
        tables.append(table)
    return torch.tensor(tables)


def partition_log_prob(sizes: Int[Tensor, " tables"], concentration: float) -> Float[Tensor, ""]:
    r"""The log-probability of one partition of customers, in nats, in float64: of the tables' sizes alone.

    .. math:: \frac{\Gamma(\alpha)}{\Gamma(\alpha + N)} \alpha^K \prod_k (n_k - 1)!

    Args:
        sizes: n_k, at least 1.
        concentration: alpha, positive.

    Raises:
        ValueError: A table is empty, or the concentration is not positive and finite.

    Reference: Antoniak 1974, Proposition 3; Pitman 2006, Equation 2.19.
    """
    alpha = torch.tensor(positive(concentration), dtype=torch.float64)
    if not len(sizes) or int(sizes.min()) < 1:
        raise ValueError(f"a table has a customer: got sizes {sizes.tolist()}")
    total = alpha.lgamma() - (alpha + sizes.sum()).lgamma()
    return total + len(sizes) * alpha.log() + sizes.double().lgamma().sum()


def dishes(count: int, concentration: float, *, generator: Generator) -> Int[Tensor, "customers dishes"]:
    """Which customer took which dish, the dishes in the order in which they were first taken.

    Args:
        count: Customers, at least 1.
        concentration: alpha, positive.
        generator: What is drawn from.

    Raises:
        ValueError: There is no customer, or the concentration is not positive and finite.

    Reference: Griffiths and Ghahramani 2011, Section 4.4.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1: got {count}")
    each = torch.arange(1, count + 1, dtype=torch.float64)
    new = torch.poisson(positive(concentration) / each, generator=generator).long()
    Z = torch.zeros(count, int(new.sum()), dtype=torch.int64)
    u, known = torch.rand(Z.shape, generator=generator, dtype=torch.float64), 0
    for n, fresh in enumerate(new.tolist()):
        popular = Z[:n, :known].sum(0) / (n + 1)
        Z[n, :known] = (u[n, :known] < popular).long()
        Z[n, known : known + fresh] = 1
        known += fresh
    return Z


def matrix_log_prob(Z: Int[Tensor, "customers dishes"], concentration: float) -> Float[Tensor, ""]:
    r"""The log-probability of a matrix, whatever the order of its columns, in nats, in float64.

    .. math:: \frac{\alpha^K}{\prod_h K_h!} e^{-\alpha H_N} \prod_k \frac{(N - m_k)! (m_k - 1)!}{N!}

    K_h is how often a column h occurs, m_k the sum of column k. It does not depend on the order of rows.

    Args:
        Z: Of 0 and 1; each column has a 1.
        concentration: alpha, positive.

    Raises:
        ValueError: A column has no 1, or the concentration is not positive and finite.

    Reference: Griffiths and Ghahramani 2011, Equation 14.
    """
    alpha, (n, k), m = positive(concentration), Z.shape, Z.double().sum(0)
    if not bool((m > 0).all()):
        raise ValueError(f"a dish was taken by a customer: got column {int((m == 0).nonzero()[0])} of 0")
    same = torch.unique(Z, dim=1, return_counts=True)[1].double() if k else m
    harmonic = (1 / torch.arange(1, n + 1, dtype=torch.float64)).sum()
    columns = (n - m + 1).lgamma() + m.lgamma() - math.lgamma(n + 1)
    return k * math.log(alpha) - (same + 1).lgamma().sum() - alpha * harmonic + columns.sum()


Rows = Float[Tensor, "rows dim"]
Codes = Float[Tensor, "rows features"]
Parts = Float[Tensor, "features dim"]


def cost(X: Rows, Z: Codes, A: Parts, penalty: float) -> float:
    r"""The objective :math:`\|X - Z A\|^2 + \lambda^2 K` for K features."""
    return float((X - Z @ A).square().sum()) + penalty**2 * Z.shape[1]


def bp_means(X: Rows, *, penalty: float, sweeps: int = 100) -> tuple[Codes, Parts]:
    r"""Binary codes Z and parts A that lower :math:`\|X - Z A\|^2 + \lambda^2 K` until nothing moves.

    It is the beta process (the Indian buffet) with Gaussian noise that vanishes. A sweep chooses each code
    given the others, gives a row whose squared residual exceeds lambda^2 a part of its own, and then solves
    for A; none of it raises the objective. It ends in a local minimum, from one part, the mean.

    Args:
        X: Rows.
        penalty: lambda, positive.
        sweeps: At most.

    Returns:
        Z, (rows, K) of 0 and 1, and A, (K, dim).

    Raises:
        ValueError: The penalty is not positive and finite, or there is no sweep.

    Reference: Broderick, Kulis and Jordan 2013, Algorithm 1.
    """
    if not 0 < penalty < math.inf or sweeps < 1:
        raise ValueError(f"penalty must be positive and finite, sweeps at least 1: got {penalty}, {sweeps}")
    Z, A = X.new_ones(len(X), 1), X.mean(0, keepdim=True)
    for _ in range(sweeps):
        before = Z
        Z, A = _sweep(X, Z.clone(), A, penalty)
        Z = Z[:, Z.any(0)]
        A = torch.linalg.pinv(Z) @ X
        if Z.shape == before.shape and torch.equal(Z, before):
            break
    return Z, A


def _sweep(X: Tensor, Z: Tensor, A: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    for n, x in enumerate(X):
        for k in range(len(A)):
            without = x - Z[n] @ A + Z[n, k] * A[k]
            Z[n, k] = float((without - A[k]).square().sum() < without.square().sum())
        rest = x - Z[n] @ A
        if float(rest.square().sum()) > penalty**2:
            A = torch.cat((A, rest[None]))
            Z = torch.cat((Z, torch.zeros_like(Z[:, :1])), 1)
            Z[n, -1] = 1.0
    return Z, A
