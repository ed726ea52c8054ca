"""Projections against the variational inequality that characterizes them, and a quadratic program."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from margin.robust.attacks.threat_models import (
    project_l1,
    project_l1_box,
    project_l2,
    project_linf,
    project_simplex,
)

SHAPES = [(5, 4), (3, 2, 3, 3), (2, 5, 3), (4, 1)]
NORMS = {
    project_linf: lambda d: d.flatten(1).abs().amax(1),
    project_l2: lambda d: d.flatten(1).norm(dim=1),
    project_l1: lambda d: d.flatten(1).abs().sum(1),
}


def draw(shape, seed=0, scale=3.0):
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("project", NORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_ball_holds_and_the_residual_is_normal_to_it(project, shape):
    x, eps = draw(shape), 1.3
    p = project(x, eps)
    assert p.shape == x.shape
    assert (NORMS[project](p) <= eps * (1 + 1e-12)).all()
    torch.testing.assert_close(project(p, eps), p, rtol=0, atol=1e-12)
    for seed in range(200):
        z = draw(shape, seed + 1)
        z = z / NORMS[project](z).clamp(min=1e-9).reshape(-1, *(1,) * (z.ndim - 1)) * eps
        assert (((x - p) * (z - p)).flatten(1).sum(1) <= 1e-9).all()


@pytest.mark.parametrize("project", NORMS)
def test_a_point_of_the_ball_comes_back_bit_for_bit(project):
    x = draw((6, 3), scale=0.01).float()
    assert torch.equal(project(x, 1.0), x)


@pytest.mark.parametrize("project", NORMS)
def test_one_radius_per_example_is_each_example_alone(project):
    x = draw((4, 2, 3))
    eps = torch.tensor([0.0, 0.5, 2.0, 100.0], dtype=torch.float64)
    together = project(x, eps)
    for i in range(4):
        torch.testing.assert_close(
            together[i : i + 1], project(x[i : i + 1], eps[i].item()), rtol=0, atol=1e-14
        )
    assert not together[0].any()


def test_the_simplex_satisfies_its_variational_inequality():
    x, mass = draw((50, 7)), 2.5
    p = project_simplex(x, mass)
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(1), torch.full((50,), mass, dtype=torch.float64), rtol=0, atol=1e-12)
    corners = mass * torch.eye(7, dtype=torch.float64)
    for corner in corners:  # a linear function is largest at a corner
        assert (((x - p) * (corner - p)).sum(1) <= 1e-9).all()


def test_hand_cases():
    def one(values):
        return torch.tensor([values], dtype=torch.float64)

    torch.testing.assert_close(project_simplex(one([1.0, 0.0])), one([1.0, 0.0]))
    torch.testing.assert_close(project_simplex(one([2.0, 1.5])), one([0.75, 0.25]))
    torch.testing.assert_close(project_simplex(one([3.0, 1.0])), one([1.0, 0.0]))
    torch.testing.assert_close(project_l1(one([2.0, -1.5]), 1.0), one([0.75, -0.25]))
    torch.testing.assert_close(project_l2(one([3.0, 4.0]), 1.0), one([0.6, 0.8]))
    torch.testing.assert_close(project_linf(one([3.0, -4.0, 0.5]), 1.0), one([1.0, -1.0, 0.5]))


@pytest.mark.parametrize("seed", range(5))
def test_l1_equals_a_quadratic_program(seed):
    x = draw((1, 4), seed)
    v = x[0].numpy()

    def distance(split):
        return 0.5 * np.sum((split[:4] - split[4:] - v) ** 2)

    def slope(split):
        r = split[:4] - split[4:] - v
        return np.concatenate([r, -r])

    result = minimize(
        distance,
        np.zeros(8),
        jac=slope,
        bounds=[(0, None)] * 8,
        constraints={"type": "ineq", "fun": lambda s: 1.0 - s.sum(), "jac": lambda s: -np.ones(8)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    expected = torch.from_numpy(result.x[:4] - result.x[4:])
    torch.testing.assert_close(project_l1(x, 1.0)[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_l1_cut_with_a_box_equals_a_quadratic_program(seed):
    rng = np.random.default_rng(seed)
    v, low, high, eps = rng.normal(size=4) * 2, -rng.uniform(0, 1, 4), rng.uniform(0, 1, 4), 0.8
    low[1] = 0.0
    result = minimize(
        lambda s: 0.5 * np.sum((s[:4] - s[4:] - v) ** 2),
        np.zeros(8),
        jac=lambda s: np.concatenate([s[:4] - s[4:] - v, v - s[:4] + s[4:]]),
        bounds=[*((0, h) for h in high), *((0, -each) for each in low)],
        constraints={"type": "ineq", "fun": lambda s: eps - s.sum(), "jac": lambda s: -np.ones(8)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    point, *ends = (torch.from_numpy(a)[None] for a in (v, low, high))
    found = project_l1_box(point, eps, *ends)
    np.testing.assert_allclose(found[0].numpy(), result.x[:4] - result.x[4:], atol=1e-6)


def test_first_into_the_l1_ball_and_then_into_the_box_is_another_point():
    point, low, high = torch.tensor([[3.0, 1.0]]), torch.tensor([-0.5, -1.0]), torch.tensor([0.5, 1.0])
    assert project_l1_box(point, 1.0, low, high).tolist() == [[0.5, 0.5]]
    twice = torch.minimum(torch.maximum(project_l1(point, 1.0), low), high)
    assert twice.tolist() == [[0.5, 0.0]]  # half of the ball is wasted


def test_l1_cut_with_a_box_satisfies_its_variational_inequality_and_is_idempotent():
    low, high = -draw((40, 6), 1).abs() / 6, draw((40, 6), 2).abs() / 6
    x, eps = draw((40, 6), 3), torch.linspace(0.0, 2.0, 40).double()
    p = project_l1_box(x, eps, low, high)
    assert ((p >= low) & (p <= high)).all() and (p.abs().sum(1) <= eps + 1e-12).all()
    torch.testing.assert_close(project_l1_box(p, eps, low, high), p, rtol=0, atol=1e-12)
    for seed in range(200):
        z = torch.minimum(torch.maximum(draw((40, 6), seed + 9), low), high)
        z = z * (eps / z.abs().sum(1).clamp(min=1e-12)).clamp(max=1)[:, None]
        assert (((x - p) * (z - p)).sum(1) <= 1e-9).all()


@pytest.mark.parametrize("eps", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("project", NORMS)
def test_a_radius_must_be_finite_and_not_negative(project, eps):
    with pytest.raises(ValueError, match="radius must be finite"):
        project(draw((2, 2)), eps)


def test_radii_of_the_wrong_number_are_refused():
    with pytest.raises(ValueError, match="one per example: got 3 for 2"):
        project_l2(draw((2, 2)), torch.ones(3))
