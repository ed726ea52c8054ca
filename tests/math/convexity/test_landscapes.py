"""What a landscape says of itself, against grids and derivatives."""

import math

import pytest
import torch

from margin.math.convexity.functions import curvatures, worst_segment
from margin.math.convexity.landscapes import LANDSCAPES, landscape


@pytest.fixture(params=LANDSCAPES, ids=lambda found: found.name)
def found(request):
    return request.param


def grid(found):
    axes = [torch.linspace(low, high, 301 if len(found.window) == 1 else 61) for low, high in found.window]
    return torch.cartesian_prod(*axes).reshape(-1, len(axes)).double()


def test_minimizers_are_minimizers(found):
    for minimizer in torch.tensor(found.minimizers, dtype=torch.float64):
        assert float(found.value(minimizer)) == pytest.approx(found.least, abs=1e-9)
        assert float(torch.func.grad(found.value)(minimizer).norm()) < 1e-3
    assert float(torch.vmap(found.value)(grid(found)).min()) >= found.least


def test_constants_hold_on_a_grid(found):
    points = grid(found)
    seen = curvatures(found.value, points)
    if math.isfinite(found.smoothness):
        assert float(seen.abs().max()) <= found.smoothness * (1 + 1e-12)
        assert float(curvatures(found.value, torch.zeros_like(points[:1])).abs().max()) == pytest.approx(
            found.smoothness
        )  # and are reached, all at 0
    slopes, values = torch.vmap(torch.func.grad_and_value(found.value))(points)
    gaps = values - found.least
    assert bool((slopes.square().sum(1) / 2 >= found.pl * gaps - 1e-12).all())
    low, high = torch.tensor(found.window, dtype=torch.float64).unbind(1)
    refuted = worst_segment(found.value, low, high, torch.Generator().manual_seed(0)).refutes
    assert refuted is not found.convex


def test_the_smallest_ratio_of_the_wavy_function():
    x = torch.linspace(-10, 10, 200_001, dtype=torch.float64)
    x = x[x.abs() > 1e-3]
    slope, value = 2 * x + 3 * (2 * x).sin(), x.square() + 3 * x.sin().square()
    ratio = float((slope.square() / 2 / value).min())
    assert ratio == pytest.approx(0.1755, abs=1e-4) and ratio > landscape("wavy").pl


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="unknown landscape 'hill'; there are: valley, rosenbrock"):
        landscape("hill")
