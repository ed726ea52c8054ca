"""The smallest series on which a forecaster trains: two noisy waves."""

import torch
from torch import Generator

from margin.data.examples import Data
from margin.data.formats.series.sources import from_series


def waves() -> Data:
    """Seventy rows of two noisy waves of period 12, far from mean 0: 12 rows foretell the next 3 of both."""
    phase = torch.arange(70) * (2 * torch.pi / 12)
    noise = 0.1 * torch.randn(70, 2, generator=Generator().manual_seed(0))
    waves = torch.stack((100 + 10 * phase.sin(), -3 + phase.cos()), 1) + noise
    return from_series(waves, name="two waves", context=12, horizon=3)
