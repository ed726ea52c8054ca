"""Sinusoids of the time, against the formula in numpy."""

import numpy as np
import pytest
import torch

from margin.nn.unet.network import time_features


@pytest.mark.parametrize("width", [2, 8, 64])
def test_they_are_cosines_then_sines_of_falling_frequency(width: int) -> None:
    t, half = np.array([0.0, 0.5, 3.0, 999.0]), width // 2
    angle = t[:, None] / 10000 ** (np.arange(half) / half)
    expected = np.concatenate((np.cos(angle), np.sin(angle)), 1)
    np.testing.assert_allclose(time_features(torch.from_numpy(t), width), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("width", [0, 3, -2])
def test_they_come_in_pairs(width: int) -> None:
    with pytest.raises(ValueError, match=f"even and positive: got {width}"):
        time_features(torch.ones(1), width)
