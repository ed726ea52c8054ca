"""Coverage and skill of forecasts whose answer is known; too few origins, NaN and other models."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.tasks import CLASSES, QUANTILES, SERIES
from margin.core.types import Batch
from margin.data.examples import InOrder
from margin.data.formats.series.windows import Windows
from margin.engine.loop import risk
from margin.sequence.forecast.claims import (
    coverage,
    demo,
    errors,
    forecast_skill,
    is_forecast,
    is_quantile_forecast,
)
from margin.theory.prediction.held_out import Terms, mean_limits
from margin.theory.prediction.risk import loss


class Band(nn.Module):
    """mean + width (-1, 0, 1) at every step."""

    def __init__(self, mean, width, horizon):
        super().__init__()
        self.mean, self.width, self.horizon = mean, width, horizon

    def forward(self, x):
        each = self.mean + self.width * x.new_tensor([-1.0, 0.0, 1.0])
        return each.expand(len(x), self.horizon, x.shape[2], 3)


class Copy(nn.Module):
    """The last value, moved by ``shift``."""

    def __init__(self, horizon, shift=0.0):
        super().__init__()
        self.horizon, self.shift = horizon, shift

    def forward(self, x):
        return x[:, -1:].expand(-1, self.horizon, -1) + self.shift


def subject(model, task=QUANTILES, rows=6003, horizon=2, walk=False):
    x = torch.randn(rows, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.cumsum(0) if walk else x
    windows = x.unfold(0, 2 + horizon, 1).transpose(1, 2)
    batches = [Batch((w[:, :2],), w[:, 2:]) for w in windows.split(1000)]
    return Subject(model=model, test=batches, task=task, objective=risk(task))


def test_the_true_quantiles_cover_what_they_promise():
    finding = coverage(demo())
    assert finding.verdict is Verdict.HOLDS
    assert finding.value.item() == pytest.approx(0.8, abs=0.02)
    assert len(finding.assuming) == 3


def test_a_band_of_one_deviation_covers_what_a_normal_law_says_and_breaks_nothing():
    finding = coverage(subject(Band(0.0, 1.0, 2)))
    expected = math.erf(1 / math.sqrt(2))  # 0.6827
    assert finding.value.item() == pytest.approx(expected, abs=4 * math.sqrt(0.22 / 3000))
    assert finding.verdict is Verdict.MEASURED  # a promise in the limit is never violated
    low, high = finding.verdict_interval
    assert low < expected < high


def test_the_ends_of_a_band_are_inside():
    finding = coverage(subject(Band(0.0, 0.0, 2)))
    assert finding.value.item() == 0
    exact = Subject(
        model=Band(1.0, 0.0, 2),
        test=[Batch((torch.ones(40, 2, 1).double(),), torch.ones(40, 2, 1).double())],
        task=QUANTILES,
        objective=risk(QUANTILES),
    )
    assert coverage(exact).value.item() == 1


@pytest.mark.parametrize("wrong", [2, 38])
def test_no_share_is_below_0_or_above_1(wrong):
    """Of 40 origins so many lie outside, in one block: t of 19 degrees leads past the end."""
    truth = torch.ones(40, 1, 1).double()
    truth[:wrong] = 5.0
    batch = Batch((torch.ones(40, 2, 1).double(),), truth)
    model, task = Band(1.0, 0.5, 1), risk(QUANTILES)
    finding = coverage(Subject(model=model, test=[batch], task=QUANTILES, objective=task))
    low, high = finding.interval
    assert (low.item(), high.item())[wrong == 2] == (1.0 if wrong == 2 else 0.0)
    assert 0 <= low < finding.value < high <= 1


def test_too_few_origins_give_no_interval():
    finding = coverage(subject(Band(0.0, 1.28, 4), rows=20, horizon=4))
    assert finding.verdict is Verdict.FAILED
    assert "4 blocks of 4 origins" in finding.failure
    assert forecast_skill(subject(Copy(4), SERIES, rows=20, horizon=4)).verdict is Verdict.FAILED


def test_nan_fails():
    assert coverage(subject(Band(math.nan, 1.0, 2))).verdict is Verdict.FAILED
    assert forecast_skill(subject(Copy(2, math.nan), SERIES)).verdict is Verdict.FAILED


def test_the_mean_of_noise_saves_half_of_what_the_last_value_costs():
    # E (x' - x)^2 = 2 against E x'^2 = 1
    finding = forecast_skill(demo())
    assert finding.value.item() == pytest.approx(0.5, abs=0.03)
    low, high = finding.verdict_interval
    assert low < 0.5 < high
    assert finding.verdict is Verdict.MEASURED


def test_no_change_saves_nothing_and_on_a_walk_a_shift_loses():
    same = forecast_skill(subject(Copy(2), SERIES, walk=True))
    assert same.value.item() == 0
    # error 1 + s^2 and 2 + s^2 against 1 and 2: with s = 1 it is 2.5 / 1.5
    worse = forecast_skill(subject(Copy(2, 1.0), SERIES, walk=True))
    assert worse.value.item() == pytest.approx(1 - 2.5 / 1.5, abs=0.1)


def test_it_is_asked_of_forecasts_alone():
    found = demo()
    assert is_forecast(found)
    assert is_quantile_forecast(found)
    assert not is_quantile_forecast(subject(Copy(2), SERIES))
    assert is_forecast(subject(Copy(2), SERIES))
    assert not is_forecast(replace(found, task=CLASSES))
    assert not is_forecast(replace(found, test=[Batch(found.test[0].inputs)]))
    wide = [Batch((torch.zeros(4, 2, 3),), torch.zeros(4, 2, 1))]  # whose column is not known
    assert not is_forecast(replace(found, test=wide))


def test_asking_leaves_no_trace_and_the_rows_name_the_needs():
    found = demo()
    found.model.train()
    coverage(found)
    assert found.model.training
    for name in ("sequence/forecast.coverage", "sequence/forecast.errors", "sequence/forecast.skill"):
        assert claims()[name].refusal(found) == ""
        assert claims()[name].refusal(replace(found, task=CLASSES)).startswith("is asked only of forecasts")


def test_curves_hold_a_forecast_beside_what_followed():
    curves = coverage(demo()).curves
    assert curves["truth"].shape == curves["forecast"].shape == curves["band low"].shape == (2,)
    assert bool((curves["band low"] < curves["band high"]).all())
    by_step = forecast_skill(demo()).curves
    assert by_step["steps ahead"].tolist() == [1, 2]
    assert by_step["last value"].mean().item() == pytest.approx(1, abs=0.01)


def test_the_skill_of_a_forecast_of_values_shows_one():
    curves = forecast_skill(subject(Copy(2, 1.0), SERIES)).curves
    k = len(curves["truth"])
    assert curves["forecast"].shape == (k,) == curves["steps ahead"].shape
    # the copy of the last value that was read, less nothing but its shift
    assert torch.allclose(curves["forecast"], (curves["past"][-1] + 1.0).expand(k))
    assert "forecast" not in forecast_skill(demo()).curves


def test_coverage_by_step_stands_in_the_order_of_the_steps():
    class Widening(nn.Module):
        """Bands of 1/2, 1 and 2 deviations, 1, 2 and 3 steps ahead."""

        def forward(self, x):
            half = x.new_tensor([0.5, 1.0, 2.0])[:, None, None] * x.new_tensor([-1.0, 0.0, 1.0])
            return half.expand(len(x), 3, x.shape[2], 3)

    made = subject(Widening(), horizon=3)
    found = coverage(made).curves["coverage by step"].tolist()
    # Of a normal law within k deviations: erf(k / sqrt 2) = .3829, .6827, .9545; 5 sd of 6,000 draws.
    assert found == pytest.approx([math.erf(k / math.sqrt(2)) for k in (0.5, 1.0, 2.0)], abs=0.033)


def test_absolute_errors_of_white_noise_are_those_of_a_normal_law():
    """N(5, 4): the median misses by 2 sqrt(2/pi), the last value by the mean size of N(0, 8)."""
    finding = errors(demo())
    assert finding.value.tolist() == pytest.approx([2 * math.sqrt(2 / math.pi)], rel=0.03)
    low, high = finding.verdict_interval
    assert low < 2 * math.sqrt(2 / math.pi) < high
    last = finding.curves["column 1, last value"]
    assert last.tolist() == pytest.approx([math.sqrt(8) * math.sqrt(2 / math.pi)] * 2, rel=0.03)
    assert finding.verdict is Verdict.MEASURED


def test_errors_stand_by_column_and_step_beside_the_season_that_the_times_say():
    """Two columns of known season: of one row every season is alike, the other rises by 24 a day."""
    hours = torch.arange(24.0 * 20)
    rows = torch.stack((hours % 24, hours), 1).double()
    windows = Windows(rows, torch.arange(48, 470), 48, 3, (0, 1), names=("sun", "age"), season=24)
    test = InOrder(windows, 64, dtype=torch.float64)
    finding = errors(Subject(model=Copy(3), test=test, task=SERIES, objective=risk(SERIES)))
    curves = {name: curve.tolist() for name, curve in finding.curves.items()}
    assert curves["steps ahead"] == [1, 2, 3]
    assert curves["age, this forecast"] == curves["age, last value"] == [1, 2, 3]
    assert curves["age, 24 rows ago"] == [24, 24, 24]
    assert curves["sun, 24 rows ago"] == [0, 0, 0]
    # a step of h hours is h, but for the h of 24 origins after which midnight lies in between: 24 - h
    expected = [sum(abs(((o + h) % 24) - ((o - 1) % 24)) for o in range(48, 470)) / 422 for h in range(3)]
    assert curves["sun, this forecast"] == pytest.approx(expected)
    assert finding.value.tolist() == pytest.approx([sum(expected) / 3, 2])
    assert "age 2 (last value 2, 24 rows ago 24)" in finding.statement


def test_the_loss_of_windows_is_over_blocks_and_of_few_windows_unfounded():
    """Against the blocks' means by numpy; mutant: each of the overlapping windows is a draw of its own."""
    rows = torch.randn(300, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).cumsum(0)

    def of(origins, horizon):
        windows = Windows(rows, torch.arange(20, 20 + origins), 20, horizon, (0,), names=("x",))
        test = InOrder(windows, 64, dtype=torch.float64)
        return Subject(model=Copy(horizon), test=test, task=SERIES, objective=risk(SERIES))

    found = loss(of(200, 8))
    off = (
        torch.cat([(b.inputs[0][:, -1:] - b.targets).square() for b in of(200, 8).test]).mean((1, 2)).numpy()
    )
    means = [part.mean() for part in np.array_split(off, 20)]  # 20 blocks of 10
    assert found.value.item() == pytest.approx(off.mean())
    assert found.stderr.item() == pytest.approx(np.std(means, ddof=1) / math.sqrt(20))
    assert "20 blocks of neighboring held-out windows" in found.statement
    assert found.verdict is Verdict.MEASURED
    few = loss(of(31, 8))
    assert few.verdict is Verdict.UNFOUNDED
    assert "31 windows of one series overlap" in few.premises[0].evidence
    assert loss(of(32, 8)).verdict is Verdict.MEASURED  # 4 blocks


