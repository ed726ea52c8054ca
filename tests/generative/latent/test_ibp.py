"""The Indian buffet: matrices of four customers by the rule, the order of rows, means, what is refused."""

import itertools
import math
from collections import Counter

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.latent.exchangeable import dishes, matrix_log_prob, positive


def expected_dishes(count: int, concentration: float) -> float:
    r"""The mean number of dishes that N customers take, :math:`\alpha H_N`; it is Poisson.

    Reference: Griffiths and Ghahramani 2011, Section 4.6.
    """
    return positive(concentration) * math.fsum(1 / i for i in range(1, count + 1))


COLUMNS = [c for c in itertools.product((0, 1), repeat=4) if any(c)]


def matrices(most: int) -> list[Tensor]:
    """All matrices of four rows with up to ``most`` columns, one of each class of column orders."""
    chosen = (itertools.combinations_with_replacement(COLUMNS, k) for k in range(1, most + 1))
    return [torch.tensor(c).T for c in itertools.chain(*chosen)]


def by_the_rule(Z: Tensor, alpha: float) -> float:
    """The probability of the class of Z: that of the buffet, times the orders of columns that it may give."""
    Z = Z[:, sorted(range(Z.shape[1]), key=lambda k: int(Z[:, k].argmax()))]  # as dishes are first taken
    p, known = 1.0, 0
    ways = 1.0
    for n in range(len(Z)):
        m = Z[:n, :known].sum(0)
        for k in range(known):
            share = float(m[k]) / (n + 1)
            p *= share if Z[n, k] else 1 - share
        new = int(Z[n, known:].sum())
        rate = alpha / (n + 1)
        p *= math.exp(-rate) * rate**new / math.factorial(new)
        ways *= math.factorial(new)
        known += new
    for times in Counter(tuple(c) for c in Z.T.tolist()).values():
        ways /= math.factorial(times)
    return p * ways


@pytest.mark.parametrize("alpha", [0.4, 1.3])
def test_the_probability_is_that_of_the_rule_for_matrices_of_four(alpha: float) -> None:
    empty = float(matrix_log_prob(torch.zeros(4, 0, dtype=torch.int64), alpha).exp())
    assert empty == pytest.approx(math.exp(-alpha * 25 / 12))
    for Z in matrices(2):
        assert float(matrix_log_prob(Z, alpha)) == pytest.approx(math.log(by_the_rule(Z, alpha)), abs=1e-12)


def test_matrices_of_up_to_four_dishes_have_the_poisson_weight() -> None:
    """The number of dishes is Poisson of mean alpha H_4, so all matrices of K columns sum to its weight."""
    alpha = 0.5
    mean, total = alpha * 25 / 12, Counter[int]()
    for Z in matrices(4):
        total[Z.shape[1]] += float(matrix_log_prob(Z, alpha).exp())  # type: ignore[assignment]
    for k in (1, 2, 3, 4):
        assert total[k] == pytest.approx(math.exp(-mean) * mean**k / math.factorial(k), rel=1e-12)


def test_the_order_of_customers_does_not_matter() -> None:
    for Z in matrices(2)[::5]:
        first = by_the_rule(Z, 0.9)
        for order in itertools.permutations(range(4)):
            assert by_the_rule(Z[list(order)], 0.9) == pytest.approx(first, rel=1e-12)


def test_draws_have_the_mean_number_of_dishes_each_row_a_poisson_number_and_popular_ones() -> None:
    g, n = Generator().manual_seed(0), 1500
    drawn = [dishes(6, 1.5, generator=g) for _ in range(n)]
    assert all(bool((Z.sum(0) > 0).all()) for Z in drawn)
    found = torch.tensor([Z.shape[1] for Z in drawn]).double()
    assert expected_dishes(6, 1.5) == pytest.approx(1.5 * 2.45)
    assert float(found.mean()) == pytest.approx(1.5 * 2.45, abs=4.5 * math.sqrt(1.5 * 2.45 / n))
    for row in range(6):  # each row's sum is Poisson of mean alpha: six tests, one seed in 20,000 fails
        taken = torch.tensor([float(Z[row].sum()) for Z in drawn])
        assert float(taken.mean()) == pytest.approx(1.5, abs=4.5 * math.sqrt(1.5 / n))


def test_draws_have_the_probability_of_matrices_of_two() -> None:
    g, n = Generator().manual_seed(1), 4000
    drawn = Counter(tuple(map(tuple, dishes(2, 0.7, generator=g).T.tolist())) for _ in range(n))
    for columns in ((), ((1, 1),), ((1, 0),), ((0, 1),)):
        Z = torch.tensor(columns, dtype=torch.int64).reshape(-1, 2).T
        p = float(matrix_log_prob(Z, 0.7).exp())
        assert drawn[columns] / n == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / n))


def test_what_is_no_buffet_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1: got 0"):
        dishes(0, 1.0, generator=Generator())
    for alpha in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="concentration must be positive and finite"):
            dishes(3, alpha, generator=Generator())
    with pytest.raises(ValueError, match="got column 1 of 0"):
        matrix_log_prob(torch.tensor([[1, 0], [1, 0]]), 1.0)
