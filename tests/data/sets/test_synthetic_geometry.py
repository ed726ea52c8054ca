"""Solids whose points lie where the law of their surface says; sums of digits recomputed from the images."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator

from margin.data.sets.bundled import digits
from margin.data.sets.synthetic_geometry import _box, _cylinder, _sphere, digit_sums, solids, union_of_solids


def test_points_lie_on_the_surface_of_their_solid() -> None:
    for seed in range(20):
        box = _box(400, Generator().manual_seed(seed))
        half = box.abs().amax(0)
        assert torch.allclose((box.abs() / half).amax(1), torch.ones(400), atol=1e-6)
        sphere = _sphere(400, Generator().manual_seed(seed))
        assert torch.allclose(sphere.norm(dim=1), sphere.norm(dim=1)[0].expand(400), atol=1e-6)
        tube = _cylinder(400, Generator().manual_seed(seed))
        radius, height = tube[:, :2].norm(dim=1), tube[:, 2].abs()
        on_mantle, on_disc = radius >= radius.max() - 1e-5, height >= height.max() - 1e-5
        assert bool((on_mantle | on_disc).all())
        assert 0.2 <= radius.max() <= 0.45 + 1e-6
        assert 0.3 - 1e-6 <= height.max() <= 0.6 + 1e-6


def test_points_are_uniform_by_area() -> None:
    """Shares of 20,000 points on faces, mantle and half a disc, within 5 standard errors (p < 1e-5)."""
    error = 5 * 0.5 / 20_000**0.5
    box = _box(20_000, Generator().manual_seed(1))
    half = box.abs().amax(0)
    areas = half.prod() / half
    shares = torch.stack([((box.abs() / half).argmax(1) == axis).float().mean() for axis in range(3)])
    assert torch.allclose(shares, areas / areas.sum(), atol=error)
    tube = _cylinder(20_000, Generator().manual_seed(2))
    radius, height = tube[:, :2].norm(dim=1), 2 * tube[:, 2].abs().max()
    r = radius.max()
    on_disc = tube[:, 2].abs() >= height / 2 - 1e-6
    assert on_disc.float().mean() == pytest.approx(float(r / (r + height)), abs=error)
    inside = (radius[on_disc] < r / 2**0.5).float().mean()
    assert inside == pytest.approx(0.5, abs=5 * 0.5 / float(on_disc.sum()) ** 0.5)


def test_each_solid_has_its_third() -> None:
    cloud, labels = union_of_solids(20, Generator().manual_seed(0))
    assert cloud.shape == (20, 3)
    assert sorted(labels.bincount().tolist()) == [6, 7, 7]


def test_solids_are_data_with_a_class_for_each_point(refused: Callable) -> None:
    data = solids(examples=20, points=30)
    assert data.encoding["task"] == "point_classes"
    assert data.encoding["classes"] == ["box", "cylinder", "sphere"]
    train = data.splits["train"]
    assert train.inputs[0].shape == (12, 30, 3)
    assert train.targets.shape == (12, 30)
    assert train.inputs[0].norm(dim=-1).max() <= 1 + 1e-6
    assert data.fingerprint == solids(examples=20, points=30).fingerprint
    assert data.fingerprint != solids(examples=20, points=30, seed=1).fingerprint
    with refused("at least 3 examples of 3 points", "points=2"):
        solids(points=2)
    with refused("noise=-1"):
        solids(noise=-1.0)


def test_aligned_solids_stand_upright_side_by_side_in_one_order() -> None:
    """The mantle of an upright cylinder is a circle seen from above, and places follow the labels."""
    for k in range(5):
        cloud, labels = union_of_solids(300, Generator().manual_seed(k), "aligned")
        centers = [float(cloud[labels == label, 0].mean()) for label in range(3)]
        assert centers == sorted(centers)
        cylinder = cloud[labels == 1]
        top, bottom = cylinder[:, 2].max(), cylinder[:, 2].min()
        discs = (cylinder[:, 2] > top - 1e-5) | (cylinder[:, 2] < bottom + 1e-5)
        mantle = cylinder[~discs, :2]
        middle = torch.linalg.lstsq(
            torch.cat((2 * mantle, torch.ones(len(mantle), 1)), 1), mantle.square().sum(1, keepdim=True)
        ).solution[:2, 0]
        radius = (mantle - middle).norm(dim=1)
        torch.testing.assert_close(radius, radius.mean().expand_as(radius), rtol=1e-3, atol=1e-4)


def test_a_sphere_stays_a_sphere_in_the_unit_ball() -> None:
    """Scaling is by one number: distances of the sphere's points from its center agree."""
    data = solids(examples=8, points=300)
    x, labels = data.splits["train"].inputs[0], data.splits["train"].targets
    for cloud, label in zip(x, labels, strict=True):
        ball = cloud[label == 2].double()
        # ||p - c||^2 = r^2 is linear in (2c, r^2 - |c|^2).
        design = torch.cat((2 * ball, torch.ones(len(ball), 1, dtype=torch.float64)), 1)
        fit = torch.linalg.lstsq(design, ball.square().sum(1, keepdim=True))
        assert torch.allclose(design @ fit.solution, ball.square().sum(1, keepdim=True), atol=1e-5)


def test_the_value_is_the_sum_of_the_digits(refused: Callable) -> None:
    data = digit_sums(train_sets=40, test_sets=10, most=4, test_size=7)
    source = digits(val=0.0)
    known = {
        tuple((image.flatten() / 16).tolist()): (int(label), part)
        for part in ("train", "test")
        for image, label in zip(source.splits[part].inputs[0], source.splits[part].targets, strict=True)
    }
    sizes = {"train": range(1, 5), "val": range(1, 5), "test": range(7, 8)}
    for part, sets in data.splits.items():
        x, mask = sets.take(torch.arange(len(sets)), Generator()).inputs
        for images, here, value in zip(x, mask, sets.targets, strict=True):
            found = [known[tuple(image.tolist())] for image in images[here]]
            assert value == sum(label for label, _ in found)
            assert {place for _, place in found} == {"test" if part == "test" else "train"}
            assert len(found) in sizes[part]
    assert data.fingerprint == digit_sums(train_sets=40, test_sets=10, most=4, test_size=7).fingerprint
    with refused("must be at least 1", "most=0"):
        digit_sums(most=0)
