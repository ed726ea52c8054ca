"""Decibels by hand, and a picture of a sound that is also a file that plays."""

import pytest
import torch

from margin.data.formats.audio.wave import read_wave, write_wave
from margin.sequence.convolution.figures import decibels, spectrogram


def test_decibels_are_relative_to_the_loudest_and_end_at_eighty():
    power = torch.tensor([[1.0, 0.1], [1e-8, 0.0]], dtype=torch.float64) * 7
    assert decibels(power).flatten().tolist() == pytest.approx([0, -10, -80, -80])
    assert decibels(torch.tensor([[2.0, 2e-7]], dtype=torch.float64))[0, 1].item() == pytest.approx(-70)
    assert decibels(torch.zeros(2, 2)).tolist() == [[-80, -80], [-80, -80]]
    assert decibels(torch.zeros(0, 3)).shape == (0, 3)


def test_what_is_drawn_is_what_plays(tmp_path):
    x = (0.5 * torch.sin(2 * torch.pi * 440 * torch.arange(4000) / 8000) * 2**15).round() / 2**15
    write_wave(tmp_path / "a.wav", x, 8000)
    assert torch.equal(read_wave(tmp_path / "a.wav").mono, x)
    path = spectrogram(x, 8000, tmp_path / "a.png", title="440 Hz")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_sound_shorter_than_a_frame_is_drawn(tmp_path):
    assert spectrogram(torch.zeros(10), 8000, tmp_path / "a.png").exists()


def test_no_sound_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs samples"):
        spectrogram(torch.zeros(0), 8000, tmp_path / "a.png")
    with pytest.raises(ValueError, match="needs samples"):
        spectrogram(torch.zeros(10), 0, tmp_path / "a.png")
