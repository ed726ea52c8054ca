"""The great circle through two points: ends, norms, angles, and where there is none."""

import math

import pytest
import torch
from torch import Generator

from margin.generative.autoencoder.distributions import noise_path, slerp

T = torch.linspace(0, 1, 9, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(2,), (64,), (3, 4, 5)])
def test_it_begins_and_ends_at_the_points(shape: tuple[int, ...]) -> None:
    a, b = torch.randn(2, *shape, generator=Generator().manual_seed(0), dtype=torch.float64)
    path = slerp(a, b, T)
    assert path.shape == (9, *shape)
    torch.testing.assert_close(path[0], a)
    torch.testing.assert_close(path[-1], b)


def test_on_a_sphere_the_norm_stays_and_the_angle_grows_evenly() -> None:
    a, b = torch.tensor([3.0, 0.0, 0.0]).double(), torch.tensor([-1.0, math.sqrt(8), 0.0]).double()
    path = slerp(a, b, T)
    torch.testing.assert_close(path.norm(dim=1), torch.full((9,), 3.0).double())
    angles = torch.atan2(path[:, 1], path[:, 0])
    torch.testing.assert_close(angles, T * math.acos(-1 / 3))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4])
def test_between_nearly_parallel_points_it_is_the_segment(angle: float) -> None:
    a = torch.tensor([1.0, 0.0]).double()
    b = 2 * torch.tensor([math.cos(angle), math.sin(angle)]).double()
    path = slerp(a, b, T)
    torch.testing.assert_close(path, a + T[:, None] * (b - a), atol=1e-8, rtol=0)


def test_the_type_is_the_points() -> None:
    a, b = torch.randn(2, 5, generator=Generator().manual_seed(0))
    assert slerp(a, b, torch.linspace(0, 1, 3)).dtype == torch.float32


def test_where_no_circle_is_singled_out_it_is_refused() -> None:
    a = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="not opposite"):
        slerp(a, -2 * a, torch.linspace(0, 1, 3))
    for bad in (0 * a, a * math.nan, a * math.inf):
        with pytest.raises(ValueError, match="two finite points other than 0"):
            slerp(a, bad, torch.linspace(0, 1, 3))


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1)])
def test_a_path_of_one_number_is_the_segment_of_its_own_shape(shape: tuple[int, ...]) -> None:
    """The two are opposite: a circle is not singled out."""
    path = noise_path(torch.full(shape, -1.0), torch.full(shape, 2.0), 4)
    assert path.shape == (4, *shape)
    torch.testing.assert_close(path.flatten(), torch.tensor([-1.0, 0.0, 1.0, 2.0]))


def test_a_path_of_more_numbers_is_the_great_circle() -> None:
    first, last = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    half = math.sqrt(0.5)
    torch.testing.assert_close(
        noise_path(first, last, 3), torch.tensor([[1.0, 0.0], [half, half], [0.0, 1.0]])
    )
