"""Integral transforms by quadrature: the Gaussian's, the box's and the triangle's closed forms; Toeplitz."""

import math

import pytest
import torch
from scipy.linalg import toeplitz
from torch import Generator, Tensor

from margin.vision.algebra.transforms import (
    Grid,
    centered,
    convolve_functions,
    convolve_samples,
    fourier_transform,
    integral_transform,
)

GRID = centered(16.0, 512)


def gaussian(variance: float):
    return lambda t: torch.exp(-t.square() / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def box(t: Tensor) -> Tensor:
    return (t.abs() < 0.5).double() + 0.5 * (t.abs() == 0.5).double()


def test_gaussian_variances_add() -> None:
    u = torch.linspace(-3, 3, 41, dtype=torch.float64)
    found = convolve_functions(gaussian(0.5), gaussian(1.3), GRID, u)
    assert torch.allclose(found, gaussian(1.8)(u), atol=1e-13)
    assert not torch.allclose(found, gaussian(1.3)(u), atol=1e-2)


def test_box_with_box_is_the_triangle_to_the_step() -> None:
    u = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)
    gaps = []
    for count in (256, 1024):
        grid = centered(4.0, count)
        found = convolve_functions(box, box, grid, u)
        gaps.append(float((found - (1 - u.abs()).clamp_min(0)).abs().max()))
        assert gaps[-1] <= grid.step
    assert gaps[1] < gaps[0] / 2


def test_convolution_is_commutative_and_associative_on_samples() -> None:
    t = GRID.places
    f, g, h = gaussian(0.3)(t), gaussian(0.7)(t - 1), t * gaussian(0.5)(t)
    fg, grid = convolve_samples(f, GRID, g, GRID)
    gf, _ = convolve_samples(g, GRID, f, GRID)
    assert torch.allclose(fg, gf, atol=1e-14)
    at = grid.places
    assert torch.allclose(fg, gaussian(1.0)(at - 1), atol=1e-12)  # means add too
    left, _ = convolve_samples(fg, grid, h, GRID)
    gh, other = convolve_samples(g, GRID, h, GRID)
    right, _ = convolve_samples(f, GRID, gh, other)
    assert torch.allclose(left, right, atol=1e-13)
    with pytest.raises(ValueError, match="one step"):
        convolve_samples(f, GRID, g[:256], centered(16.0, 256))


def test_an_integral_transform_is_linear_and_its_matrix_of_a_convolution_toeplitz() -> None:
    generator = Generator().manual_seed(0)
    f, g = torch.randn(2, GRID.size, generator=generator, dtype=torch.float64)
    u = torch.randn(7, generator=generator, dtype=torch.float64)

    def kernel(u: Tensor, t: Tensor) -> Tensor:
        return torch.sin(u * t) + u

    both = integral_transform(kernel, 2 * f - 3 * g, GRID, u)
    apart = 2 * integral_transform(kernel, f, GRID, u) - 3 * integral_transform(kernel, g, GRID, u)
    assert torch.allclose(both, apart, atol=1e-11)
    small = centered(4.0, 8)
    h = gaussian(1.0)
    units = torch.eye(8, dtype=torch.float64)
    matrix = torch.stack(
        [integral_transform(lambda u, t: h(u - t), e, small, small.places) for e in units], 1
    )
    lags = small.step * torch.arange(8, dtype=torch.float64)
    assert torch.allclose(matrix, torch.from_numpy(toeplitz(h(lags) * small.step)), atol=1e-15)
    with pytest.raises(ValueError, match="one value a place"):
        integral_transform(kernel, f[:5], GRID, u)


def test_the_gaussian_is_its_own_fourier_transform_wherever_the_grid_begins() -> None:
    for grid in (GRID, Grid(-7.3, 1 / 32, 512)):
        t = grid.places
        found, dual = fourier_transform(torch.exp(-math.pi * t.square()), grid)
        assert torch.allclose(found.real, torch.exp(-math.pi * dual.places.square()), atol=1e-13)
        assert float(found.imag.abs().max()) < 1e-13  # a bare FFT has phases here


def test_a_shift_is_a_phase_with_a_minus_sign() -> None:
    t = GRID.places
    found, dual = fourier_transform(torch.exp(-math.pi * (t - 0.5).square()), GRID)
    u = dual.places
    expected = torch.exp(-math.pi * u.square()) * torch.exp(-2j * math.pi * u * 0.5)
    assert torch.allclose(found, expected, atol=1e-13)


def test_the_fft_is_the_quadrature_of_its_kernel() -> None:
    f = torch.randn(64, generator=Generator().manual_seed(1), dtype=torch.float64)
    grid = Grid(0.7, 0.1, 64)
    found, dual = fourier_transform(f, grid)
    direct = integral_transform(lambda u, t: torch.exp(-2j * math.pi * u * t), f, grid, dual.places)
    assert torch.allclose(found, direct, atol=1e-12)


def test_inverse_and_parseval() -> None:
    t = GRID.places
    f = torch.exp(-math.pi * (t - 1).square()) * torch.cos(5 * t)
    found, dual = fourier_transform(f, GRID)
    back, again = fourier_transform(found, dual, inverse=True)
    assert (again.step, again.size) == (GRID.step, GRID.size)
    assert torch.allclose(back, f.to(back), atol=1e-13)
    energy = float(f.square().sum() * GRID.step)
    assert float(found.abs().square().sum() * dual.step) == pytest.approx(energy, rel=1e-13)


def test_grids_and_values_must_fit() -> None:
    with pytest.raises(ValueError, match="even count"):
        centered(1.0, 5)
    with pytest.raises(ValueError, match="one value a place"):
        fourier_transform(torch.zeros(4), GRID)
