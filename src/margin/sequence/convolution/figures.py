"""A picture of sound: its amplitude over time, and its power by frequency over time (Koenig et al. 1946)."""

import os
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from margin.data.files.writing import whole_file
from margin.data.transforms.spectra import QUIET, power_spectrum

DEEPEST = 80.0
"""Decibels below the loudest that are told apart."""


def decibels(power: Float[Tensor, "frames bins"]) -> Float[Tensor, "frames bins"]:
    """10 log10 of the power over the largest, at least -80; silence throughout is -80 everywhere."""
    top = power.max() if power.numel() else power.new_tensor(0.0)
    relative = power / top.clamp(min=QUIET)
    return (10 * relative.clamp(min=10 ** (-DEEPEST / 10)).log10()).clamp(min=-DEEPEST)


def spectrogram(
    x: Float[Tensor, " time"],
    rate: int,
    file: str | os.PathLike[str],
    *,
    frame: int = 256,
    hop: int = 64,
    title: str = "",
) -> Path:
    """Write a PNG: above the amplitude over time, below the power of each frequency over time in decibels.

    Args:
        x: Amplitudes, at least one.
        rate: Samples a second.
        file: Where the picture goes; its folder exists.
        frame: Samples a frame: the frequencies are rate / frame apart.
        hop: Samples from a frame to the next.
        title: What stands above.

    Returns:
        The path of the picture.

    Raises:
        ValueError: There is no sample, the rate is not positive, or frame or hop is out of range.

    Reference: Oppenheim and Schafer 2010, Section 10.3.
    """
    if len(x) == 0 or rate < 1:
        raise ValueError(f"a spectrogram needs samples and a rate: got {len(x)} samples at {rate} Hz")
    level = decibels(power_spectrum(x.detach().cpu().double(), frame, hop))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained", dpi=120)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.6))
    above.plot(torch.arange(len(x)) / rate, x.detach().cpu(), linewidth=0.4, color="#1f4e79")
    above.set(ylabel="amplitude", ylim=(-1.05, 1.05), title=title)
    half, step, high = frame / 2 / rate, hop / rate, rate / 2 / 1000
    # a column is drawn around the middle of its frame, a row around its frequency
    room = high / (2 * max(1, level.shape[1] - 1))
    span = (half - step / 2, half + (len(level) - 0.5) * step, -room, high + room)
    shown = below.imshow(
        level.T.numpy(), origin="lower", aspect="auto", extent=span, cmap="magma", interpolation="nearest"
    )
    below.set(xlabel="seconds", ylabel="kHz", xlim=(0, len(x) / rate), ylim=(0, high))
    figure.colorbar(shown, ax=[above, below], label="dB below the loudest", shrink=0.7)
    with whole_file(Path(file)) as whole:
        figure.savefig(whole, format="png")
    return Path(file)
