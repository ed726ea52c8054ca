"""Ramps: through every point, the same as np.interp and the network; back from any network of one layer."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from margin.feedforward.piecewise.linear import Ramps, basis_of_network, pieces_for, pwl_basis, relu_network


def points(seed: int, count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Random knots at least 0.02 apart, random values."""
    g = torch.Generator().manual_seed(seed)
    x = (0.02 + torch.rand(count, generator=g, dtype=torch.float64)).cumsum(0) - 3
    return x, torch.randn(count, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("outside", ["linear", "constant"])
@pytest.mark.parametrize("seed", range(10))
def test_ramps_and_network_are_the_polygon_to_1e_12(seed: int, outside: str) -> None:
    x, y = points(seed)
    g = pwl_basis(x, y, outside=outside)
    z = torch.linspace(float(x[0]), float(x[-1]), 997, dtype=torch.float64)
    expected = torch.from_numpy(np.interp(z.numpy(), x.numpy(), y.numpy()))
    assert float((g(z) - expected).abs().max()) <= 1e-12
    assert float((relu_network(g)(z[:, None]).flatten().detach() - expected).abs().max()) <= 1e-12
    assert len(g.knots) == len(x) - (2 if outside == "linear" else 0)
    beyond = torch.tensor([float(x[0]) - 1, float(x[-1]) + 1], dtype=torch.float64)
    ends = y[[0, -1]].clone()
    if outside == "linear":
        slopes = y.diff() / x.diff()
        ends += torch.stack((-slopes[0], slopes[-1]))
    torch.testing.assert_close(g(beyond), ends, atol=1e-12, rtol=0)


def test_the_coefficients_are_the_changes_of_slope() -> None:
    g = pwl_basis(torch.tensor([0.0, 1.0, 3.0, 4.0]), torch.tensor([1.0, 3.0, -1.0, -1.0]))
    assert (float(g.slope), float(g.intercept)) == (2.0, 1.0)
    assert g.knots.tolist() == [1.0, 3.0]
    assert g.changes.tolist() == [-4.0, 2.0]  # slopes 2, -2, 0


def test_a_straight_line_is_two_ramps() -> None:
    line = Ramps(*(torch.tensor(v, dtype=torch.float64) for v in (2.5, 0.0, [], [])))
    network = relu_network(line)
    assert network[0].weight.flatten().tolist() == [1.0, -1.0]
    assert network[2].weight.flatten().tolist() == [2.5, -2.5]
    z = torch.linspace(-4, 4, 9, dtype=torch.float64)
    assert network(z[:, None]).flatten().tolist() == (2.5 * z).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_network_computes_is_read_off_exactly(seed: int) -> None:
    torch.manual_seed(seed)
    hidden, output = nn.Linear(1, 9).double(), nn.Linear(9, 1).double()
    with torch.no_grad():
        hidden.weight[0] = 0  # a constant unit
        hidden.weight[2], hidden.bias[2] = -2 * hidden.weight[1], -2 * hidden.bias[1]  # two units, one knot
    g = basis_of_network(hidden, output)
    assert len(g.knots) == 7
    assert bool((g.knots.diff() > 0).all())
    z = torch.linspace(-20, 20, 4001, dtype=torch.float64)
    expected = output(hidden(z[:, None]).relu()).flatten().detach()
    torch.testing.assert_close(g(z), expected, atol=1e-12, rtol=1e-12)


def test_there_and_back_is_the_same_function() -> None:
    for seed in range(10):
        g = pwl_basis(*points(seed))
        hidden, _, output = relu_network(g)
        back = basis_of_network(hidden, output)
        for one, other in zip(g, back, strict=True):
            torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


def test_ramps_that_cancel_leave_no_knot() -> None:
    hidden, output = nn.Linear(1, 2).double(), nn.Linear(2, 1).double()
    with torch.no_grad():
        hidden.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        hidden.bias.copy_(torch.tensor([-0.25, 0.25]))
        output.weight.copy_(torch.tensor([[1.75, -1.75]]))  # (x - 1/4)_+ - (1/4 - x)_+ = x - 1/4
        output.bias.zero_()
    g = basis_of_network(hidden, output)
    assert len(g.knots) == 0
    assert (float(g.slope), float(g.intercept)) == pytest.approx((1.75, -0.4375), abs=1e-15)


def test_in_float32_errors_do_not_add_up() -> None:
    """The mutant that rounds each change of slope by itself is off by 1e-4 and more at the far end."""
    count = 4000
    x = torch.linspace(0, 1, count).double()  # numbers of float32
    y = torch.randn(count, generator=torch.Generator().manual_seed(0)).double()
    g = pwl_basis(x, y, outside="constant", dtype=torch.float32)
    assert all(torch.equal(t, t.float().double()) for t in g)
    gaps = (g(x) - y).abs()
    eps = torch.finfo(torch.float32).eps
    allowed = eps * float(g.changes.abs().max() / (count - 1)) + eps * float(y.abs().max())
    assert float(gaps.max()) <= 2 * allowed
    exact = pwl_basis(x, y, outside="constant")
    naive = exact._replace(changes=exact.changes.float().double(), intercept=exact.intercept.float().double())
    assert float((naive(x) - y).abs().max()) > 5 * float(gaps.max())


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([], [], "as many, at least one"),
        ([0.0, 0.0], [0.0, 1.0], "knots must rise strictly: got 0, then 0"),
        ([1.0, 0.5], [0.0, 1.0], "knots must rise strictly: got 1, then 0.5"),
        ([0.0, math.nan], [0.0, 1.0], "must be finite"),
        ([0.0, 1.0], [math.inf, 1.0], "must be finite"),
        ([0.0, 1e-310], [0.0, 1e300], "a slope must be finite"),
    ],
)
def test_points_that_are_no_polygon_are_refused(x: list, y: list, message: str) -> None:
    f64 = {"dtype": torch.float64}
    given = torch.tensor(x, **f64), torch.tensor(y, **f64)
    with pytest.raises(ValueError, match=message):
        pwl_basis(*given)


def test_one_point_is_a_constant() -> None:
    for outside in ("linear", "constant"):
        g = pwl_basis(torch.tensor([2.0]), torch.tensor([3.0]), outside=outside)
        assert g(torch.tensor([-5.0, 2.0, 9.0])).tolist() == [3.0, 3.0, 3.0]


def test_layers_of_more_inputs_have_no_ramps() -> None:
    with pytest.raises(ValueError, match="one input and one output: got layers 2-3 and 3-1"):
        basis_of_network(nn.Linear(2, 3), nn.Linear(3, 1))
    with pytest.raises(ValueError, match="got layers 1-3 and 3-2"):
        basis_of_network(nn.Linear(1, 3), nn.Linear(3, 2))


def test_pieces_are_the_fewest_that_the_bound_asks_for() -> None:
    for length, curvature, tolerance in product((0.5, math.pi), (0.1, 2.0, 30.0), (1e-1, 1e-4)):
        n = pieces_for(length, curvature, tolerance)
        assert (length / n) ** 2 * curvature / 8 <= tolerance
        assert n == 1 or (length / (n - 1)) ** 2 * curvature / 8 > tolerance
    assert pieces_for(1.0, 0.0, 1e-9) == 1
    with pytest.raises(ValueError, match="tolerance > 0: got 1, 1, 0"):
        pieces_for(1.0, 1.0, 0.0)
