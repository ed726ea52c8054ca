"""The Laplacian of calculus: closed forms, and the mean over a ball."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.math.calculus.taylor import ball_mean, laplacian


def point(dim: int) -> Tensor:
    return torch.randn(dim, dtype=torch.float64, generator=Generator().manual_seed(dim))


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_of_a_squared_norm_it_is_twice_the_dimension(dim: int) -> None:
    torch.testing.assert_close(laplacian(lambda x: x @ x, point(dim)), torch.tensor(2.0 * dim).double())


def test_of_a_harmonic_function_it_is_0() -> None:
    for f in (
        lambda x: x[0] ** 2 - x[1] ** 2,
        lambda x: x[0].exp() * x[1].sin(),
        lambda x: (x[0] ** 2 + x[1] ** 2).log(),
    ):
        assert abs(float(laplacian(f, point(2)))) < 1e-12


@pytest.mark.parametrize("k", [(1,), (2, -1), (0, 3, 1)])
def test_waves_are_eigenfunctions(k: tuple[int, ...]) -> None:
    """Of e^(2 pi i k x), real and imaginary part, with the eigenvalue -4 pi^2 |k|^2."""
    frequency, x = torch.tensor(k, dtype=torch.float64), point(len(k))
    eigenvalue = -4 * math.pi**2 * float(frequency @ frequency)
    for part in (torch.cos, torch.sin):
        f = lambda x, part=part: part(2 * math.pi * (frequency @ x))
        torch.testing.assert_close(laplacian(f, x), eigenvalue * f(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_the_mean_over_a_ball_exceeds_the_value_by_its_share_of_the_laplacian(dim: int) -> None:
    """r^2 / (2 (d + 2)) Lap f, exactly for a quadratic; 4 standard errors are exceeded once in 16,000."""
    x, r = point(dim), 0.3
    A = torch.randn(dim, dim, dtype=torch.float64, generator=Generator().manual_seed(0))
    f = lambda x: x @ A @ x + x.sum()
    expected = r**2 / (2 * (dim + 2)) * laplacian(f, x)
    found = ball_mean(f, x, r, 2000, generator=Generator().manual_seed(1))
    assert abs(found.excess - expected) < 4 * found.stderr
    assert found.stderr < 0.1 * r**2
    wrong = r**2 / (2 * dim) * laplacian(f, x)  # that is the mean over the sphere
    assert abs(found.excess - wrong) > 4 * found.stderr


def test_the_limit_is_reached_as_the_square_of_the_radius() -> None:
    x = point(2)
    f = lambda x: (x[0].sin() + x[1] ** 3).exp()
    for r in (0.1, 0.01):
        found = ball_mean(f, x, r, 4000, generator=Generator().manual_seed(2))
        scale = r**2 / 8
        error = abs(found.excess / scale - laplacian(f, x))
        assert error < 4 * found.stderr / scale + 100 * r**2
        assert found.stderr / scale < 0.1 * abs(laplacian(f, x))


def test_bad_options_are_refused() -> None:
    for radius, count in ((0.0, 5), (-1.0, 5), (1.0, 1), (math.nan, 5)):
        with pytest.raises(ValueError, match="positive radius and 2 pairs"):
            ball_mean(torch.sum, point(2), radius, count, generator=Generator())
