"""BP-means: planted binary features come back, the objective never rises, penalties are checked."""

import itertools
import math

import pytest
import torch
from torch import Generator

from margin.generative.latent.exchangeable import bp_means, cost


def planted() -> tuple[torch.Tensor, torch.Tensor]:
    Z = ((torch.arange(24)[:, None] >> torch.arange(2)) & 1).double()
    B = torch.tensor([[3.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 2.0]]).double()
    return Z @ B + 0.01 * torch.randn(24, 4, generator=Generator().manual_seed(0)).double(), Z


def test_rows_of_planted_parts_are_made_by_few_binary_features() -> None:
    X, _ = planted()
    Z, A = bp_means(X, penalty=2.0)
    assert set(Z.unique().tolist()) <= {0.0, 1.0}
    assert 2 <= Z.shape[1] <= 4
    assert float((X - Z @ A).square().sum()) < 0.1


def test_more_sweeps_cost_no_more() -> None:
    X = torch.randn(30, 3, generator=Generator().manual_seed(1)).double()
    costs = [cost(X, *bp_means(X, penalty=1.0, sweeps=n), 1.0) for n in range(1, 12)]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(costs))
    assert costs[0] <= cost(X, torch.ones(30, 1).double(), X.mean(0, keepdim=True), 1.0)


def test_a_penalty_above_every_residual_leaves_one_feature_and_a_small_one_leaves_little() -> None:
    X, _ = planted()
    assert bp_means(X, penalty=100.0)[0].shape == (24, 1)
    Z, A = bp_means(X, penalty=1e-3)
    assert float((X - Z @ A).square().sum(1).max()) <= 1e-6 + 1e-12


def test_a_penalty_that_is_none_is_refused() -> None:
    for penalty in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="penalty must be positive and finite"):
            bp_means(torch.ones(3, 2).double(), penalty=penalty)
    with pytest.raises(ValueError, match=r"sweeps at least 1: got 1\.0, 0"):
        bp_means(torch.ones(3, 2).double(), penalty=1.0, sweeps=0)
