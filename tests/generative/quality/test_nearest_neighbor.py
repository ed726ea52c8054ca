"""Memorization: the rank test beside scipy's, right on new samples and on copies."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import KDTree
from scipy.stats import mannwhitneyu
from torch import Generator

from margin.generative.quality.measures import Nearest, copying, memorized, nearest


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed)).double()


def test_the_nearest_are_those_of_a_tree() -> None:
    x, train = normal(30, 3), normal(50, 3, seed=1)
    found = nearest(x, train, count=2)
    distance, row = KDTree(train.numpy()).query(x.numpy(), k=2)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-12)
    assert (found.row.numpy() == row).all()


def test_the_statistic_is_mann_and_whitneys() -> None:
    samples, held = normal(15).abs(), normal(11, seed=1).abs() + 0.1
    found = copying(samples, held)
    U = mannwhitneyu(samples, held).statistic
    assert found.farther == pytest.approx(U / 165, rel=1e-12)
    assert found.z == pytest.approx((U - 165 / 2) / math.sqrt(165 * 27 / 12), rel=1e-12)
    assert found.p_value == mannwhitneyu(samples, held, alternative="less").pvalue
    assert found.low < found.farther < found.high


def test_ties_count_half() -> None:
    found = copying(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0, 1.0]))
    assert found.farther == 0.5
    assert found.z == 0


def test_copies_are_found_and_new_samples_are_not() -> None:
    train, held = normal(200, 2), normal(100, 2, seed=1)
    new, copied = normal(100, 2, seed=2), train[:100] + 0.001 * normal(100, 2, seed=3)
    apart = nearest(held, train).distance[:, 0]
    honest = copying(nearest(new, train).distance[:, 0], apart, level=1 - 1e-4)
    caught = copying(nearest(copied, train).distance[:, 0], apart, level=1 - 1e-4)
    far = copying(nearest(new + 9, train).distance[:, 0], apart)
    assert honest.low < 0.5 < honest.high
    assert caught.farther < 0.05
    assert caught.high < 0.5
    assert caught.z < -3
    assert caught.p_value < 1e-6
    assert far.farther > 0.99
    assert far.p_value > 0.99


def test_the_p_value_of_new_samples_is_valid() -> None:
    train = normal(40, 2)
    p = [
        copying(
            nearest(normal(12, 2, seed=2 * s + 1), train).distance[:, 0],
            nearest(normal(12, 2, seed=2 * s + 2), train).distance[:, 0],
        ).p_value
        for s in range(120)
    ]
    # 4.5 deviations of a binomial: fails once in 1e5
    for level in (0.05, 0.3):
        assert np.mean(np.array(p) <= level) < level + 4.5 * math.sqrt(level * (1 - level) / 120)


def test_memorized_is_much_nearer_to_one_than_to_any_other() -> None:
    def of(*pairs: tuple[float, float]) -> Nearest:
        return Nearest(torch.tensor(pairs).double(), torch.zeros(len(pairs), 2, dtype=torch.int64))

    assert memorized(of((0.0, 1.0), (0.33, 1.0), (0.34, 1.0), (1.0, 1.0))) == 0.5
    assert memorized(of((0.5, 1.0)), ratio=0.5) == 0
    assert memorized(of((0.0, 0.0))) == 0  # two equal training rows: not one of them
    with pytest.raises(ValueError, match="the two nearest training rows: got one"):
        memorized(Nearest(torch.ones(3, 1).double(), torch.zeros(3, 1, dtype=torch.int64)))
    with pytest.raises(ValueError, match=r"ratio must lie in \(0, 1\): got 1"):
        memorized(of((0.0, 1.0)), ratio=1.0)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"count must be in 1 \.\. the number of training rows, 3: got 4"):
        nearest(normal(2, 2), normal(3, 2), count=4)
    with pytest.raises(ValueError, match="finite distances"):
        copying(torch.tensor([torch.nan]), torch.ones(2))
    with pytest.raises(ValueError, match="got 0 and 2"):
        copying(torch.ones(0), torch.ones(2))
