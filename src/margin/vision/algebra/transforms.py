r"""Integral transforms by quadrature: (Tf)(u) = int K(u, t) f(t) dt as a weighted sum over a uniform grid.

On a grid of step dt the transform is the matrix K(u_i, t_j) dt; with K = h(u - t) it is Toeplitz:
convolution. Of smooth functions that vanish at both ends this rectangle rule, which is there the trapezoidal
rule, converges faster than any power of dt (Trefethen and Weideman 2014); at a jump by dt / 2 times its
height.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Function = Callable[[Tensor], Tensor]
"""A function of one real variable, on tensors element by element."""


class Grid(NamedTuple):
    """Places first, first + step, .. of a uniform grid.

    Args:
        first: The least place.
        step: dt > 0.
        size: Places, at least 1.
    """

    first: float
    step: float
    size: int

    @property
    def places(self) -> Float[Tensor, " count"]:
        """The places, in float64."""
        return self.first + self.step * torch.arange(self.size, dtype=torch.float64)


def centered(width: float, count: int) -> Grid:
    """The grid of ``count`` places of step width / count in which 0 is a place: [-width / 2, width / 2).

    Raises:
        ValueError: The width is not positive, or there are less than two places or an odd number.
    """
    if not width > 0 or count < 2 or count % 2:
        raise ValueError(f"a centered grid needs width > 0 and an even count: got {width:g} and {count}")
    return Grid(-width / 2, width / count, count)


def integral_transform(
    kernel: Callable[[Tensor, Tensor], Tensor],
    f: Float[Tensor, " n"] | Complex[Tensor, " n"],
    grid: Grid,
    u: Float[Tensor, " m"],
) -> Float[Tensor, " m"] | Complex[Tensor, " m"]:
    r"""(Tf)(u) = sum_j K(u, t_j) f(t_j) dt: linear in f, whatever the kernel.

    Args:
        kernel: K(u, t), of tensors that broadcast.
        f: Values on the grid.
        grid: Where they are.
        u: Where the transform is asked.

    Raises:
        ValueError: There is not one value a place of the grid.

    Reference: Kress 2014, Chapter 2 (integral operators), Section 12.1 (quadrature).
    """
    if len(f) != grid.size:
        raise ValueError(f"one value a place of the grid: got {len(f)} for {grid.size}")
    matrix = kernel(u[:, None], grid.places.to(u)[None])
    kind = torch.promote_types(matrix.dtype, f.dtype)
    return (matrix.to(kind) @ f.to(kind)) * grid.step


def convolve_functions(f: Function, h: Function, grid: Grid, u: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    r"""The convolution (f * h)(u) = int f(t) h(u - t) dt, by quadrature over t.

    Args:
        f: Small outside of the grid.
        h: Any function that is defined where u - t lies.
        grid: Over which t is summed.
        u: Where the convolution is asked.

    Reference: Bracewell 2000, Chapter 3.
    """
    return integral_transform(lambda u, t: h(u - t), f(grid.places.to(u)), grid, u)


def convolve_samples(
    f: Float[Tensor, " n"], f_grid: Grid, h: Float[Tensor, " m"], h_grid: Grid
) -> tuple[Float[Tensor, " sum"], Grid]:
    """The convolution of two sampled functions on the grid of sums of their places, by FFT, times dt.

    Raises:
        ValueError: The steps differ.

    Reference: Oppenheim and Schafer 2010, Section 8.7.
    """
    if not math.isclose(f_grid.step, h_grid.step, rel_tol=1e-12):
        raise ValueError(f"two grids need one step: got {f_grid.step:g} and {h_grid.step:g}")
    count = f_grid.size + h_grid.size - 1
    spectrum = torch.fft.rfft(f, count) * torch.fft.rfft(h, count)
    grid = Grid(f_grid.first + h_grid.first, f_grid.step, count)
    return torch.fft.irfft(spectrum, count) * f_grid.step, grid


def fourier_transform(
    f: Float[Tensor, " n"] | Complex[Tensor, " n"], grid: Grid, *, inverse: bool = False
) -> tuple[Complex[Tensor, " n"], Grid]:
    r"""The continuous Fourier transform on the grid of frequencies of step 1 / (n dt), by one FFT.

    .. math:: (Ff)(u) = \int f(t)\, e^{-2\pi i u t} dt \approx
        dt\, e^{-2\pi i u t_0} \sum_j f(t_0 + j\, dt)\, e^{-2\pi i u j\, dt}

    It is what :func:`integral_transform` of that kernel gives, to rounding, in O(n log n). The phase says
    where the grid begins: a bare FFT has it at 0. What repeats outside of the grid's frequencies is folded
    into them (aliasing); a function that is not small at the grid's ends is cut there.

    Args:
        f: Values on the grid.
        grid: Where they are; an even number.
        inverse: The inverse transform, with + in the exponent.

    Raises:
        ValueError: There is not one value a place, or their number is odd.

    Reference: Bracewell 2000, Chapter 2 (the transform); Briggs and Henson 1995, Section 2.2 (by a DFT).
    """
    if len(f) != grid.size:
        raise ValueError(f"one value a place of the grid: got {len(f)} for {grid.size}")
    dual = centered(1 / grid.step, grid.size)
    sign = 1 if inverse else -1
    transform = torch.fft.ifft if inverse else torch.fft.fft
    scale = grid.size if inverse else 1
    sums = torch.fft.fftshift(transform(f.to(torch.complex128))) * scale
    phase = torch.exp(sign * 2j * math.pi * dual.places * grid.first)
    return sums * phase * grid.step, dual
