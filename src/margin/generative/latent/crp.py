r"""The Chinese restaurant process (Aldous 1985): customers at any number of tables.

Customer n sits down at table k with probability :math:`n_k / (n - 1 + \alpha)`, at a new one with
:math:`\alpha / (n - 1 + \alpha)`. The order in which customers come does not matter.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def positive(concentration: float) -> float:
    """The concentration, once it is seen to be positive and finite.

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


def expected_tables(count: int, concentration: float) -> float:
    r"""The mean number of tables of N customers, :math:`\sum_i \alpha / (\alpha + i - 1)`.

    Reference: Antoniak 1974, Section 2; Pitman 2006, Section 3.3.
    """
    alpha = positive(concentration)
    return math.fsum(alpha / (alpha + i) for i in range(count))
