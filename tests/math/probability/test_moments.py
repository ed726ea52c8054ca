"""Moments of finite laws against sums by hand; the variance of a sum counts pairs twice."""

from itertools import product

import pytest
import torch

from margin.math.probability.moments import affine_moments, covariance, mean, variance_of_sum


def finite(points=6, dim=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(points, dim, generator=g, dtype=torch.float64)
    p = torch.rand(points, generator=g, dtype=torch.float64)
    return x, p / p.sum()


def test_the_mean_weighs_each_value():
    x = torch.tensor([[1.0, 0.0], [2.0, 4.0], [5.0, -8.0]], dtype=torch.float64)
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert mean(x, p).tolist() == [2.25, -1.0]
    assert float(mean(x[:, 0], p)) == 2.25
    # Var = E X^2 - (E X)^2 by hand; Cov = E XY - E X E Y
    assert covariance(x, p).tolist() == [[7.75 - 2.25**2, -8 + 2.25], [-8 + 2.25, 20.0 - 1.0]]


def test_the_mean_printed_without_the_value_is_the_total_probability():
    x, p = finite()
    assert float(p.sum()) == pytest.approx(1, abs=1e-15)
    assert float((mean(x, p) - 1).abs().max()) > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_affine_maps_move_moments_whatever_the_law(seed):
    x, p = finite(seed=seed)
    g = torch.Generator().manual_seed(seed + 99)
    A = torch.randn(2, 3, generator=g, dtype=torch.float64)
    b = torch.randn(2, generator=g, dtype=torch.float64)
    moved = x @ A.mT + b
    m, S = affine_moments(mean(x, p), covariance(x, p), A, b)
    torch.testing.assert_close(m, mean(moved, p), rtol=0, atol=1e-13)
    torch.testing.assert_close(S, covariance(moved, p), rtol=0, atol=1e-13)
    assert bool((torch.linalg.eigvalsh(S) > -1e-13).all())


def test_the_variance_of_a_sum_counts_every_pair_twice():
    x, p = finite()
    a = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    S = covariance(x, p)
    direct = float(covariance((x @ a)[:, None], p))
    assert float(variance_of_sum(a, S)) == pytest.approx(direct, abs=1e-13)
    squares = float((a.square() * S.diagonal()).sum())
    pairs = sum(float(a[i] * a[j] * S[i, j]) for i in range(3) for j in range(i + 1, 3))
    assert squares + 2 * pairs == pytest.approx(direct, abs=1e-13)
    assert abs(squares + pairs - direct) > 0.1  # as some notes print it, without the 2


def test_independence_makes_the_covariance_0_but_not_the_converse():
    x, p = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.3, 0.2, 0.5])
    y, q = torch.tensor([1.0, 5.0]), torch.tensor([0.4, 0.6])
    pairs = torch.tensor([[float(a), float(b)] for a, b in product(x, y)])
    weights = (p[:, None] * q).flatten()
    assert float(covariance(pairs, weights)[0, 1]) == pytest.approx(0, abs=1e-6)
    # X symmetric, Y = X^2: the covariance is 0, yet Y is a function of X
    symmetric = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    law = torch.full((3,), 1 / 3, dtype=torch.float64)
    both = torch.stack((symmetric, symmetric.square()), 1)
    assert float(covariance(both, law)[0, 1]) == pytest.approx(0, abs=1e-16)
    p_both, p_x, p_y = law[1], law[1], law[1]  # at X = 0, Y = 0
    assert float(p_both) != pytest.approx(float(p_x * p_y))


def test_what_is_no_law_has_no_moments():
    with pytest.raises(ValueError, match="p must sum to 1: got 2"):
        mean(torch.zeros(2, 3), torch.ones(2))
