"""Lipschitz constants: secants from below, closed forms, compositions, and functions that have none."""

import math

import pytest
import torch
from torch import Generator

from margin.math.convexity.lipschitz import (
    KNOWN,
    lipschitz_below,
    of_composition,
    of_sum,
    secants,
    smoothness_below,
    smoothness_gap,
)


def grid(low, high, count=401):
    return torch.linspace(low, high, count, dtype=torch.float64)[:, None]


NEAR = {"logsumexp": 3, "norm": 3}


def points_of(known):
    if known.name in NEAR:
        g = Generator().manual_seed(1)
        far = 40 * torch.eye(3, dtype=torch.float64)
        drawn = torch.randn(60, 3, generator=g, dtype=torch.float64)
        close = torch.tensor([[0, 0, -60.0], [1e-3, -1e-3, -60.0]], dtype=torch.float64)
        return torch.cat((drawn, far, 2 * far, close))
    return grid(-8, 8, 1601)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_secants_never_exceed_the_closed_form_and_come_near_it(known):
    points = points_of(known)
    if math.isfinite(known.lipschitz):
        below = lipschitz_below(known.function, points)
        assert 0.999 * known.lipschitz <= below <= known.lipschitz * (1 + 1e-10)
    else:
        assert lipschitz_below(known.function, grid(-100, 100)) > 100
    if math.isfinite(known.smoothness):
        below = smoothness_below(known.function, points)
        assert 0.999 * known.smoothness <= below <= known.smoothness * (1 + 1e-10)


def test_functions_without_a_constant():
    # sqrt on [0, 1]: continuous on a compact set, its secants from 0 grow as x^(-1/2)
    x = 10.0 ** torch.arange(-1, -9, -1, dtype=torch.float64)[:, None]
    ratios = secants(lambda z: z[0].sqrt(), torch.zeros_like(x), x)
    assert torch.allclose(ratios, x[:, 0].rsqrt())
    # x^2 on R: the secants grow with the interval, 2 R on [-R, R]
    for R in (1.0, 10.0, 100.0):
        assert lipschitz_below(lambda z: z[0].square(), grid(-R, R)) == pytest.approx(2 * R, rel=0.01)
    # |x| is 1-Lipschitz and its derivative jumps: the gradient has no constant
    tiny = torch.tensor([[-1e-9], [1e-9]], dtype=torch.float64)
    assert lipschitz_below(lambda z: z[0].abs(), grid(-5, 5)) <= 1 + 1e-12
    assert smoothness_below(lambda z: z[0].abs(), tiny) == pytest.approx(1e9)


def test_on_a_compact_interval_a_differentiable_function_has_its_largest_slope():
    f = lambda z: z[0].pow(3) - z[0]
    assert lipschitz_below(f, grid(-2, 2, 1001)) == pytest.approx(11, rel=0.01)  # sup |3 x^2 - 1| = 11
    assert lipschitz_below(f, grid(-2, 2, 1001)) <= 11


def test_compositions_and_sums():
    points = grid(-3, 3)
    composed = lambda z: torch.tanh(3 * torch.sin(z[0]))
    assert lipschitz_below(composed, points) <= of_composition(1.0, 3.0, 1.0) * (1 + 1e-12)
    assert lipschitz_below(composed, points) == pytest.approx(3, rel=0.01)  # tight: all are steepest at 0
    summed = lambda z: torch.sin(z[0]) + 2 * torch.tanh(z[0])
    assert lipschitz_below(summed, points) == pytest.approx(of_sum(1.0, 2.0), rel=0.01)
    cancel = lambda z: torch.sin(z[0]) - torch.sin(z[0])
    assert lipschitz_below(cancel, points) == 0 < of_sum(1.0, 1.0)  # not always the least


@pytest.mark.parametrize("seed", range(3))
def test_the_descent_inequality_of_the_logistic_loss_holds_with_its_bound_and_fails_with_half(seed):
    g = Generator().manual_seed(seed)
    X = torch.randn(60, 4, generator=g, dtype=torch.float64)
    y = torch.randint(2, (60,), generator=g).double()
    h = lambda w: torch.nn.functional.binary_cross_entropy_with_logits(X @ w, y)
    values, vectors = torch.linalg.eigh(X.T @ X)
    L = values[-1].item() / (4 * 60)
    a, b = 2 * torch.randn(2, 200, 4, generator=g, dtype=torch.float64)
    assert float(smoothness_gap(h, a, b, L).min()) >= -1e-12
    assert smoothness_below(h, torch.cat((a[:30], torch.zeros(1, 4).double()))) <= L * (1 + 1e-9)
    step = 0.05 * vectors[:, -1][None]
    assert float(smoothness_gap(h, torch.zeros_like(step), step, L / 2)) < 0  # at 0 the bound is reached
    tight = smoothness_gap(h, torch.zeros_like(step), step, L) / (L / 2 * 0.05**2)
    assert float(tight) == pytest.approx(0, abs=0.01)


def test_of_a_quadratic_the_magnitude_counts_not_the_largest_eigenvalue():
    f = lambda z: (z[0].square() - 3 * z[1].square()) / 2
    axes = torch.cat((torch.eye(2), torch.zeros(1, 2))).double()
    assert smoothness_below(f, axes) == pytest.approx(3)  # 001's lambda_max <= L would allow 1
    # from above the parabola of curvature 1 holds everywhere, and the gradient is not 1-Lipschitz
    x, y = torch.randn(2, 100, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    assert float(smoothness_gap(f, x, y, 1.0).min()) >= -1e-12


def test_bad_points_are_refused():
    with pytest.raises(ValueError, match="two different points"):
        secants(torch.sum, grid(0, 1), grid(0, 1))
    with pytest.raises(ValueError, match="needs two points: got 1"):
        lipschitz_below(torch.sum, grid(0, 1, 1))
