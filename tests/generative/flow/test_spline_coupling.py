"""Monotone rational-quadratic splines: nflows' own formula, hand cases, edges, gradients outside the box."""

import math

import pytest
import torch
from torch import Generator, Tensor

from margin.generative.flow.coupling import LEAST, Couplings, Spline, knots_of, spline, spline_inverse


def drawn(*shape: int, scale: float = 1.0, seed: int = 0) -> Tensor:
    return scale * torch.randn(*shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(x: float, xs: list[float], ys: list[float], slopes: list[float]) -> float:
    """Gregory and Delbourgo's interpolant, written as they do: a quotient of two quadratics in theta."""
    k = max(i for i in range(len(xs) - 1) if x >= xs[i])
    h, delta = xs[k + 1] - xs[k], (ys[k + 1] - ys[k]) / (xs[k + 1] - xs[k])
    theta = (x - xs[k]) / h
    d, e = slopes[k], slopes[k + 1]
    p = (
        ys[k + 1] * theta**2
        + (ys[k] * e + ys[k + 1] * d) / delta * theta * (1 - theta)
        + ys[k] * (1 - theta) ** 2
    )
    q = 1 + ((d + e) / delta - 2) * theta * (1 - theta)
    return p / q


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_it_is_the_interpolant_of_gregory_and_delbourgo(scale: float) -> None:
    raw = drawn(14, scale=scale)  # 5 bins
    knots = knots_of(raw, 2.0)
    xs, ys, slopes = (values.tolist() for values in knots)
    assert xs[0] == ys[0] == -2.0
    assert xs[-1] == ys[-1] == 2.0
    assert slopes[0] == slopes[-1] == 1.0
    x = torch.linspace(-1.999, 1.999, 201, dtype=torch.float64)
    got, _ = spline(x, raw.expand(201, 14), 2.0)
    expected = [by_hand(one, xs, ys, slopes) for one in x.tolist()]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), atol=1e-10, rtol=0)


def test_it_passes_through_its_knots_with_their_slopes() -> None:
    raw = drawn(11, scale=2.0)  # 4 bins
    knots = knots_of(raw, 3.0)
    inner = slice(1, -1)
    y, log_slope = spline(knots.x[inner], raw.expand(3, 11), 3.0)
    torch.testing.assert_close(y, knots.y[inner])
    torch.testing.assert_close(log_slope.exp(), knots.slope[inner])


def test_widths_are_softmax_shares_with_a_floor() -> None:
    raw = torch.zeros(8, dtype=torch.float64)  # 3 bins
    raw[:3] = torch.tensor([0.0, math.log(2.0), -math.inf])
    widths = knots_of(raw, 1.0).x.diff() / 2
    share = 1 - 3 * LEAST
    expected = [LEAST + share / 3, LEAST + 2 * share / 3, LEAST]
    torch.testing.assert_close(widths, torch.tensor(expected, dtype=torch.float64))


