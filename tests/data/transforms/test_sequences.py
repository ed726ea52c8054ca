"""Changes of sequences and of all inputs: along the time axis alone, and by one factor an example."""

import math

import pytest
import torch
from torch import Generator

from margin.data.transforms.noise import Gain, Noise
from margin.data.transforms.sequences import TimeMask, TimeShift


def sequences(*shape, seed=0):
    return torch.rand(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64) + 1


@pytest.mark.parametrize("shape", [(400, 7), (400, 7, 3), (400, 7, 2, 2)])
@pytest.mark.parametrize("border", ["edge", "cyclic"])
def test_a_shift_moves_all_features_in_time_together(shape, border):
    x = sequences(*shape)
    made = TimeShift(2, border)(x, Generator().manual_seed(0))
    found = torch.zeros(400, 5, dtype=torch.bool)
    for k, later in enumerate(range(-2, 3)):
        index = torch.arange(7) - later
        index = index % 7 if border == "cyclic" else index.clamp(0, 6)
        found[:, k] = (made == x[:, index]).flatten(1).all(1)
    assert (found.sum(1) == 1).all()
    assert (found.sum(0) - 80).abs().max() < 6 * math.sqrt(80 * 0.8)  # p < 1e-8


@pytest.mark.parametrize("shape", [(3000, 10), (3000, 10, 3)])
def test_a_mask_covers_one_stretch_of_uniform_length_anywhere(shape):
    x = sequences(*shape)
    made = TimeMask(0.3, background=0.0)(x, Generator().manual_seed(0))
    covered = (made == 0).reshape(3000, 10, -1)
    assert torch.equal(covered.all(2), covered.any(2))
    covered = covered.all(2)
    lengths = covered.sum(1)
    counts = lengths.bincount(minlength=4)
    assert len(counts) == 4
    assert (counts - 750).abs().max() < 6 * math.sqrt(750 * 0.75)  # p < 1e-8
    starts = covered.int().argmax(1)
    for row, length, start in zip(covered, lengths.tolist(), starts.tolist(), strict=True):
        assert row[start : start + length].all()
    assert set(starts[lengths == 3].tolist()) == set(range(8))
    assert set(starts[lengths == 1].tolist()) == set(range(10))
    kept = ~covered
    assert torch.equal(made[kept], x[kept])


def test_a_share_that_is_a_whole_number_of_steps_is_not_rounded_down():
    """0.29 * 100 is 28.999999999999996; that no mask of 3000 has length 29 has probability (29/30)^3000."""
    assert 0.29 * 100 < 29
    made = TimeMask(0.29)(sequences(3000, 100), Generator().manual_seed(0))
    assert (made == 0).sum(1).max() == 29


def test_a_gain_is_one_factor_an_example_in_its_range():
    x = sequences(500, 6, 2)
    factors = Gain(0.2)(x, Generator().manual_seed(0)) / x
    assert (factors - factors[:, :1, :1]).abs().max() < 1e-12
    assert factors.min() >= 0.8 and factors.max() < 1.2
    assert factors.min() < 0.805 and factors.max() > 1.195


def test_noise_has_its_standard_deviation_and_mean_0():
    x = torch.full((200, 100), 3.0)
    made = Noise(0.5)(x, Generator().manual_seed(0)) - x
    assert abs(made.mean()) < 5 * 0.5 / math.sqrt(20000)
    assert abs(made.std() / 0.5 - 1) < 5 / math.sqrt(40000)
