"""Back-tests against errors by hand; the block interval against theory on noise, alone and overlapping."""

import math

import pytest
import torch
from torch import nn

from margin.data.formats.series.sources import from_series
from margin.sequence.forecast.backtest import (
    Backtest,
    backtest,
    block_interval,
    block_means,
    blocks_of,
    neighbor_correlation,
    skill,
)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Constant(nn.Module):
    def __init__(self, value, horizon, targets, quantiles=False):
        super().__init__()
        self.value, self.shape, self.quantiles = value, (horizon, targets), quantiles

    def forward(self, x):
        out = x.new_full((len(x), *self.shape), self.value)
        return torch.stack((out - 1, out, out + 1), -1) if self.quantiles else out


def test_errors_are_those_of_each_origin_step_and_target():
    x = torch.arange(60.0)[:, None] * torch.tensor([1.0, 2.0])
    windows = from_series(x, context=4, horizon=3, test=0.3, val=0.0, target="column_2").splits["test"]
    test = backtest(Constant(100.0, 3, 1), windows, every=5)
    assert test.origins.tolist() == [42, 47, 52, 57]
    assert test.truth[1, :, 0].tolist() == [94, 96, 98]
    assert test.absolute()[1, :, 0].tolist() == [6, 4, 2]
    assert test.squared()[1, :, 0].tolist() == [36, 16, 4]
    assert test.absolute("last value")[1, :, 0].tolist() == [2, 4, 6]  # 92 was the last
    assert test.context[:, 0].tolist() == [106, 108, 110, 112]
    assert list(test.baselines) == ["last value"]
    with pytest.raises(ValueError, match="no quantiles"):
        _ = test.covered


def test_a_season_ago_and_a_band():
    x = torch.tensor([0.0, 5.0, 1.0] * 30)[:, None]
    windows = from_series(x, context=6, horizon=4, test=0.3, val=0.0).splits["test"]
    test = backtest(Constant(4.0, 4, 1, quantiles=True), windows, period=3)
    assert test.squared("3 rows ago").max() == 0
    assert torch.equal(test.covered[..., 0], (test.truth[..., 0] == 5).float())  # the end of [3, 5] is inside
    assert torch.equal(test.forecast, torch.full_like(test.forecast, 4.0))


def test_wrong_backtests_are_refused():
    windows = from_series(torch.arange(60.0), context=4, horizon=3).splits["test"]
    with pytest.raises(ValueError, match="every"):
        backtest(Constant(0.0, 3, 1), windows, every=0)
    with pytest.raises(ValueError, match="period"):
        backtest(Constant(0.0, 3, 1), windows, period=5)
    from dataclasses import replace

    with pytest.raises(ValueError, match="what followed"):
        backtest(Constant(0.0, 3, 1), replace(windows, known=False))


def test_blocks_are_as_long_as_a_horizon_and_at_most_twenty():
    assert blocks_of(12, 3) == 4
    assert blocks_of(60, 3) == 20
    assert blocks_of(10_000, 3) == 20
    with pytest.raises(ArithmeticError, match="4 blocks of 3 origins: there are 11"):
        blocks_of(11, 3)
    assert block_means(torch.arange(7.0), 3).tolist() == [1.0, 3.5, 5.5]


def test_the_interval_is_students_of_the_block_means():
    means = torch.tensor([1.0, 2.0, 4.0, 5.0])
    low, high = block_interval(means.repeat_interleave(5), 5)
    half = 3.182446 * math.sqrt((4 + 1 + 1 + 4) / 3 / 4)  # t of 3 degrees of freedom, 97.5 %
    assert low.item() == pytest.approx(3 - half, rel=1e-5)
    assert high.item() == pytest.approx(3 + half, rel=1e-5)


@pytest.mark.parametrize("horizon", [1, 12])
def test_the_interval_holds_the_mean_as_often_as_it_says(horizon):
    # Sums over a sliding window share their rows, as errors of neighboring forecasts do. Of 400 intervals of
    # 95 % at least 348 must hold 0: with 0.95 fewer have probability 1e-7, with 0.93 3e-5
    hits = 0
    for seed in range(400):
        x = noise(480 + horizon - 1, seed=seed).unfold(0, horizon, 1).mean(1)
        low, high = block_interval(x, horizon)
        hits += int(low <= 0 <= high)
    assert hits >= 348


def test_origins_taken_as_independent_would_say_too_much():
    # the mutant that kills: without blocks, overlapping windows give intervals several times too narrow
    hits = 0
    for seed in range(400):
        x = noise(480 + 11, seed=seed).unfold(0, 12, 1).mean(1)
        hits += int(x.mean().abs() <= 1.96 * x.std() / math.sqrt(len(x)))
    assert hits < 348


def test_neighbors_of_a_trend_are_correlated_and_of_noise_are_not():
    assert neighbor_correlation(torch.arange(200.0), 5) > 0.7
    assert abs(neighbor_correlation(noise(2000), 5)) < 4 / math.sqrt(20)


def test_skill_is_the_share_of_the_error_that_is_saved():
    base = 1 + noise(100, 2).square()
    value, stderr = skill(0.25 * base, base, 5)
    assert value == pytest.approx(0.75)
    assert stderr == pytest.approx(0, abs=1e-12)
    both = torch.stack((base[:, 0] * 0, base[:, 1] * 3), 1)
    assert skill(both, base, 5)[0] == pytest.approx(
        1 - 1.5
    )  # a unit does not count: 0 and 3 of each target's own
    with pytest.raises(ArithmeticError, match="is 0"):
        skill(base, 0 * base, 5)


def test_the_jackknife_is_the_spread_of_the_ratio():
    # 2,000 ratios of means of 200 pairs: the estimates' own deviation, within 10 %
    values, errors = [], []
    for seed in range(2000):
        e, b = noise(2, 200, 1, seed=seed).square() + 0.5
        value, stderr = skill(e, b, 1)
        values.append(value)
        errors.append(stderr)
    spread = torch.tensor(values).std().item()
    assert torch.tensor(errors).mean().item() == pytest.approx(spread, rel=0.1)


def test_of_a_baseline_without_spread_the_jackknife_is_the_standard_error_of_a_mean():
    error = noise(100, 1).square()
    _, stderr = skill(error, torch.ones_like(error), 5)
    means = block_means(error, 20)
    assert stderr == pytest.approx(means.std().item() / math.sqrt(20), rel=1e-12)


def test_the_ends_of_a_band_are_covered() -> None:
    """Mutants: an end left out; half of the truths lie on one where a series holds still."""
    truth = torch.tensor([0.9, 1.0, 1.5, 2.0, 2.1]).reshape(5, 1, 1)
    band = (torch.full_like(truth, 1.0), torch.full_like(truth, 2.0))
    found = Backtest(torch.arange(5), truth, truth, band, {}, truth[0])
    assert found.covered.flatten().tolist() == [0, 1, 1, 1, 0]
