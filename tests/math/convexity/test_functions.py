"""Testers of convexity against functions that are convex, and functions that only look it."""

import math

import pytest
import torch
from torch import Generator

from margin.math.convexity.functions import (
    curvatures,
    first_order_gap,
    secant_curvature,
    segment_gap,
    strong_convexity,
    worst_segment,
)


def box(low, high, dim=1):
    return torch.full((dim,), float(low)).double(), torch.full((dim,), float(high)).double()


def draw(seed, *shape):
    return 3 * torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def worst(f, low, high, dim=1):
    return worst_segment(f, *box(low, high, dim), Generator().manual_seed(0))


CONVEX = {
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "norm": lambda x: torch.linalg.vector_norm(x),
    "affine": lambda x: 3 * x.sum() - 7,
    "quartic": lambda x: x.pow(4).sum(),
    "sum with weights >= 0": lambda x: 2 * torch.logsumexp(x, 0) + 3 * x.square().sum(),
    "maximum": lambda x: torch.maximum(x.square().sum(), 4 + x[0]),
    "nondecreasing convex of convex": lambda x: torch.exp(x.square().sum() / 9),
}
NOT = {
    "x^4 - x^2": lambda x: (x.pow(4) - x.square()).sum(),
    "a weight below 0": lambda x: x.pow(4).sum() - 3 * x.square().sum(),
    "minimum": lambda x: torch.minimum(x.square().sum(), 4 + x[0]),
    "convex but decreasing of convex": lambda x: torch.exp(-x.square().sum()),
    "x^3, whose first derivative is >= 0": lambda x: x.pow(3).sum(),
    "nan": lambda x: x.sum() * math.nan,
}


@pytest.mark.parametrize("name", CONVEX)
@pytest.mark.parametrize("dim", [1, 4])
def test_convex_functions_are_not_refuted(name, dim):
    assert not worst(CONVEX[name], -3, 3, dim).refutes


@pytest.mark.parametrize("name", NOT)
def test_others_are_refuted_by_a_segment(name):
    found = worst(NOT[name], -3, 3)
    assert found.refutes
    if name != "nan":
        f, t = NOT[name], found.share
        gap = t * f(found.x) + (1 - t) * f(found.y) - f(t * found.x + (1 - t) * found.y)
        assert gap.item() == pytest.approx(found.gap, rel=1e-12)
        assert found.gap < -1e-3


def test_a_square_has_the_gap_of_its_closed_form():
    x, y = draw(1, 2, 50, 3)
    t = torch.rand(50, generator=Generator().manual_seed(2), dtype=torch.float64)
    expected = t * (1 - t) * (x - y).square().sum(1)
    assert torch.allclose(segment_gap(lambda z: z.square().sum(), x, y, t), expected, rtol=1e-10)


def test_the_first_order_condition_holds_exactly_where_the_others_do():
    x, y = draw(3, 2, 300, 1)
    for name in ("logsumexp", "quartic", "affine"):
        assert float(first_order_gap(CONVEX[name], x, y).min()) >= -1e-9
    assert float(first_order_gap(NOT["x^4 - x^2"], x, y).min()) < -0.1
    # of mu-strongly convex functions with mu, tight on the quadratic mu x^2 / 2
    assert first_order_gap(lambda z: z.square().sum(), x, y, mu=2.0).abs().max().item() < 1e-9
    assert float(first_order_gap(lambda z: z.square().sum(), x, y, mu=2.1).min()) < 0


def test_the_secant_curvature_lies_between_mu_and_L_and_the_printed_sign_does_not():
    x, y = draw(4, 2, 200, 2)
    diagonal = torch.tensor([1.0, 20.0], dtype=torch.float64)
    seen = secant_curvature(lambda z: (diagonal * z.square()).sum() / 2, x, y)
    assert float(seen.min()) >= 1 - 1e-12 and float(seen.max()) <= 20 + 1e-12
    axes = torch.eye(2, dtype=torch.float64)
    ends = secant_curvature(lambda z: (diagonal * z.square()).sum() / 2, axes, torch.zeros(2, 2).double())
    assert ends.tolist() == [1.0, 20.0]  # both ends are reached
    # 003 prints (grad f(x) - grad f(y)) . (y - x) >= mu: the sign of every convex function's is the other one
    slopes = torch.vmap(torch.func.grad(lambda z: (diagonal * z.square()).sum() / 2))
    assert float(((slopes(x) - slopes(y)) * (y - x)).sum(1).max()) < 0


def test_the_hessian_tester_and_the_vacuous_norm():
    grid = torch.linspace(-3, 3, 61, dtype=torch.float64)[:, None]
    bad = curvatures(NOT["x^4 - x^2"], grid)
    assert float(bad.min()) == pytest.approx(-2)  # 12 x^2 - 2 at 0
    assert bool((bad.abs().amax(1) >= 0).all())  # what 000 asks for, ||Hess|| >= 0, holds all the same
    assert float(curvatures(CONVEX["quartic"], grid).min()) >= 0


def test_a_minimizer_may_be_missing_or_unique_whatever_convexity_says():
    # exp is strictly convex and has no minimizer
    ends = torch.tensor([[-5.0], [-50.0], [-500.0]], dtype=torch.float64)
    values = torch.vmap(lambda x: x.exp().sum())(ends)
    assert bool((values.diff() < 0).all()) and float(values.min()) > 0
    assert strong_convexity(lambda x: x.exp().sum(), ends) < 1e-100 and not worst(torch.sum, -3, 3).refutes
    # -cos on [-3, 3] has one minimizer and is not convex
    grid = torch.linspace(-3, 3, 6001, dtype=torch.float64)
    assert (-grid.cos()).argmin() == 3000 and int((-grid.cos() <= -1 + 1e-15).sum()) == 1
    assert worst(lambda x: -x.cos().sum(), -3, 3).refutes


def test_strong_convexity():
    points = torch.cat((draw(5, 50, 3), torch.zeros(1, 3).double()))
    assert strong_convexity(CONVEX["quartic"], points) == 0  # strictly, not strongly
    A = draw(6, 3, 3)
    A = A @ A.T
    least = torch.linalg.eigvalsh(A)[0].item()
    f = lambda x: x @ A @ x / 2
    assert strong_convexity(f, points) == pytest.approx(least, rel=1e-9)
    lam = 0.37  # ridge adds exactly lambda
    assert strong_convexity(lambda x: f(x) + lam / 2 * x @ x, points) == pytest.approx(least + lam, rel=1e-9)
    # 000 asks ||Hess|| >= mu: the largest eigenvalue, which says nothing of diag(1, 0)
    flat = lambda x: x[0].square() / 2
    assert float(curvatures(flat, points).abs().max()) == 1 and strong_convexity(flat, points) == 0


def test_bad_boxes_are_refused():
    with pytest.raises(ValueError, match="low must lie below high"):
        worst(torch.sum, 1, 1)
    with pytest.raises(ValueError, match="segments >= 1"):
        worst_segment(torch.sum, *box(0, 1), Generator(), segments=0)
