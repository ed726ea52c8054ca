"""The ball and the box hold in floating point, in every shape and type."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from margin.core.types import Domain
from margin.robust.attacks.features import Features
from margin.robust.attacks.threat_models import Threat

NORMS = ["linf", "l2", "l1"]
SHAPES = [(7, 4), (3, 2, 5, 5), (2, 6, 3)]


def wide(value=1e9):
    return Domain(torch.tensor(-value), torch.tensor(value))


def norm_of(delta, norm):
    flat = delta.double().flatten(1)
    if norm == "l1":
        return flat.abs().sum(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)


@pytest.mark.parametrize("norm", NORMS)
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


@pytest.mark.parametrize("norm", NORMS)
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


@pytest.mark.parametrize("norm", NORMS)
def test_eps_0_is_the_identity_bit_for_bit(norm):
    x = torch.tensor([[0.0, -0.0, 1e-40, 4.31]])
    p = Threat(wide(), 0.0, norm).project(x + 1, x)
    assert torch.equal(p.view(torch.int32), x.view(torch.int32))


@pytest.mark.parametrize("norm", NORMS)
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


@pytest.mark.parametrize("norm", NORMS)
def test_a_gradient_of_0_gives_no_direction_and_no_nan(norm):
    assert not Threat(wide(), 1.0, norm).steepest(torch.zeros(2, 3)).any()


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-30), (torch.float64, 1e-200)])
def test_a_tiny_gradient_keeps_its_direction(dtype, size):
    # Its squares underflow.
    gradient = size * torch.tensor([[3, -4]], dtype=dtype)
    direction = Threat(wide(), 1.0, "l2").steepest(gradient)
    torch.testing.assert_close(direction, torch.tensor([[0.6, -0.8]], dtype=dtype))


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_fill_the_ball_and_repeat_with_the_seed(norm):
    x = torch.zeros(4000, 2)
    threat = Threat(wide(), 2.0, norm)
    y = threat.random_point(x, torch.Generator().manual_seed(3))
    assert torch.equal(y, threat.random_point(x, torch.Generator().manual_seed(3)))
    size = norm_of(y, norm)
    assert (size <= 2.0).all()
    # Uniform: the share within half the radius is 1/4 in the plane; 4000 draws, 5 standard errors.
    assert abs((size <= 1.0).double().mean() - 0.25) < 5 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("norm", NORMS)
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


def test_in_the_l1_ball_the_steepest_coordinates_go_to_the_domains_ends():
    """Against the linear program max g.d, ||d||_1 <= eps, in the box."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        x, g, eps = rng.uniform(0, 1, 5), rng.normal(size=5), 0.9
        found = linprog(
            np.concatenate([-g, np.zeros(5)]),
            A_ub=np.block(
                [[np.eye(5), -np.eye(5)], [-np.eye(5), -np.eye(5)], [np.zeros((1, 5)), np.ones((1, 5))]]
            ),
            b_ub=[0.0] * 10 + [eps],
            bounds=[*((-v, 1 - v) for v in x), *[(0, None)] * 5],
        )
        threat = Threat(Domain(torch.tensor(0.0), torch.tensor(1.0)), eps, "l1")
        center, slope = torch.from_numpy(x)[None], torch.from_numpy(g)[None]
        y = threat.project(threat.advanced(center, slope, eps), center)
        assert ((y - center) * slope).sum().item() == pytest.approx(-found.fun, rel=1e-9)


