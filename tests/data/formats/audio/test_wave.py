"""WAV files against bytes written by hand, by the standard library, and their way back; bad files."""

import struct
import wave

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from margin.data.formats.audio.sources import load_sounds
from margin.data.formats.audio.wave import read_wave, resampled, write_wave


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


GUID = bytes.fromhex("000000001000800000aa00389b71")


def extensible(path, raw, *, width, valid, channels=2, kind=1, stated=None):
    """A WAV file of WAVE_FORMAT_EXTENSIBLE: 22 bytes more, the true format at their end."""
    block = channels * width
    form = struct.pack("<HHIIHH", 0xFFFE, channels, 48000, 48000 * block, block, 8 * width)
    form += struct.pack("<HHIH", 22, valid, 3, kind) + GUID
    size = struct.pack("<I", len(raw) if stated is None else stated)
    junk = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk is filled up to an even place
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + junk + b"data" + size + raw
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    return path


@pytest.mark.parametrize(("width", "valid"), [(1, 8), (2, 16), (3, 24), (3, 20), (4, 32)])
def test_the_extensible_format_is_read_as_scipy_reads_it(tmp_path, width, valid):
    raw = np.random.default_rng(0).integers(0, 256, 40 * 2 * width, np.uint8).tobytes()
    path = extensible(tmp_path / "a.wav", raw, width=width, valid=valid)
    rate, expected = wavfile.read(path)
    sound = read_wave(path)
    # scipy gives 3 bytes as 4, filled up below, and 1 byte unsigned
    scaled = (expected / 2.0**7 - 1) if width == 1 else expected / 2.0 ** (8 * expected.itemsize - 1)
    assert sound.samples.shape == (40, 2)
    assert np.array_equal(sound.samples.numpy(), scaled.astype(np.float32))
    assert (sound.rate, sound.bits, sound.streamed) == (rate, 8 * width, False)


def test_the_extensible_format_of_other_samples_is_refused(tmp_path):
    path = extensible(tmp_path / "a.wav", bytes(8), width=4, valid=32, channels=1, kind=3)
    with pytest.raises(
        ValueError, match=r"a\.wav: .*unknown format 3 \(real numbers\); save it as 16-bit PCM"
    ):
        read_wave(path)


def test_a_stream_is_read_to_its_end_and_this_is_said(tmp_path):
    raw = struct.pack("<6h", 1, 2, 3, 4, 5, 6)
    path = extensible(tmp_path / "a.wav", raw + b"\7", width=2, valid=16, stated=2**32 - 1)
    sound = read_wave(path)
    assert (sound.samples * 2**15).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert sound.streamed
    whole = extensible(tmp_path / "b.wav", raw, width=2, valid=16)
    _, _, notes = load_sounds([path, whole], None)
    assert "1 of 2 files state no length, as streams do: read to their end" in notes
    with pytest.raises(ValueError, match="states 1073741823 samples, the file holds 3"):
        read_wave(extensible(tmp_path / "c.wav", raw, width=2, valid=16, stated=2**32 - 4))


def test_a_filter_between_strange_rates_is_not_made():
    with pytest.raises(ValueError, match=r"at most 67,108,864 coefficients: it needs 39,999,999,861"):
        resampled(torch.zeros(10), 1_999_999_993, 8000)
    assert len(resampled(torch.zeros(44101), 44101, 16000)) == 16000
