"""The error of interpolation against both bounds: random cases, equality, broken premises, a tolerance."""

import math
from itertools import pairwise

import pytest
import torch

from margin.core.findings import Verdict
from margin.core.tasks import VALUES
from margin.feedforward.mlp.model import MLPRegressor
from margin.feedforward.piecewise import error as claims
from margin.feedforward.piecewise.error import FunctionInterpolant, error_on_grid, interpolant_within
from margin.theory.prediction.held_out import stated


def asked(function, low=0.0, high=1.0, **options):
    return claims.subject_of(FunctionInterpolant(function, low, high, **options))


def trigonometric(seed: int):
    """A random sum of sines with bounds of its first and second derivative."""
    g = torch.Generator().manual_seed(seed)
    a, w, b = (scale * torch.randn(4, generator=g, dtype=torch.float64) for scale in (1.0, 6.0, 3.0))
    slope, curvature = float((a * w).abs().sum()), float((a * w.square()).abs().sum())
    return (lambda x: (x.double()[..., None] * w + b).sin() @ a), slope, curvature


@pytest.mark.parametrize("pieces", [1, 3, 10, 50])
@pytest.mark.parametrize("seed", range(4))
def test_both_bounds_hold_for_random_smooth_functions(seed: int, pieces: int) -> None:
    f, slope, curvature = trigonometric(seed)
    subject = asked(f, -1.0, 2.0, pieces=pieces, modulus=lambda h: slope * h, curvature=curvature)
    for ask in (claims.by_modulus, claims.by_curvature):
        found = ask(subject)
        assert found.verdict is Verdict.HOLDS, found
        assert all(premise.status != "refuted" for premise in found.premises)


@pytest.mark.parametrize("pieces", [1, 4, 37])
def test_the_curvature_bound_is_attained_by_a_parabola(pieces: int) -> None:
    found = claims.by_curvature(asked(torch.square, pieces=pieces, curvature=2.0))
    assert float(found.value) == pytest.approx(1 / pieces**2 / 4, rel=1e-9)
    assert float(found.high) == pytest.approx(1 / pieces**2 / 4, rel=1e-12)
    assert found.verdict is Verdict.HOLDS
    assert found.tolerance < 1e-4 * float(found.high)


def test_a_curvature_that_is_a_little_too_small_is_refuted() -> None:
    found = claims.by_curvature(asked(torch.square, curvature=1.999))
    assert found.verdict is Verdict.UNFOUNDED
    assert found.premises[1].evidence == "the largest second difference on the grid is 2"


def test_the_modulus_bound_is_nearly_attained_by_a_steep_step() -> None:
    """A ramp right of a knot, a hundredth of a piece wide: the interpolant is at 0.01 where f is at 1."""
    width = 0.01 / 4

    def step(x: torch.Tensor) -> torch.Tensor:
        return ((x - 0.5) / width).clamp(0, 1)

    found = claims.by_modulus(asked(step, pieces=4, modulus=lambda h: min(h / width, 1.0)))
    assert found.verdict is Verdict.HOLDS
    assert float(found.value / found.high) == pytest.approx(0.99, abs=2e-3)


def test_the_demonstration_is_as_computed_by_hand() -> None:
    """The sine moves by sin h over the first piece, and is farthest from the line of the piece that ends at
    its top, where it is most curved."""
    h = math.pi / 8
    by_modulus, by_curvature = claims.by_modulus(claims.demo()), claims.by_curvature(claims.demo())
    assert float(by_modulus.high) == pytest.approx(math.sin(h), rel=1e-12)
    assert float(by_curvature.high) == pytest.approx(h**2 / 8, rel=1e-12)
    middle = torch.linspace(0.0, h, 100_001, dtype=torch.float64) + math.pi / 2 - h
    line = math.cos(h) + (middle - math.pi / 2 + h) * (1 - math.cos(h)) / h
    assert float(by_curvature.value) == pytest.approx(float((middle.sin() - line).max()), rel=1e-5)


