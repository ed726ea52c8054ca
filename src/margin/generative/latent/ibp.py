r"""The Indian buffet process (Griffiths and Ghahramani 2005): binary rows with no bound on their length.

Customer n takes dish k with probability :math:`m_k / n`, of those m_k that took it before, and then a number
of new dishes that is Poisson of mean :math:`\alpha / n`.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from margin.generative.latent.crp import positive


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


def expected_dishes(count: int, concentration: float) -> float:
    r"""The mean number of dishes that N customers take, :math:`\alpha H_N`; it is Poisson.

    Reference: Griffiths and Ghahramani 2011, Section 4.6.
    """
    return positive(concentration) * math.fsum(1 / i for i in range(1, count + 1))
