"""Changes of point clouds: rigid where they say so, and a thinned cloud is a subset of the points."""

import pytest
import torch
from torch import Generator

from margin.data.transforms.points import Move, Thin, Turn


def clouds(n=200, points=30, axes=3, seed=0):
    return torch.randn(n, points, axes, generator=Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("axes", [2, 3])
def test_a_turn_keeps_distances_orientation_and_the_vertical(axes):
    x = clouds(axes=axes)
    made = Turn(20)(x, Generator().manual_seed(0))
    torch.testing.assert_close(torch.cdist(made, made), torch.cdist(x, x), rtol=0, atol=1e-6)
    assert torch.equal(made[..., 2:], x[..., 2:])
    angles = torch.view_as_complex(made[..., :2].contiguous()) / torch.view_as_complex(
        x[..., :2].contiguous()
    )
    degrees = angles.angle().rad2deg()
    assert (degrees - degrees[:, :1]).abs().max() < 1e-9  # one angle a cloud, no mirror image
    assert degrees.abs().max() <= 20 and degrees.min() < -19 and degrees.max() > 19


def test_a_move_is_one_vector_a_cloud_within_its_reach():
    x = clouds()
    steps = Move(0.1)(x, Generator().manual_seed(0)) - x
    torch.testing.assert_close(steps, steps[:, :1].expand_as(steps), rtol=0, atol=1e-12)
    assert steps.abs().max() <= 0.1 and steps.abs().max() > 0.099
    assert (steps[:, 0, 0] - steps[:, 0, 1]).abs().min() > 0  # each axis its own


def test_a_thinned_cloud_is_a_subset_which_the_first_point_fills_up():
    x = clouds(2000)
    made = Thin(0.8)(x, Generator().manual_seed(0))
    same = (made == x).all(2)
    first = (made == x[:, :1]).all(2)
    assert (same | first).all()
    assert torch.equal(made[:, 0], x[:, 0])
    left_out = (~same).double().mean(1)
    # the share is uniform in [0, 0.8] for each cloud, 29 of 30 points can go: 2000 clouds, 5 standard errors
    assert abs(left_out.mean() - 0.4 * 29 / 30) < 0.03
    assert left_out.min() == 0 and left_out.max() > 0.65
    assert abs(left_out.var() - (0.8**2 / 12 + 0.4 * 0.6 / 30 - 0.8**2 / 12 / 30) * (29 / 30) ** 2) < 0.01
