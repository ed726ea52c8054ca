"""Sound in WAV files: samples of 8, 16, 24 or 32 bits as real numbers, and back (Microsoft and IBM 1991)."""

import math
import os
import struct
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from margin.data.files.reading import reading, regular
from margin.data.files.writing import whole_file

Bits = Literal[8, 16, 24, 32]

PCM, EXTENSIBLE = 0x0001, 0xFFFE
GUID = bytes.fromhex("000000001000800000aa00389b71")
"""What follows the format's number in the GUID of WAVE_FORMAT_EXTENSIBLE."""

STREAMED = 2**32 - 1
"""The length of samples whose writer could not go back to fill it in."""

MOST_CHANNELS = 256

MOST_TAPS = 2**26
"""Coefficients of a resampling filter at most: rates of up to 3 MHz without a common factor need fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """What is in a WAV file.

    Args:
        samples: Amplitudes in [-1, 1), one column a channel; 32-bit samples are rounded to float32.
        rate: Samples a second.
        bits: Bits a sample in the file.
        streamed: Whether the file states no length: then it was read to its end.
    """

    samples: Float[Tensor, "time channels"]
    rate: int
    bits: int
    streamed: bool = False

    @property
    def mono(self) -> Float[Tensor, " time"]:
        """The mean of the channels."""
        return self.samples.mean(1)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.rate


def read_wave(path: str | os.PathLike[str]) -> Sound:
    """The sound in a WAV file of linear PCM, also where its format is WAVE_FORMAT_EXTENSIBLE.

    A sample of b bits is an integer over 2^(b-1); 8-bit samples are unsigned around 128. Samples of fewer
    bits than their bytes have, as 20 in 3 bytes, fill these from the top.

    Args:
        path: The file; it may hold no samples at all. One that was written as a stream, whose length is given
            as 2^32 - 1, is read to its end.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no WAV file of PCM samples, or is cut short.
    """
    path = Path(path)
    regular(path)
    with reading(path, "a WAV file", "save it as 16-bit PCM"):
        content = path.read_bytes()
        form, start, stated = _chunks(content, path)
        channels, width, rate = _pcm(form, path)
    if rate < 1 or width not in (1, 2, 3, 4) or not 1 <= channels <= MOST_CHANNELS:
        raise ValueError(
            f"{path}: a WAV file must have 8, 16, 24 or 32 bits, a rate and 1 .. {MOST_CHANNELS} channels: "
            f"got {8 * width}, {rate}, {channels}"
        )
    raw, step = content[start : start + stated], channels * width
    if streamed := stated == STREAMED:
        raw = raw[: len(raw) // step * step]
    elif len(raw) != stated // step * step:
        raise ValueError(
            f"{path}: the header states {stated // step} samples, the file holds {len(raw) // step}"
        )
    integers = _integers(raw, width).reshape(-1, channels)
    return Sound(torch.from_numpy(integers / 2.0 ** (8 * width - 1)).float(), rate, 8 * width, streamed)


def _chunks(content: bytes, path: Path) -> tuple[bytes, int, int]:
    """The format of a WAV file, where its samples begin, and how many bytes of them it states."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError(
            f"{path}: sound must be a WAV file of PCM samples: it does not begin with RIFF and WAVE; save it "
            "as 16-bit PCM"
        )
    form, at = b"", 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        if name == b"fmt ":
            form = content[at + 8 : at + 8 + size]
        if name == b"data" and form:
            return form, at + 8, size
        at += 8 + size + size % 2  # chunks begin at even places
    absent = "'data'" if form else "'fmt '"
    raise ValueError(
        f"{path}: sound must be a WAV file of PCM samples: it ends too soon, without a chunk {absent} before "
        "its samples; save it as 16-bit PCM"
    )


def _pcm(form: bytes, path: Path) -> tuple[int, int, int]:
    """Channels, bytes a sample and samples a second of a format chunk, refused unless it is PCM."""
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if kind == EXTENSIBLE and len(form) >= 40:  # the true format stands at the end, as a GUID
        kind = int.from_bytes(form[24:26], "little") if form[26:40] == GUID else kind
    if kind != PCM:
        names = {3: "real numbers", 6: "A-law", 7: "mu-law"}
        raise ValueError(
            f"{path}: sound must be a WAV file of PCM samples: unknown format {kind}"
            f"{f' ({names[kind]})' if kind in names else ''}; save it as 16-bit PCM"
        )
    return channels, (bits + 7) // 8, rate


