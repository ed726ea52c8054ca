"""The Chinese restaurant: all seatings of four by the rule, their order, means, refusals."""

import itertools
import math

import pytest
import torch
from torch import Generator

from margin.generative.latent.exchangeable import partition_log_prob, positive, seats


def expected_tables(count: int, concentration: float) -> float:
    r"""The mean number of tables of N customers, :math:`\sum_i \alpha / (\alpha + i - 1)`.

    Reference: Antoniak 1974, Section 2; Pitman 2006, Section 3.3.
    """
    alpha = positive(concentration)
    return math.fsum(alpha / (alpha + i) for i in range(count))


def seatings(n: int) -> list[tuple[int, ...]]:
    """All sequences of tables in which a new table is the next number."""
    every = itertools.product(range(n), repeat=n)
    return [s for s in every if all(s[i] <= max(s[:i], default=-1) + 1 for i in range(n))]


def by_the_rule(tables: tuple[int, ...], alpha: float) -> float:
    p = 1.0
    for n, table in enumerate(tables):
        before = tables[:n].count(table)
        p *= (before or alpha) / (n + alpha)
    return p


def sizes(tables: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(tables).bincount()


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_the_probability_is_that_of_the_rule_for_all_seatings_of_four(alpha: float) -> None:
    total = 0.0
    assert len(seatings(4)) == 15  # Bell's number
    for tables in seatings(4):
        p = by_the_rule(tables, alpha)
        assert float(partition_log_prob(sizes(tables), alpha)) == pytest.approx(math.log(p), abs=1e-12)
        total += p
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_order_of_customers_does_not_matter() -> None:
    def renamed(tables: tuple[int, ...]) -> tuple[int, ...]:
        first = list(dict.fromkeys(tables))
        return tuple(first.index(t) for t in tables)

    for tables in seatings(4):
        for order in itertools.permutations(range(4)):
            turned = renamed(tuple(tables[i] for i in order))
            assert by_the_rule(turned, 0.7) == pytest.approx(by_the_rule(tables, 0.7), abs=1e-15)


def test_the_mean_number_of_tables_is_the_sum_over_all_seatings_and_of_draws() -> None:
    exact = sum(by_the_rule(s, 1.7) * len(set(s)) for s in seatings(4))
    assert expected_tables(4, 1.7) == pytest.approx(exact, abs=1e-12)
    g = Generator().manual_seed(0)
    found = torch.tensor([len(set(seats(50, 2.0, generator=g).tolist())) for _ in range(1500)]).double()
    error = float(found.std()) / math.sqrt(1500)
    assert float(found.mean()) == pytest.approx(expected_tables(50, 2.0), abs=4.5 * error)  # 1 seed in 10^5


def test_draws_have_the_probabilities_of_all_seatings_of_three() -> None:
    """Five frequencies within 4.5 deviations: fails for one seed in 30,000."""
    g, n = Generator().manual_seed(1), 6000
    drawn = [tuple(seats(3, 0.8, generator=g).tolist()) for _ in range(n)]
    for tables in seatings(3):
        p = by_the_rule(tables, 0.8)
        assert drawn.count(tables) / n == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_a_concentration_that_is_none_is_refused(alpha: float) -> None:
    for ask in (
        lambda: seats(3, alpha, generator=Generator()),
        lambda: partition_log_prob(torch.tensor([1]), alpha),
        lambda: expected_tables(3, alpha),
    ):
        with pytest.raises(ValueError, match="concentration must be positive and finite"):
            ask()
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        seats(0, 1.0, generator=Generator())
    with pytest.raises(ValueError, match=r"a table has a customer: got sizes \[2, 0\]"):
        partition_log_prob(torch.tensor([2, 0]), 1.0)
