"""The short-time spectrum of sound, and its bands on the scale of hearing (Davis and Mermelstein 1980)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

QUIET = 1e-10
"""The power below which a band counts as silent: -100 dB of the constant amplitude 1, whose power is 1."""


def frames(
    x: Float[Tensor, " time"], frame: int, hop: int, *, window: Float[Tensor, " frame"] | None = None
) -> Float[Tensor, "frames frame"]:
    """Pieces of ``frame`` samples, one each ``hop`` samples; the last is filled up with zeros.

    Every sample is in a piece: there are 1 + ceil((T - frame) / hop) of them, one where T <= frame, none
    where T = 0.

    Args:
        x: Amplitudes.
        frame: Samples a piece, at least 1.
        hop: Samples from a piece to the next, from 1 to ``frame``, so that none is left out.
        window: What each piece is multiplied with.

    Raises:
        ValueError: The frame or the hop is out of range.
    """
    check_frames(frame, hop)
    if len(x) == 0:
        return x.new_zeros(0, frame)
    count = 1 + max(0, math.ceil((len(x) - frame) / hop))
    filled = torch.cat((x, x.new_zeros((count - 1) * hop + frame - len(x))))
    pieces = filled.unfold(0, frame, hop)
    return pieces.clone() if window is None else pieces * window


def check_frames(frame: int, hop: int) -> None:
    """Refuse frames that are empty or leave samples out."""
    if frame < 1:
        raise ValueError(f"frame must be at least 1 sample: got {frame}")
    if not 1 <= hop <= frame:
        raise ValueError(f"hop must be from 1 to the frame's {frame} samples: got {hop}")


def power_spectrum(x: Float[Tensor, " time"], frame: int, hop: int) -> Float[Tensor, "frames bins"]:
    r"""The power of each frequency k rate / frame, k = 0 .. frame / 2, over time, under a Hann window w.

    .. math:: P_{tk} = \Bigl|\sum_j w_j x_{t h + j} e^{-2 \pi i j k / N}\Bigr|^2 \Big/
        \bigl(\textstyle\sum_j w_j\bigr)^2

    So a sine of amplitude 1 on a frequency of the grid has power 1/4 there (and 1/4 at the negative one).

    Reference: Oppenheim and Schafer 2010, Section 10.3.
    """
    check_frames(frame, hop)
    window = torch.hann_window(frame, periodic=True, dtype=x.dtype, device=x.device)
    pieces = frames(x, frame, hop, window=window)
    return torch.fft.rfft(pieces).abs().square() / window.sum().square()


def hertz_to_mel(hertz: float) -> float:
    """2595 log10(1 + f / 700): the pitch in mel (O'Shaughnessy 1987)."""
    return 2595 * math.log10(1 + hertz / 700)


def mel_filters(bands: int, frame: int, rate: int) -> Float[Tensor, "bins bands"]:
    """Triangles over the frequencies of a frame, equally spaced and overlapping by half in mel, of height 1.

    Args:
        bands: Number of triangles between 0 and half the rate, at least 1.
        frame: Samples a frame.
        rate: Samples a second.

    Raises:
        ValueError: There are no bands, or so many that one covers no frequency.

    Reference: Davis and Mermelstein 1980, Figure 1.
    """
    if bands < 1:
        raise ValueError(f"bands must be at least 1: got {bands}")
    top = hertz_to_mel(rate / 2)
    mel = torch.linspace(0, top, bands + 2, dtype=torch.float64)
    edges = 700 * (10 ** (mel / 2595) - 1)
    bins = torch.arange(frame // 2 + 1, dtype=torch.float64) * rate / frame
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - left) / (middle - left)
    falling = (right - bins[:, None]) / (right - middle)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    if bool((triangles.amax(0) == 0).any()):
        raise ValueError(
            f"every band must cover a frequency: {bands} bands of {frame} samples at {rate} Hz are too narrow"
            "; take fewer bands or a longer frame"
        )
    return triangles


def log_mel(
    x: Float[Tensor, " time"], rate: int, *, frame: int = 256, hop: int = 128, bands: int = 32
) -> Float[Tensor, "frames bands"]:
    """The logarithm (natural) of the power in each band over time; silence is log 1e-10.

    Args:
        x: Amplitudes.
        rate: Samples a second.
        frame: Samples a frame.
        hop: Samples from a frame to the next.
        bands: Number of bands.

    Reference: Davis and Mermelstein 1980, Section II (before their cosine transform).
    """
    power = power_spectrum(x, frame, hop)
    return (power @ mel_filters(bands, frame, rate).to(power)).clamp(min=QUIET).log()