def _integers(raw: bytes, width: int) -> NDArray[np.int64]:
    if width == 1:
        return np.frombuffer(raw, np.uint8).astype(np.int64) - 128
    if (
        width == 3
    ):  # three bytes, the highest last: padded below they are 32-bit integers of 256 times the value
        padded = np.zeros((len(raw) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return padded.view("<i4")[:, 0].astype(np.int64) >> 8
    return np.frombuffer(raw, f"<i{width}").astype(np.int64)


def write_wave(path: str | os.PathLike[str], samples: Tensor, rate: int, *, bits: Bits = 16) -> None:
    """A WAV file that any player plays.

    Read again, an amplitude is off by half a level, 2^-bits, at most; one that is a whole number of levels
    comes back equal. Only 1 itself, which two's complement lacks, becomes the largest level.

    Args:
        path: The file; written over if it exists.
        samples: Amplitudes in [-1, 1], (T,) or (T, channels).
        rate: Samples a second.
        bits: Bits a sample.

    Raises:
        ValueError: An amplitude is not in [-1, 1], the shape is another, or the rate is not positive.
    """
    x = samples.detach().cpu().double()
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] < 1):
        raise ValueError(f"samples must be (T,) or (T, channels): got {tuple(samples.shape)}")
    if rate < 1:
        raise ValueError(f"rate must be at least 1 sample a second: got {rate}")
    if bits not in (8, 16, 24, 32):
        raise ValueError(f"bits must be 8, 16, 24 or 32: got {bits}")
    outside = ~(x.abs() <= 1)
    if bool(outside.any()):
        raise ValueError(
            f"amplitudes must be in [-1, 1]: got {x[outside][0].item():g}; divide by the largest"
        )
    half = 2 ** (bits - 1)
    levels = (x * half).round().clamp(max=half - 1).long().numpy()
    with whole_file(Path(path)) as whole, wave.open(whole, "wb") as file:
        file.setnchannels(1 if x.ndim == 1 else x.shape[1])
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(_bytes(levels.reshape(-1), bits))


def _bytes(levels: NDArray[Any], bits: int) -> bytes:
    if bits == 8:
        return (levels + 128).astype(np.uint8).tobytes()
    if bits == 24:
        return levels.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return levels.astype(f"<i{bits // 8}").tobytes()


def resampled(x: Float[Tensor, " time"], rate: int, wanted: int) -> Float[Tensor, " other"]:
    """Sound of one rate at another: band-limited by a Kaiser window's filter, up and down by whole factors.

    The new sound has ceil(T wanted / rate) samples. A filter overshoots at steps: what leaves [-1, 1] is cut
    off, as a converter does.

    Args:
        x: Amplitudes in [-1, 1].
        rate: Its samples a second.
        wanted: Those of the result.

    Raises:
        ValueError: A rate is not positive, or two of so little in common that no filter of a sensible length
            leads from one to the other.

    Reference: Crochiere and Rabiner 1983, Section 2.4 (rational factors); ``scipy.signal.resample_poly``.
    """
    if rate < 1 or wanted < 1:
        raise ValueError(f"rates must be at least 1 sample a second: got {rate}, {wanted}")
    if rate == wanted or len(x) == 0:
        return x
    from scipy.signal import resample_poly

    common = math.gcd(rate, wanted)
    taps = 20 * max(rate, wanted) // common + 1  # scipy's window: 10 each side of every phase
    if taps > MOST_TAPS:
        raise ValueError(
            f"a filter from {rate:,} to {wanted:,} samples a second must have at most {MOST_TAPS:,} "
            f"coefficients: it needs {taps:,}; correct the rate, or ask for another"
        )
    y = resample_poly(x.double().numpy(), wanted // common, rate // common)
    return torch.from_numpy(y).clamp(-1, 1).to(x.dtype)
