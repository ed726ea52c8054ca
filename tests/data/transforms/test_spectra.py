"""Frames, powers and bands against sums by hand, Parseval's identity and tones of known place."""

import math

import pytest
import torch

from margin.data.transforms.spectra import frames, hertz_to_mel, log_mel, mel_filters, power_spectrum


def test_frames_hold_every_sample_and_the_last_is_filled_up():
    x = torch.arange(1.0, 8.0)
    assert frames(x, 4, 2).tolist() == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 0]]
    assert frames(x, 7, 7).tolist() == [x.tolist()]
    assert frames(x, 8, 3).shape == (1, 8)
    assert frames(x[:0], 4, 2).shape == (0, 4)


@pytest.mark.parametrize(("frame", "hop"), [(0, 1), (4, 0), (4, 5)])
def test_frames_that_leave_samples_out_are_refused(frame, hop):
    with pytest.raises(ValueError, match=r"frame|hop"):
        frames(torch.zeros(9), frame, hop)


def test_a_sine_of_amplitude_one_has_power_one_quarter_at_its_place():
    n, k = 64, 10
    x = torch.sin(2 * math.pi * k * torch.arange(n, dtype=torch.float64) / n)
    power = power_spectrum(x, n, n)[0]
    assert int(power.argmax()) == k
    assert power[k].item() == pytest.approx(0.25, rel=1e-12)
    assert power[k - 1].item() == pytest.approx(
        0.25 / 4, rel=1e-12
    )  # a Hann window's neighbors: half as high
    assert power[torch.arange(33).sub(k).abs() > 1].max() < 1e-25


def test_powers_add_up_to_the_windowed_energy():
    x = torch.randn(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    window = torch.hann_window(64, periodic=True, dtype=torch.float64)
    power = power_spectrum(x, 64, 64)[0] * window.sum().square()
    both = 2 * power.sum() - power[0] - power[-1]  # the negative frequencies too
    assert both.item() == pytest.approx(64 * (x * window).square().sum().item(), rel=1e-12)


def test_mel_is_linear_below_and_logarithmic_above():
    assert hertz_to_mel(0) == 0
    assert hertz_to_mel(1000) == pytest.approx(1000, abs=0.1)  # by the scale's definition
    assert hertz_to_mel(6300) - hertz_to_mel(0) == pytest.approx(2595 * math.log10(10))


def test_bands_overlap_by_half_and_add_up_to_one_between_their_middles():
    filters = mel_filters(8, 512, 8000)
    mel = torch.tensor([hertz_to_mel(k * 8000 / 512) for k in range(257)], dtype=torch.float64)
    step = hertz_to_mel(4000) / 9
    inside = (mel >= step) & (mel <= 8 * step)
    assert (filters[inside].sum(1) - 1).abs().max() < 1e-9
    assert filters.min() >= 0
    assert filters.max() <= 1


def test_a_tone_is_loudest_in_its_band_and_silence_is_the_floor():
    rate = 8000
    tone = 0.5 * torch.sin(2 * math.pi * 1000 * torch.arange(800, dtype=torch.float64) / rate)
    bands = log_mel(tone, rate, frame=256, hop=128, bands=16)
    place = hertz_to_mel(1000) / (hertz_to_mel(4000) / 17) - 1
    assert abs(int(bands[2].argmax()) - place) <= 0.5 + 0.3
    silent = log_mel(torch.zeros(300), rate)
    assert silent.tolist() == [[pytest.approx(math.log(1e-10))] * 32] * 2


def test_too_many_bands_are_refused():
    with pytest.raises(ValueError, match="too narrow"):
        mel_filters(60, 64, 8000)
    with pytest.raises(ValueError, match="at least 1"):
        mel_filters(0, 64, 8000)
