"""The ball and the box hold in floating point, in every shape and type."""

import pytest
import torch

from margin.core.types import Domain
from margin.robust.attacks.threat_models import Threat

SHAPES = [(7, 4), (3, 2, 5, 5), (2, 6, 3)]


def wide(value=1e9):
    return Domain(torch.tensor(-value), torch.tensor(value))


def norm_of(delta, norm):
    flat = delta.double().flatten(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_projected_points_never_leave_the_ball(norm, shape, dtype, offset):
    # At 1000 a unit in the last place of float32 is 6e-5: rounding to nearest would overshoot eps by 3 %.
    generator = torch.Generator().manual_seed(1)
    x = (offset + torch.randn(shape, generator=generator)).to(dtype)
    y = x + 5 * torch.randn(shape, generator=generator).to(dtype)
    threat = Threat(wide(), 1e-3, norm)
    p = threat.project(y, x)
    assert p.dtype == dtype
    assert (norm_of(p.double() - x.double(), norm) <= 1e-3 * (1 + 1e-12)).all()
    threat.check(p, x)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_projected_points_never_leave_the_domain(norm):
    domain = Domain(torch.zeros(3), torch.tensor([1.0, 2.0, 0.3]))
    x = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * domain.high
    y = x + torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    p = Threat(domain, 0.4, norm).project(y, x)
    assert ((p >= domain.low) & (p <= domain.high)).all()
    assert (norm_of(p.double() - x.double(), norm) <= 0.4).all()


def test_projection_is_exact_where_the_arithmetic_is():
    threat = Threat(wide(), 0.5)
    x = torch.tensor([[1.0, 2.0]])
    assert torch.equal(threat.project(torch.tensor([[9.0, 1.75]]), x), torch.tensor([[1.5, 1.75]]))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_eps_0_is_the_identity_bit_for_bit(norm):
    x = torch.tensor([[0.0, -0.0, 1e-40, 4.31]])
    p = Threat(wide(), 0.0, norm).project(x + 1, x)
    assert torch.equal(p.view(torch.int32), x.view(torch.int32))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("shape", SHAPES)
def test_steepest_is_of_norm_1_and_beats_random_directions(norm, shape):
    generator = torch.Generator().manual_seed(2)
    g = torch.randn(shape, generator=generator, dtype=torch.float64)
    threat = Threat(wide(), 1.0, norm)
    best = threat.steepest(g)
    torch.testing.assert_close(norm_of(best, norm), torch.ones(shape[0], dtype=torch.float64))
    for _ in range(100):
        d = torch.randn(shape, generator=generator, dtype=torch.float64)
        d = d / norm_of(d, norm).reshape(-1, *(1,) * (d.ndim - 1))
        assert ((g * d).flatten(1).sum(1) <= (g * best).flatten(1).sum(1) + 1e-12).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_gradient_of_0_gives_no_direction_and_no_nan(norm):
    assert not Threat(wide(), 1.0, norm).steepest(torch.zeros(2, 3)).any()


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-30), (torch.float64, 1e-200)])
def test_a_tiny_gradient_keeps_its_direction(dtype, size):
    # Its squares underflow.
    gradient = size * torch.tensor([[3, -4]], dtype=dtype)
    direction = Threat(wide(), 1.0, "l2").steepest(gradient)
    torch.testing.assert_close(direction, torch.tensor([[0.6, -0.8]], dtype=dtype))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_points_fill_the_ball_and_repeat_with_the_seed(norm):
    x = torch.zeros(4000, 2)
    threat = Threat(wide(), 2.0, norm)
    y = threat.random_point(x, torch.Generator().manual_seed(3))
    assert torch.equal(y, threat.random_point(x, torch.Generator().manual_seed(3)))
    size = norm_of(y, norm)
    assert (size <= 2.0).all()
    # Uniform: the share within half the radius is 1/4 in the plane; 4000 draws, 5 standard errors.
    assert abs((size <= 1.0).double().mean() - 0.25) < 5 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_unit_for_each_coordinate_is_the_ball_of_rescaled_inputs(norm):
    unit = torch.tensor([1.0, 10.0, 0.1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    x, y = (torch.randn(50, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    scaled = Threat(wide(), 0.3, norm, unit)
    plain = Threat(wide(), 0.3, norm)
    torch.testing.assert_close(scaled.project(y * unit, x * unit), plain.project(y, x) * unit)
    # A linear function g.x of the inputs has slope g unit in the rescaled ones.
    torch.testing.assert_close(scaled.steepest(y / unit), plain.steepest(y) * unit)
    torch.testing.assert_close(scaled.size(y * unit, x * unit), plain.size(y, x))


def test_the_check_raises_on_a_point_outside_the_ball_or_the_domain():
    x = torch.zeros(2, 2)
    threat = Threat(Domain(torch.tensor(-1.0), torch.tensor(0.5)), 1.0)
    threat.check(x - 1.0, x)
    with pytest.raises(RuntimeError, match="left its ball"):
        threat.check(x - 1.00001, x)
    with pytest.raises(RuntimeError, match="left the domain"):
        threat.check(x + 0.75, x)
    with pytest.raises(RuntimeError, match="left its ball"):
        threat.check(x + torch.nan, x)


def test_inputs_outside_the_domain_are_refused_in_one_line():
    threat = Threat(Domain(torch.tensor(0.0), torch.tensor(16.0)), 1.0)
    x = torch.zeros(4, 2)
    x[3, 1] = 17.25
    with pytest.raises(ValueError, match=r"example 3 has 17.25 at \[1\], outside \[0, 16\]") as error:
        threat.check_inputs(x)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="example 0 has nan"):
        threat.check_inputs(x * torch.nan)


@pytest.mark.parametrize("eps", [-0.1, float("nan"), float("inf")])
def test_a_bad_eps_is_refused(eps):
    with pytest.raises(ValueError, match="eps must be finite and >= 0"):
        Threat(wide(), eps)


def test_the_hull_contains_the_set():
    domain = Domain(torch.zeros(2), torch.ones(2))
    threat = Threat(domain, 0.25, "l2")
    low, high = threat.hull(torch.tensor([[0.1, 0.5]]))
    torch.testing.assert_close(low.float(), torch.tensor([[0.0, 0.25]]))
    torch.testing.assert_close(high.float(), torch.tensor([[0.35, 0.75]]))
