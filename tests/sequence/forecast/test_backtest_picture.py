"""The picture of a back-test is a PNG; where there are too few origins it says so."""

import pytest
import torch
from torch import nn

from margin.data.formats.series.sources import from_series
from margin.sequence.forecast.backtest import backtest, backtest_picture


class Flat(nn.Module):
    def forward(self, x):
        last = x[:, -1:].expand(-1, 4, -1)
        return torch.stack((last - 1, last, last + 1), -1)


@pytest.mark.parametrize("rows", [60, 300])
def test_a_picture_is_written(tmp_path, rows):
    windows = from_series(torch.arange(float(rows)).sin(), context=12, horizon=4).splits["test"]
    path = backtest_picture(backtest(Flat(), windows, period=6), tmp_path / "a.png", name="volts")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size > 10_000


def test_a_target_that_is_not_there_is_refused(tmp_path):
    windows = from_series(torch.arange(60.0), context=12, horizon=4).splits["test"]
    with pytest.raises(ValueError, match="target must be in 0"):
        backtest_picture(backtest(Flat(), windows), tmp_path / "a.png", target=1)
