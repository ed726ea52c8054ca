"""The discrepancy beside its sums and the closed form between Gaussians; its error beside the spread."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from torch import Generator

from margin.math.two_samples.mmd import gaussian_kernel, median_distance, squared_mmd


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed)).double()


def by_hand(x: np.ndarray, y: np.ndarray, s: float) -> float:
    def mean(a: np.ndarray, b: np.ndarray, same: bool) -> float:
        terms = [
            math.exp(-float(((u - v) ** 2).sum()) / (2 * s * s))
            for i, u in enumerate(a)
            for j, v in enumerate(b)
            if not (same and i == j)
        ]
        return sum(terms) / len(terms)

    return mean(x, x, True) + mean(y, y, True) - 2 * mean(x, y, False)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 8), (16, 9)])
def test_the_estimate_is_its_defining_sums(n: int, m: int) -> None:
    x, y = normal(n, 2), normal(m, 2, seed=1) + 1
    found = squared_mmd(x, y, bandwidth=0.7)
    assert found.value == pytest.approx(by_hand(x.numpy(), y.numpy(), 0.7), rel=1e-12)


def test_the_error_is_that_of_leaving_rows_out_one_by_one() -> None:
    x, y = normal(6, 2), normal(5, 2, seed=1)
    variance = 0.0
    for sample, without in ((x, lambda z: (z, y)), (y, lambda z: (x, z))):
        n = len(sample)
        kept = [[k for k in range(n) if k != i] for i in range(n)]
        left = np.array([by_hand(*(part.numpy() for part in without(sample[k])), 1.3) for k in kept])
        variance += (n - 1) / n * ((left - left.mean()) ** 2).sum()
    found = squared_mmd(x, y, bandwidth=1.3)
    assert found.stderr == pytest.approx(variance**0.5, rel=1e-10)


def closed_form(shift: float, spread: float, s: float, dim: int) -> float:
    """Between N(0, I) and N(shift e_1, spread^2 I): E k is a Gaussian integral."""

    def mean(variance: float, apart: float) -> float:
        return (s**2 / (s**2 + variance)) ** (dim / 2) * math.exp(-(apart**2) / (2 * (s**2 + variance)))

    return mean(2, 0) + mean(2 * spread**2, 0) - 2 * mean(1 + spread**2, shift)


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 1.0), (0.5, 1.0), (0.3, 1.5)])
def test_between_gaussians_it_is_the_closed_form_and_the_error_its_spread(
    shift: float, spread: float
) -> None:
    move = torch.tensor([shift, 0.0]).double()
    found = [
        squared_mmd(normal(60, 2, seed=2 * s), spread * normal(40, 2, seed=2 * s + 1) + move, bandwidth=1.0)
        for s in range(200)
    ]
    values = np.array([f.value for f in found])
    expected = closed_form(shift, spread, 1.0, 2)
    assert abs(values.mean() - expected) < 4.5 * values.std(ddof=1) / math.sqrt(200)  # fails once in 1e5
    stated = math.sqrt(np.mean([f.stderr**2 for f in found]))
    # never too small in expectation; 200 draws know the spread to 5 %; without a difference it is too large
    assert 0.8 * values.std() < stated < (2 if shift == 0 else 1.35) * values.std()


def test_the_median_is_over_the_pairs_of_both_samples() -> None:
    x, y = normal(7, 3), normal(4, 3, seed=1)
    pairs = np.sort(pdist(torch.cat((x, y)).numpy()))
    assert median_distance(x, y) == pytest.approx(pairs[(len(pairs) - 1) // 2], rel=1e-12)
    assert squared_mmd(x, y).bandwidth == median_distance(x, y)
    assert float(gaussian_kernel(x, x, 2.0)[0, 1]) == pytest.approx(
        math.exp(-float((x[0] - x[1]).square().sum()) / 8), rel=1e-12
    )


def test_the_p_value_of_one_law_is_uniform_and_of_two_is_the_least() -> None:
    generator = Generator().manual_seed(0)
    same = [
        squared_mmd(
            normal(15, 1, seed=3 * s), normal(12, 1, seed=3 * s + 1), permutations=19, generator=generator
        )
        for s in range(200)
    ]
    p = np.array([f.p_value for f in same])
    # P(p <= k/20) = k/20 exactly: of 200, 4.5 deviations of a binomial
    for level in (0.05, 0.25, 0.5):
        assert abs((p <= level + 1e-9).mean() - level) < 4.5 * math.sqrt(level * (1 - level) / 200)
    apart = squared_mmd(normal(15, 1), normal(12, 1) + 9, permutations=99, generator=generator)
    assert apart.p_value == 1 / 100
    assert math.isnan(squared_mmd(normal(5, 1), normal(5, 1)).p_value)


def test_equal_rows_give_no_small_p_value() -> None:
    # every permutation has the same value up to rounding
    x = torch.tensor([[0.0], [1.0], [0.0], [1.0]]).double()
    found = squared_mmd(x, x, permutations=50, generator=Generator().manual_seed(0), bandwidth=1.0)
    assert found.p_value > 0.3
    same = torch.ones(4, 1).double()
    found = squared_mmd(same, same, permutations=50, generator=Generator().manual_seed(0), bandwidth=1.0)
    assert found.p_value == 1


def test_wrong_input_is_refused() -> None:
    x = normal(4, 2)
    with pytest.raises(ValueError, match="at least 3 rows: got 2"):
        squared_mmd(x[:2], x)
    with pytest.raises(ValueError, match="median distance must be positive: half of the rows are equal"):
        squared_mmd(torch.ones(4, 2), torch.ones(4, 2))
    with pytest.raises(ValueError, match="bandwidth must be positive: got 0"):
        squared_mmd(x, x, bandwidth=0.0)
    with pytest.raises(ValueError, match="bandwidth must be positive: got nan"):
        squared_mmd(x, x, bandwidth=math.nan)
    with pytest.raises(ValueError, match="permutations need a generator: got 9 without one"):
        squared_mmd(x, x, permutations=9)
