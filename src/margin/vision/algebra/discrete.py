r"""Discrete convolution and cross-correlation over Z^d, directly and by FFT, and their matrices.

(f * h)[u] = sum_t f[t] h[u - t], cross-correlation (h star f)[u] = sum_t h[t] f[u + t]: what neural networks
call convolution. Equal up to a flip of the kernel. As matrices: Toeplitz, in two axes doubly block Toeplitz,
circulant where the signal is periodic.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Mode = Literal["full", "same", "valid", "circular"]
CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def flip(h: Tensor) -> Tensor:
    """The kernel turned around in every axis, h[-t]: in the plane by half a turn."""
    return h.flip(tuple(range(h.ndim)))


def convolve(f: Tensor, h: Tensor, mode: Mode = "full") -> Tensor:
    r"""The convolution of two arrays that are 0 outside of their places, directly, in O(n m).

    .. math:: (f * h)[u] = \sum_t f[t]\, h[u - t]

    Commutative and associative; its support has n + m - 1 places an axis.

    Args:
        f: The signal, of one to three axes.
        h: The kernel, of as many axes.
        mode: full: all n + m - 1 places; valid: the n - m + 1 at which the kernel lies inside of the signal;
            same: the middle n of full, numpy's choice; circular: of a signal of period n.

    Raises:
        ValueError: The axes differ in number or are none or more than three, an array is empty, or a valid
            or circular kernel is larger than the signal.

    Reference: Oppenheim and Schafer 2010, Equation 2.49 and Section 8.6.5 (circular).
    """
    _check(f, h, mode)
    sizes, dims = h.shape, f.ndim
    if mode == "circular":
        padded = f[(None, None)]
        for axis, m in enumerate(sizes):
            tail = padded.narrow(2 + axis, f.shape[axis] - (m - 1), m - 1)
            padded = torch.cat((tail, padded), 2 + axis)
        return CONVOLUTIONS[dims](padded, flip(h)[None, None])[0, 0]
    padding = [0 if mode == "valid" else m - 1 for m in sizes]
    full = CONVOLUTIONS[dims](f[None, None], flip(h)[None, None], padding=padding)[0, 0]
    return _middle(full, f.shape, sizes) if mode == "same" else full


def cross_correlate(h: Tensor, f: Tensor, mode: Mode = "valid") -> Tensor:
    r"""The cross-correlation of a kernel with a signal: the convolution with the flipped kernel.

    .. math:: (h \star f)[u] = \sum_t h[t]\, f[u + t]

    Not commutative: (f star h)[u] = (h star f)[-u]. Valid, it is ``torch.nn.functional.conv2d``.

    Args:
        h: The kernel.
        f: The signal.
        mode: As of :func:`convolve`; full begins at u = 1 - m, circular is f's period with u from 0.

    Reference: Goodfellow, Bengio and Courville 2016, Equation 9.6.
    """
    found = convolve(f, flip(h), mode)
    if mode != "circular":
        return found
    return found.roll([1 - m for m in h.shape], tuple(range(f.ndim)))


def fft_convolve(f: Tensor, h: Tensor, mode: Mode = "full") -> Tensor:
    r"""The same by the convolution theorem, F(f * h) = Ff . Fh, in O(n log n).

    A product of discrete transforms is a circular convolution; padded with zeros to n + m - 1 places an axis,
    or more, none of what the kernel carries around meets the signal again. The rounding is that of the
    largest output, everywhere.

    Args:
        f: The signal, real, of any number of axes.
        h: The kernel, of as many.
        mode: As of :func:`convolve`.

    Reference: Cooley and Tukey 1965; Oppenheim and Schafer 2010, Section 8.7.
    """
    _check(f, h, mode, most=None)
    axes = tuple(range(f.ndim))
    if mode == "circular":
        size = tuple(f.shape)
        return torch.fft.irfftn(torch.fft.rfftn(f, size, axes) * torch.fft.rfftn(h, size, axes), size, axes)
    full = tuple(n + m - 1 for n, m in zip(f.shape, h.shape, strict=True))
    size = tuple(smooth(n) for n in full)
    found = torch.fft.irfftn(torch.fft.rfftn(f, size, axes) * torch.fft.rfftn(h, size, axes), size, axes)
    found = found[tuple(slice(n) for n in full)]
    if mode == "valid":
        return found[tuple(slice(m - 1, n) for n, m in zip(f.shape, h.shape, strict=True))]
    return _middle(found, f.shape, h.shape) if mode == "same" else found


def smooth(n: int) -> int:
    """The least number from n on with prime factors 2, 3 and 5: of a prime a transform takes far longer."""
    best = 1 << max(n - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            two = three << max(-(-n // three) - 1, 0).bit_length()
            best = min(best, two)
            three *= 3
        five *= 5
    return best


def convolution_matrix(h: Tensor, sizes: Sequence[int], mode: Mode = "full") -> Float[Tensor, "rows columns"]:
    r"""The matrix H of f -> f * h, of arrays read row by row: H[u, t] = h[u - t].

    In one axis a Toeplitz matrix, in two doubly block Toeplitz, circular a (block) circulant, which the
    discrete Fourier transform diagonalizes. Its transpose is the valid cross-correlation of a full one: the
    backward pass.

    Args:
        h: The kernel.
        sizes: Places of the signal along each axis.
        mode: As of :func:`convolve`.

    Reference: Gray 2006, Chapters 3 and 4; Goodfellow, Bengio and Courville 2016, Section 9.1.
    """
    units = torch.eye(math.prod(sizes), dtype=h.dtype, device=h.device).reshape(-1, *sizes)
    return torch.stack([convolve(unit, h, mode).flatten() for unit in units], 1)


def impulse_response(operator: Callable[[Tensor], Tensor], sizes: Sequence[int]) -> Tensor:
    """What an operator makes of a 1 at the origin: the kernel, where it is linear and shift equivariant.

    On periodic arrays every such operator T is the circular convolution with T(delta_0). On the real line
    continuity is needed too, and the kernel may be a distribution: the identity's is Dirac's.

    Args:
        operator: A map of arrays of these sizes.
        sizes: Places along each axis.

    Reference: Oppenheim and Schafer 2010, Section 2.3; Hoermander 1990, Theorem 4.2.1 (on R^n).
    """
    delta = torch.zeros(tuple(sizes), dtype=torch.float64)
    delta[(0,) * delta.ndim] = 1
    return operator(delta)


def dilated(h: Tensor, dilation: Sequence[int]) -> Tensor:
    """The kernel with zeros between its taps: a dilated convolution is the usual one with it.

    Args:
        h: The kernel, in its last axes.
        dilation: Places from a tap to the next along each of these.

    Reference: Yu and Koltun 2016, Equation 2.
    """
    kept = h.ndim - len(dilation)
    spans = [d * (m - 1) + 1 for m, d in zip(h.shape[kept:], dilation, strict=True)]
    wide = h.new_zeros(*h.shape[:kept], *spans)
    places: tuple[Any, ...] = (..., *(slice(None, None, d) for d in dilation))
    wide[places] = h
    return wide


def _middle(full: Tensor, sizes: Sequence[int], kernel: Sequence[int]) -> Tensor:
    starts = [(m - 1) // 2 for m in kernel]
    return full[tuple(slice(start, start + n) for start, n in zip(starts, sizes, strict=True))]


def _check(f: Tensor, h: Tensor, mode: Mode, most: int | None = 3) -> None:
    if f.ndim != h.ndim or f.ndim < 1 or (most is not None and f.ndim > most):
        raise ValueError(
            f"signal and kernel need the same axes, 1 to {most or 'any'}: got {f.ndim}, {h.ndim}"
        )
    if not f.numel() or not h.numel():
        raise ValueError(f"signal and kernel must not be empty: got {tuple(f.shape)}, {tuple(h.shape)}")
    if mode in ("valid", "circular") and any(m > n for n, m in zip(f.shape, h.shape, strict=True)):
        raise ValueError(
            f"a {mode} kernel must fit into the signal: got {tuple(h.shape)} for {tuple(f.shape)}"
        )