def test_raw_zeros_are_the_identity() -> None:
    x = torch.linspace(-4, 4, 41, dtype=torch.float64)
    y, log_slope = spline(x, torch.zeros(41, 23, dtype=torch.float64), 3.0)
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(log_slope, torch.zeros_like(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
def test_the_slope_is_the_derivative_and_the_inverse_exact(scale: float) -> None:
    """At 30 the softmaxes saturate: bins of the least width beside bins of the least height."""
    x = torch.linspace(-3.5, 3.5, 500, dtype=torch.float64).requires_grad_()
    raw = drawn(500, 23, scale=scale)
    y, log_slope = spline(x, raw, 3.0)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(log_slope, slope.log(), atol=1e-9, rtol=0)
    assert bool(log_slope.isfinite().all())
    error = (spline_inverse(y, raw, 3.0) - x).abs() * slope.clamp(max=1)
    assert float(error.detach().max()) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_everywhere(dtype: torch.dtype) -> None:
    """Case 95: at knots, at the box's edge, next to it and far out, also with all inputs in the tails."""
    edge = torch.tensor(3.0, dtype=dtype)
    inside = torch.nextafter(edge, torch.zeros_like(edge))
    far = torch.tensor([1e4, 1e30, 3.0, -3.0], dtype=dtype)
    for x in (torch.stack((edge, -edge, inside, -inside)), far, -far):
        for scale in (0.0, 1.0, 50.0):
            raw = drawn(len(x), 23, scale=scale).to(dtype).requires_grad_()
            at = x.clone().requires_grad_()
            y, log_slope = spline(at, raw, 3.0)
            back = spline_inverse(at, raw, 3.0)
            for out in (y, log_slope, back):
                assert bool(out.isfinite().all())
            grads = torch.autograd.grad(y.sum() + log_slope.sum() + back.sum(), (at, raw))
            assert all(bool(grad.isfinite().all()) for grad in grads)
    outside = torch.tensor([3.01, -4.0, 5.9, 1e30], dtype=dtype)
    y, log_slope = spline(outside, drawn(4, 23).to(dtype), 3.0)
    assert torch.equal(y, outside)
    assert torch.equal(spline_inverse(outside, drawn(4, 23).to(dtype), 3.0), outside)
    assert not log_slope.any()


def test_a_discriminant_that_rounds_below_zero_is_no_nan() -> None:
    """In float32, bins of extreme slope: every value of a dense grid has a finite inverse inside its bin."""
    raw = drawn(20_000, 23, scale=60.0, seed=3).float()
    y = torch.linspace(-3, 3, 20_000)
    x = spline_inverse(y, raw, 3.0)
    assert bool(x.isfinite().all())
    assert float(x.abs().max()) <= 3.0 + 1e-5


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 3.0), (torch.float64, 10.0)])
def test_the_inverse_loses_no_digits_where_a_bin_begins_flat(dtype: torch.dtype, scale: float) -> None:
    """There b < 0, and Durkan's form subtracts what is nearly equal: 30 to 1,000 times the rounding."""
    x = torch.linspace(-2.999, 2.999, 20_000, dtype=torch.float64).to(dtype)
    raw = drawn(20_000, 23, scale=scale, seed=4).to(dtype)
    y, log_slope = spline(x, raw, 3.0)
    rounding = torch.finfo(dtype).eps * 3 * (1 + (-log_slope).exp())
    assert float(((spline_inverse(y, raw, 3.0) - x).abs() / rounding).max()) < 25


def test_a_chain_of_splines_is_inverted_in_float32_and_float64() -> None:
    torch.manual_seed(0)
    flow = Couplings(4, 0, monotone=Spline(), layers=4, hidden=(32,), activation="tanh").double()
    x = drawn(500, 4, scale=1.5)
    with torch.no_grad():
        z, log_det = flow(x)
        assert float((flow.inverse(z) - x).abs().max()) < 1e-10
    J = torch.func.jacrev(lambda one: flow(one[None])[0][0])(x[0])
    torch.testing.assert_close(log_det[0], torch.linalg.slogdet(J.detach()).logabsdet, atol=1e-10, rtol=0)
    single = flow.float()
    with torch.no_grad():
        assert float((single.inverse(single(x.float())[0]) - x.float()).abs().max()) < 1e-5


def test_options_out_of_range_are_refused() -> None:
    for bins in (1, 0, 501):
        with pytest.raises(ValueError, match=r"bins must be from 2 to 500: got"):
            Spline(bins=bins)
    for box in (0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"box must be positive"):
            Spline(box=box)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [10.0, 100.0])
def test_the_inverse_of_a_steep_spline_stays_in_the_box_in_float32(seed: int, scale: float) -> None:
    # Raw outputs of this size make slopes of hundreds beside floors of 1e-3: the coefficients cancel.
    g = Generator().manual_seed(seed)
    raw, y = scale * torch.randn(4000, 23, generator=g), 6 * torch.rand(4000, generator=g) - 3
    x = spline_inverse(y, raw, 3.0)
    assert x.dtype == torch.float32 and bool((x.abs() <= 3).all())
    # The number between, by bisection of the spline itself, which rises, in float64.
    low, high = torch.full((4000,), -3.0).double(), torch.full((4000,), 3.0).double()
    for _ in range(60):
        middle = (low + high) / 2
        under = spline(middle, raw.double(), 3.0)[0] < y
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    torch.testing.assert_close(x.double(), low, rtol=0, atol=1e-4)