def test_the_skill_over_a_season_ago_is_beside_that_over_the_last_value():
    """A walk by two columns of other units: each counts alike, whatever its unit; brute force."""
    noise = torch.randn(400, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows = noise.cumsum(0) * torch.tensor([1.0, 100.0])
    windows = Windows(rows, torch.arange(30, 390), 30, 4, (0, 1), names=("a", "b"), season=7)
    test = InOrder(windows, 50, dtype=torch.float64)
    found = forecast_skill(Subject(model=Copy(4, 1.0), test=test, task=SERIES, objective=risk(SERIES)))
    truth = torch.stack([rows[o : o + 4] for o in range(30, 390)])
    last = torch.stack([rows[o - 1].expand(4, 2) for o in range(30, 390)])
    season = torch.stack([rows[o - 7 : o - 3] for o in range(30, 390)])
    error, *bases = ((x - truth).square().mean((0, 1)) for x in (last + 1, last, season))
    assert found.labels == ("last value", "7 rows ago")
    assert found.value.tolist() == pytest.approx([1 - float((error / base).mean()) for base in bases])
    (low, wide_low), (high, wide_high) = zip(found.shown, found.verdict_interval, strict=True)
    assert bool((wide_low < low).all() and (low < found.value).all() and (high < wide_high).all())
    # the jackknife over blocks, by leaving one out after another
    left = []
    for part in np.array_split(np.arange(360), 20):
        kept = np.setdiff1d(np.arange(360), part)
        e, b = ((x - truth)[kept].square().mean((0, 1)) for x in (last + 1, season))
        left.append(math.log(float((e / b).mean())))
    pseudo = -19 * torch.tensor(np.array(left) - np.mean(left))
    ends = mean_limits(Terms(pseudo, torch.ones(20).double(), torch.arange(20)))
    ratio = 1 - found.value[1].item()
    assert (1 - high[1].item(), 1 - low[1].item()) == pytest.approx(tuple(ratio * math.exp(x) for x in ends))
