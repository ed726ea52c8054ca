"""WAV files against bytes written by hand, by the standard library, and their way back; bad files."""

import struct
import wave

import pytest
import torch

from margin.data.wave import read_wave, resampled, write_wave


def riff(path, raw, *, channels=1, width=2, rate=8000, kind=1):
    """A WAV file by its format, byte by byte."""
    block = channels * width
    header = struct.pack("<HHIIHH", kind, channels, rate, rate * block, block, 8 * width)
    body = b"WAVE" + b"fmt " + struct.pack("<I", 16) + header + b"data" + struct.pack("<I", len(raw)) + raw
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    return path


BYTES = [
    (1, bytes([128, 0, 255, 192]), [0.0, -1.0, 127 / 128, 0.5]),
    (2, struct.pack("<4h", 0, -32768, 32767, 16384), [0.0, -1.0, 32767 / 32768, 0.5]),
    (3, b"\0\0\0" + b"\0\0\x80" + b"\xff\xff\x7f" + b"\0\0\x40", [0.0, -1.0, 1 - 2**-23, 0.5]),
    (4, struct.pack("<4i", 0, -(2**31), 2**30, 2**29), [0.0, -1.0, 0.5, 0.25]),
]


@pytest.mark.parametrize(("width", "raw", "expected"), BYTES)
def test_samples_of_each_width_are_read(tmp_path, width, raw, expected):
    sound = read_wave(riff(tmp_path / "a.wav", raw, width=width, rate=11025))
    assert sound.samples.tolist() == [[x] for x in expected]
    assert (sound.rate, sound.bits, sound.seconds) == (11025, 8 * width, 4 / 11025)


def test_channels_come_in_turn_and_mono_is_their_mean(tmp_path):
    raw = struct.pack("<4h", 16384, -16384, 8192, 0)
    sound = read_wave(riff(tmp_path / "a.wav", raw, channels=2))
    assert sound.samples.tolist() == [[0.5, -0.5], [0.25, 0.0]]
    assert sound.mono.tolist() == [0.0, 0.125]


def test_a_file_without_samples_is_a_sound_of_no_time(tmp_path):
    sound = read_wave(riff(tmp_path / "a.wav", b""))
    assert sound.samples.shape == (0, 1)


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("channels", [1, 2])
def test_what_is_written_is_read_again(tmp_path, bits, channels):
    levels = 2 ** (min(bits, 24) - 1)
    x = torch.randint(-levels, levels, (500, channels), generator=torch.Generator().manual_seed(0)) / levels
    write_wave(tmp_path / "a.wav", x, 16000, bits=bits)
    sound = read_wave(tmp_path / "a.wav")
    assert torch.equal(sound.samples, x.float())
    assert (sound.rate, sound.bits) == (16000, bits)


def test_the_standard_library_reads_what_is_written(tmp_path):
    write_wave(tmp_path / "a.wav", torch.tensor([0.5, -1.0, 1.0]), 8000)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getparams()[:4] == (1, 2, 8000, 3)
        assert struct.unpack("<3h", file.readframes(3)) == (16384, -32768, 32767)  # 1 itself is not there


def test_rounding_is_half_a_level_at_most(tmp_path):
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1.9 - 0.95
    write_wave(tmp_path / "a.wav", x, 8000, bits=8)
    assert (read_wave(tmp_path / "a.wav").mono.double() - x).abs().max() <= 2**-8


@pytest.mark.parametrize("bad", [1.01, -2.0, float("nan")])
def test_amplitudes_outside_are_refused(tmp_path, bad):
    with pytest.raises(ValueError, match=r"amplitudes must be in \[-1, 1\]: got"):
        write_wave(tmp_path / "a.wav", torch.tensor([0.0, bad]), 8000)


def test_wrong_options_are_refused(tmp_path):
    file = tmp_path / "a.wav"
    with pytest.raises(ValueError, match="rate"):
        write_wave(file, torch.zeros(3), 0)
    with pytest.raises(ValueError, match="samples must be"):
        write_wave(file, torch.zeros(3, 1, 1), 8000)
    assert not file.exists()


def test_what_is_no_pcm_sound_is_refused(tmp_path, refused):
    with pytest.raises(FileNotFoundError):
        read_wave(tmp_path / "none.wav")
    (tmp_path / "text.wav").write_text("hello")
    with refused("text.wav", "PCM"):
        read_wave(tmp_path / "text.wav")
    with refused("float.wav", "PCM"):  # IEEE floats
        read_wave(riff(tmp_path / "float.wav", bytes(16), width=4, kind=3))
    whole = riff(tmp_path / "cut.wav", bytes(100)).read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[:-10])
    with refused("cut.wav", "50", "45"):
        read_wave(tmp_path / "cut.wav")


def test_resampling_keeps_a_tone_and_its_length():
    rate, wanted, hertz = 8000, 11025, 440
    x = 0.5 * torch.sin(2 * torch.pi * hertz * torch.arange(8000) / rate)
    y = resampled(x, rate, wanted)
    assert len(y) == 11025
    expected = 0.5 * torch.sin(2 * torch.pi * hertz * torch.arange(11025) / wanted)
    assert (y - expected)[500:-500].abs().max() < 2e-3


def test_resampling_takes_out_what_the_new_rate_cannot_hold():
    x = 0.5 * torch.sin(2 * torch.pi * 3500 * torch.arange(8000) / 8000)
    assert resampled(x, 8000, 4000)[200:-200].abs().max() < 0.01  # without a filter it would be 500 Hz


def test_a_step_that_overshoots_is_cut_off_and_no_rate_change_changes_nothing():
    x = torch.ones(400)
    x[200:] = -1
    assert resampled(x, 8000, 12000).abs().max() <= 1
    assert torch.equal(resampled(x, 8000, 8000), x)
    with pytest.raises(ValueError, match="rates"):
        resampled(x, 8000, 0)