def test_a_modulus_that_is_too_small_is_refuted() -> None:
    found = claims.by_modulus(asked(torch.sqrt, modulus=lambda h: 4 * h))
    assert found.verdict is Verdict.UNFOUNDED
    assert "f moves by" in found.premises[1].evidence
    right = claims.by_modulus(asked(torch.sqrt, modulus=math.sqrt))
    assert right.verdict is Verdict.HOLDS
    nothing = claims.by_modulus(asked(torch.sqrt, modulus=lambda h: math.nan))
    assert nothing.verdict is Verdict.UNFOUNDED


def test_a_kink_has_no_curvature() -> None:
    found = claims.by_curvature(asked(lambda x: (x - 0.4).abs(), curvature=100.0))
    assert found.verdict is Verdict.UNFOUNDED
    assert found.premises[1].status == "refuted"


def test_the_error_falls_four_times_when_the_pieces_are_halved() -> None:
    errors = [
        error_on_grid(FunctionInterpolant(torch.sin, 0.0, math.pi, pieces=2**k)).largest for k in range(1, 9)
    ]
    ratios = [one / other for one, other in pairwise(errors)]
    assert ratios[-1] == pytest.approx(4, rel=1e-3)
    assert all(ratio == pytest.approx(4, rel=0.2) for ratio in ratios[1:])


def test_a_network_that_is_not_the_interpolant_is_unfounded() -> None:
    for layer, change in ((2, 0.01), (0, 0.05)):
        subject = claims.demo()
        with torch.no_grad():
            subject.model.layers[layer].bias += change
        for ask in (claims.by_modulus, claims.by_curvature):
            found = ask(subject)
            assert found.verdict is Verdict.UNFOUNDED
            assert found.premises[0].status == "refuted"


def test_a_network_that_bends_between_the_knots_is_unfounded() -> None:
    coarse = FunctionInterpolant(torch.sin, 0.0, math.pi, pieces=4, curvature=1.0)
    fine = FunctionInterpolant(torch.sin, 0.0, math.pi, pieces=8, curvature=1.0)
    coarse.layers = fine.layers  # right at all five knots
    found = claims.by_curvature(claims.subject_of(coarse))
    assert found.verdict is Verdict.UNFOUNDED
    assert "bends between the knots" in found.premises[0].evidence


@pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4])
def test_a_constructed_network_meets_its_tolerance(tolerance: float) -> None:
    f, _, curvature = trigonometric(3)
    net = interpolant_within(f, -1.0, 1.0, tolerance=tolerance, curvature=curvature)
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        assert float((net(x[:, None]) - f(x)).abs().max()) <= tolerance
    line = interpolant_within(lambda x: 3 * x, 0.0, 1.0, tolerance=1e-9, curvature=0.0)
    assert line.pieces == 1


def test_what_is_no_function_on_an_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"low < high, finite, and pieces >= 1: got 1\.0, 0\.0, 16"):
        FunctionInterpolant(torch.sin, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"got 0\.0, 1\.0, 0"):
        FunctionInterpolant(torch.sin, 0.0, 1.0, pieces=0)
    with pytest.raises(ValueError, match="curvature must be finite and at least 0: got -1"):
        FunctionInterpolant(torch.sin, 0.0, 1.0, curvature=-1.0)
    with pytest.raises(ValueError, match="must be finite"):
        FunctionInterpolant(torch.log, 0.0, 1.0)


def test_only_interpolants_of_known_functions_are_asked() -> None:
    plain = stated(torch.zeros(2).double(), torch.zeros(2).double(), task=VALUES)
    assert not claims.has_modulus(plain)
    assert not claims.has_curvature(plain)
    bare = claims.subject_of(FunctionInterpolant(torch.sin, 0.0, 1.0))
    assert not claims.has_modulus(bare)
    assert not claims.has_curvature(bare)
    with pytest.raises(ValueError, match="got modulus=None"):
        claims.by_modulus(bare)
    with pytest.raises(ValueError, match="got curvature=None"):
        claims.by_curvature(bare)
    other = claims.demo()
    object.__setattr__(other, "model", MLPRegressor(1))
    with pytest.raises(ValueError, match="interpolant of a known function: got MLPRegressor"):
        claims.by_curvature(other)
