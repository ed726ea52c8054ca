"""Hyperplanes: distance against an independent projection, normal form, and the test of linearity."""

import pytest
import torch

from margin.math.linear_algebra.hyperplanes import (
    Hyperplane,
    linearity_defect,
    normal_form,
    project,
    signed_distance,
    through,
)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_distance_is_to_the_nearest_point_found_by_least_squares():
    w, p, x = randn(4), randn(4, seed=1), randn(7, 4, seed=2)
    plane = through(p, w)
    # the plane is p + span of the three directions orthogonal to w
    basis = torch.linalg.svd(w[None])[2][1:].mT
    coordinates = torch.linalg.lstsq(basis, (x - p).mT).solution
    nearest = p + (basis @ coordinates).mT
    torch.testing.assert_close(project(plane, x), nearest)
    torch.testing.assert_close(signed_distance(plane, x).abs(), (x - nearest).norm(dim=1))
    side = (x - p) @ w
    assert torch.equal(signed_distance(plane, x) > 0, side > 0)
    assert float(signed_distance(plane, nearest).abs().max()) < 1e-14


def test_both_forms_of_a_hyperplane_are_one_set():
    w, p = randn(4), randn(4, seed=1)
    plane = through(p, w)
    assert float(plane.offset) == pytest.approx(float(w @ p), abs=1e-15)
    inside = p + torch.linalg.svd(w[None])[2][1:]
    assert float((inside @ plane.normal - plane.offset).abs().max()) < 1e-14
    for factor in (2.0, 0.1):
        scaled = normal_form(Hyperplane(factor * plane.normal, factor * plane.offset))
        torch.testing.assert_close(scaled.normal, normal_form(plane).normal)
        torch.testing.assert_close(scaled.offset, normal_form(plane).offset)
    assert float(normal_form(plane).normal.norm()) == pytest.approx(1, abs=1e-15)


def test_the_normal_forms_offset_is_the_distance_of_the_origin():
    plane = Hyperplane(torch.tensor([3.0, 4.0]), torch.tensor(-10.0))
    unit = normal_form(plane)
    assert unit.normal.tolist() == pytest.approx([0.6, 0.8])
    assert float(unit.offset) == -2
    origin = torch.zeros(2)
    assert float(project(plane, origin).norm()) == pytest.approx(2)
    assert float(signed_distance(plane, origin)) == pytest.approx(2)


def test_matrices_are_linear_and_affine_maps_are_not():
    A, c, x, y = randn(3, 4), randn(3, seed=1), randn(5, 4, seed=2), randn(5, 4, seed=3)
    assert float(linearity_defect(lambda v: v @ A.mT, x, y, 2.0, -0.7).abs().max()) < 1e-13
    affine = linearity_defect(lambda v: v @ A.mT + c, x, y, 2.0, -0.7)
    torch.testing.assert_close(affine, ((1 - 2.0 + 0.7) * c).expand(5, 3))
    scalar = linearity_defect(lambda v: v @ A[0], x, y, 1.0, 1.0)
    assert scalar.shape == (5,)
    assert float(scalar.abs().max()) < 1e-13
    assert float(linearity_defect(torch.relu, x, y, 1.0, -1.0).abs().max()) > 0.1
    # an affine map passes where the factors sum to 1: all arguments must be tried
    assert float(linearity_defect(lambda v: v @ A.mT + c, x, y, 0.3, 0.7).abs().max()) < 1e-14


def test_a_linear_function_is_the_product_with_its_values_on_the_basis():
    w, x = randn(4), randn(5, 4, seed=1)

    def f(v):
        return (v * w).sum(-1)

    torch.testing.assert_close(f(x), x @ f(torch.eye(4).double()))
    bent = torch.linalg.vector_norm
    assert float((bent(x, dim=-1) - x @ bent(torch.eye(4).double(), dim=-1)).abs().max()) > 0.1


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_a_normal_of_any_size_has_the_same_normal_form(size):
    unit = normal_form(Hyperplane(size * torch.tensor([3.0, 4.0]), torch.tensor(-10.0 * size)))
    torch.testing.assert_close(unit.normal, torch.tensor([0.6, 0.8]))
    assert float(unit.offset) == pytest.approx(-2, rel=1e-6)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_normal_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match=r"normal of a hyperplane must be finite: got \["):
        signed_distance(Hyperplane(torch.tensor([1.0, value]), torch.tensor(1.0)), torch.zeros(2))


@pytest.mark.parametrize(
    "act",
    [
        lambda zero: through(zero, zero),
        lambda zero: normal_form(Hyperplane(zero, torch.tensor(1.0))),
        lambda zero: project(Hyperplane(zero, torch.tensor(1.0)), zero),
    ],
)
def test_a_hyperplane_has_a_normal(act):
    with pytest.raises(ValueError, match="normal of a hyperplane must not be 0"):
        act(torch.zeros(2))