def test_a_sparse_step_moves_the_share_of_largest_slopes():
    threat = Threat(wide(), 1.0, "l1")
    gradient = torch.tensor([[4.0, -3.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert threat.steepest(gradient, 0.4).tolist() == [[0.5, -0.5, 0, 0, 0], [0] * 5]
    assert threat.steepest(gradient).tolist() == [[1, 0, 0, 0, 0], [0] * 5]
    share = torch.tensor([0.6, 1.0])
    torch.testing.assert_close(
        threat.steepest(gradient.flip(0), share.flip(0))[1], torch.tensor([1 / 3, -1 / 3, 1 / 3, 0, 0])
    )


FEATURES = Features(
    fixed=torch.tensor([True, False, False, False, False, False, False]),
    whole=torch.tensor([False, False, True, False, False, False, False]),
    groups=((4, 5, 6),),
)
ROWS = torch.tensor([[0.3, 1.5, 2.0, 0.25, 1.0, 0.0, 0.0], [0.9, 0.5, -1.0, 0.75, 0.0, 0.0, 1.0]])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("eps", [0.4, 1.2, 2.5, 6.0])
def test_fixed_whole_and_categorical_features_stay_valid(norm, eps):
    threat = Threat(Domain(torch.tensor(-8.0), torch.tensor(8.0)), eps, norm, features=FEATURES)
    generator = torch.Generator().manual_seed(0)
    switched = 0
    for _ in range(200):
        y = threat.project(ROWS + 4 * torch.randn(2, 7, generator=generator), ROWS)
        threat.check(y, ROWS)
        assert torch.equal(y[:, 0], ROWS[:, 0])
        assert torch.equal(y[:, 2], y[:, 2].round())
        assert (y[:, 4:].sum(1) == 1).all() and ((y[:, 4:] == 0) | (y[:, 4:] == 1)).all()
        assert (norm_of(y - ROWS, norm) <= eps * (1 + 1e-6)).all()
        switched += int((y[:, 4:] != ROWS[:, 4:]).any(1).sum())
    # A switch moves two features by 1: it costs 1, sqrt(2) or 2.
    assert (switched > 0) == (eps >= {"linf": 1.0, "l2": 2**0.5, "l1": 2.0}[norm])


def test_what_a_switch_of_category_spends_is_not_left_to_the_others():
    threat = Threat(wide(), 3.0, "l1", features=FEATURES)
    y = threat.project(ROWS[:1] + torch.tensor([[9.0, 9.0, 0.0, 0.0, -9.0, 9.0, 0.0]]), ROWS[:1])
    torch.testing.assert_close(y, torch.tensor([[0.3, 2.5, 2.0, 0.25, 0.0, 1.0, 0.0]]))
    whole = threat.project(ROWS[:1] + torch.tensor([[0.0, 0.0, 2.9, 0.0, 0.0, 0.0, 0.0]]), ROWS[:1])
    assert whole[0, 2] == 4.0  # towards the input


def test_of_several_categories_that_which_is_wished_most_is_switched():
    features = Features(groups=((0, 1), (2, 3)))
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    threat = Threat(wide(), 3.0, "l1", features=features)
    y = threat.project(torch.tensor([[0.4, 0.6, 0.1, 0.9]]), x)
    assert y.tolist() == [[1.0, 0.0, 0.0, 1.0]]


def test_inputs_that_are_not_valid_are_refused_and_so_is_an_attack_that_makes_them():
    threat = Threat(wide(), 3.0, features=FEATURES)
    for row, column, value, message in [
        (1, 2, 0.5, "example 1 has a part of a whole number"),
        (0, 5, 1.0, "example 0 is not of one category"),
        (0, 4, 0.5, "example 0 is not of one category"),
    ]:
        x = ROWS.clone()
        x[row, column] = value
        with pytest.raises(ValueError, match=message):
            threat.check_inputs(x)
        with pytest.raises(RuntimeError, match=message):
            threat.check(x, ROWS)
    moved = ROWS + torch.tensor([0.1, 0, 0, 0, 0, 0, 0])
    with pytest.raises(RuntimeError, match="moved in a fixed feature"):
        threat.check(moved, ROWS)
    low, high = threat.hull(ROWS)
    assert torch.equal(low[:, 0], high[:, 0]) and (high - low)[:, 1:].min() == 6


def test_a_tables_record_says_which_features_are_fixed_whole_and_of_a_category():
    encoding = {
        "format": "table",
        "columns": [
            {"name": "age", "kind": "number", "indicator": True},
            {"name": "sex", "kind": "category", "categories": ["f", "m", "x"]},
            {"name": "sold", "kind": "date", "parts": ["month", "day"]},
            {"name": "paid", "kind": "boolean"},
            {"name": "height", "kind": "number"},
        ],
    }
    rows = torch.tensor([[31.0, 0, 1, 0, 0, 5, 2, 1, 1.7], [40.0, 0, 0, 0, 1, 5, 2, 0, 1.5]])
    found = Features.of_table(encoding, rows, fixed=("height",))
    assert found.groups == ((2, 3, 4),)
    assert found.fixed.tolist() == [False, True, False, False, False, True, True, False, True]
    assert found.whole.tolist() == [True, False, False, False, False, False, False, True, False]
    assert Features.of_table(encoding).whole.sum() == 1
    with pytest.raises(ValueError, match="no column 'weight'"):
        Features.of_table(encoding, fixed=("weight",))
    with pytest.raises(ValueError, match="those of a table"):
        Features.of_table({"format": "arrays"})
