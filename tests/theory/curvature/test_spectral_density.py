"""Stochastic Lanczos quadrature against dense spectra: weights, moments, density, its error."""

import math

import pytest
import torch
from torch import Generator

from margin.theory.curvature.lanczos import SpectralDensity, random_direction, spectral_density


def matrix(n=200):
    A = torch.randn(n, n, generator=Generator().manual_seed(0), dtype=torch.float64) / math.sqrt(n)
    return A + A.T


def smoothed(values, grid, width):
    z = (grid[:, None] - values) / width
    return (-z.square() / 2).exp().mean(1) / (width * math.sqrt(2 * math.pi))


def test_weights_are_first_components_squared_and_sum_to_one():
    # The mutant takes all components (PyHessian's density before its 23rd pull request): each row of the
    # nodes' moments would then be wrong, and the weights would sum to the number of steps.
    A = matrix(60)
    found = spectral_density(lambda v: A @ v, 60, probes=3, steps=12, seed=5)
    torch.testing.assert_close(found.weights.sum(1), torch.ones(3).double(), rtol=0, atol=1e-12)
    from margin.math.seeds import mix

    for i in range(3):
        v = random_direction(60, seed=mix(5, i))
        v = v / v.norm()
        for power in (1, 2, 7, 23):  # Gauss: exact up to degree 2 * 12 - 1
            moment = v @ torch.linalg.matrix_power(A, power) @ v
            ours = (found.weights[i] * found.nodes[i] ** power).sum()
            assert ours.item() == pytest.approx(moment.item(), rel=1e-9, abs=1e-9)


def test_the_density_integrates_to_one_and_is_the_smoothed_spectrum():
    A = matrix()
    values = torch.linalg.eigvalsh(A)
    found = spectral_density(lambda v: A @ v, 200, probes=20, steps=40)
    width = found.resolution
    grid = found.grid(1000, width)
    density, error = found.smoothed(grid, width)
    assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=2e-4)
    exact = smoothed(values, grid, width)
    distance = torch.trapezoid((density - exact).abs(), grid).item()
    # The distance that the errors announce: E|normal| = 0.8 standard errors at each point.
    announced = 0.8 * torch.trapezoid(error, grid).item()
    assert distance <= 2 * announced
    assert 0.01 < announced < 0.1
    # Errors where there is mass; 5.6 of 19 degrees of freedom: 2e-5 a point, about 40 independent ones.
    inside = exact > 0.1 * exact.max()
    assert bool(((density - exact).abs() <= 5.6 * error + 1e-3 * exact.max())[inside].all())


def test_its_mean_is_the_trace_over_the_order():
    A = matrix(50) + torch.eye(50).double()
    found = spectral_density(lambda v: A @ v, 50, probes=30, steps=10)
    draws = found.mean()
    off = abs(draws.mean().item() - A.trace().item() / 50)
    assert off <= 5.2 * draws.std().item() / math.sqrt(30)  # Student with 29 degrees: probability 1.5e-5


@pytest.mark.parametrize("k", [8, 16, 40])
def test_the_quadrature_resolves_what_it_says(k):
    # A deterministic check of the quadrature alone: smoothing the start's spectral measure itself.
    values = torch.linspace(-1, 1, 400, dtype=torch.float64)
    found = spectral_density(lambda v: values * v, 400, probes=2, steps=k, seed=1)
    from margin.math.seeds import mix

    width = found.resolution
    assert width == pytest.approx(2 / k, rel=0.1)
    for i in range(2):
        v = random_direction(400, seed=mix(1, i))
        measure = (v / v.norm()).square()
        for x in (-0.5, 0.0, 0.3):
            exact = (measure * (1 + ((x - values) / (width * math.sqrt(2))).erf()) / 2).sum()
            assert found.share_below(x, width)[i].item() == pytest.approx(exact.item(), abs=1e-4)


def test_a_krylov_space_that_closes_early_is_all_there_is():
    d = torch.tensor([2.0] * 30 + [-1.0] * 10, dtype=torch.float64)
    found = spectral_density(lambda v: d * v, 40, probes=50, steps=20)
    assert bool(((found.weights > 0).sum(1) == 2).all())
    assert found.ends == pytest.approx((-1, 2), abs=1e-12)
    share = found.share_below(0, 1e-3)
    assert abs(share.mean() - 0.25) <= 5 * share.std() / math.sqrt(50)  # Student: probability 8e-6
    zero = spectral_density(lambda v: 0 * v, 7, probes=2, steps=5)
    assert zero.ends == (0, 0) and zero.resolution > 0 and zero.weights.sum().item() == pytest.approx(2)


def test_bad_options_and_products_that_are_not_finite():
    for options in ({"probes": 1}, {"steps": 1}):
        with pytest.raises(ValueError, match="probes and steps must be at least 2"):
            spectral_density(lambda v: v, 5, **options)
    found = spectral_density(lambda v: v * math.nan, 5)
    assert isinstance(found, SpectralDensity) and bool(found.nodes.isnan().all())
