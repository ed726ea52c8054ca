"""The interpolant entry: exact at its knots, means for equal inputs, weights, types, what it refuses."""

import numpy as np
import pytest
import torch

from margin.core.types import Batch
from margin.engine.loop import NonFiniteError, State
from margin.feedforward.piecewise.interpolant import (
    PiecewiseLinearInterpolant,
    Points,
    interpolation,
    points_of,
    thinned,
)
from margin.nn.preprocessed import Preprocessed


def learned(x, y, weight=None, dtype=torch.float64, **options) -> PiecewiseLinearInterpolant:
    model = PiecewiseLinearInterpolant(1, len(x), **options).to(dtype)
    interpolation()(State({"model": model}), Batch((x[:, None],), y, weight).to(dtype=dtype, device="cpu"))
    return model


def noise(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, count, generator=g, dtype=torch.float64)
    return x.float().double(), y.float().double()


@pytest.mark.parametrize("outside", ["constant", "linear"])
def test_it_is_numpys_interpolation_of_the_data(outside: str) -> None:
    x, y = noise(40)
    model = learned(x, y, outside=outside)
    order = x.argsort()
    z = torch.linspace(float(x.min()), float(x.max()), 1001, dtype=torch.float64)
    expected = np.interp(z.numpy(), x[order].numpy(), y[order].numpy())
    np.testing.assert_allclose(model(z[:, None]).detach(), expected, atol=1e-9)
    far = torch.tensor([[-50.0], [50.0]], dtype=torch.float64)
    if outside == "constant":
        assert model(far).tolist() == pytest.approx(y[order][[0, -1]].tolist(), abs=1e-9)
    else:
        slope = (y[order].diff() / x[order].diff())[[0, -1]]
        ends = y[order][[0, -1]] + slope * (far[:, 0] - x[order][[0, -1]])
        assert model(far).tolist() == pytest.approx(ends.tolist(), rel=1e-9)


def test_equal_inputs_are_taken_at_their_weighted_mean() -> None:
    x = torch.tensor([1.0, 0.0, 1.0, 2.0, 1.0]).double()
    y = torch.tensor([3.0, 0.0, 5.0, 1.0, 100.0]).double()
    model = learned(x, y, torch.tensor([1.0, 1.0, 3.0, 1.0, 0.0]).double())
    at = model(torch.tensor([[0.0], [1.0], [2.0]]).double()).tolist()
    assert at == pytest.approx([0.0, 4.5, 1.0], abs=1e-12)


def test_the_examples_in_any_order_give_the_same_network() -> None:
    x, y = noise(30)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    one, other = learned(x, y).state_dict(), learned(x[order], y[order]).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_in_float32_it_still_passes_near_its_points() -> None:
    x = torch.linspace(-1, 1, 2000).double()
    y = noise(2000)[1]
    model = learned(x, y, dtype=torch.float32)
    assert model(x[:, None].float()).dtype == torch.float32
    # evaluated in float32 instead the sum is off by a few hundredths
    assert float((model(x[:, None].float()).detach() - y).abs().max()) < 2e-6


@pytest.mark.parametrize("placement", ["quantiles", "uniform"])
def test_fewer_knots_lie_where_they_are_wanted(placement: str) -> None:
    x, y = (torch.arange(101).double() / 10) ** 2, torch.arange(101).double().sin()
    model = learned(x, y, knots=11, placement=placement)
    where = (-model.hidden.bias.detach()).sort().values
    wanted = x[::10] if placement == "quantiles" else torch.linspace(0, 100, 11).double()
    torch.testing.assert_close(where, wanted)
    values = torch.from_numpy(np.interp(wanted.numpy(), x.numpy(), y.numpy()))
    torch.testing.assert_close(model(wanted[:, None]).detach(), values, atol=1e-12, rtol=0)
    assert model.hidden.out_features == 11


def test_more_knots_than_inputs_are_all_inputs() -> None:
    points = Points(torch.tensor([0.0, 1.0, 4.0]).double(), torch.tensor([1.0, 2.0, 3.0]).double())
    for knots in (0, 3, 50):
        assert thinned(points, knots, "quantiles", torch.float64) is points
    few = thinned(points, 2, "quantiles", torch.float64)
    assert few.x.tolist() == [0.0, 4.0]
    x, y = noise(20)
    assert float((learned(x, y, knots=500)(x[:, None]).detach() - y).abs().max()) < 1e-9


def test_one_input_gives_a_constant() -> None:
    model = learned(torch.tensor([2.0]).double(), torch.tensor([7.0]).double(), knots=5, placement="uniform")
    assert model(torch.tensor([[-1.0], [2.0], [5.0]]).double()).tolist() == [7.0, 7.0, 7.0]


def test_the_metrics_tell_loss_knots_and_gap() -> None:
    x = torch.tensor([0.0, 0.0, 1.0]).double()
    batch = Batch((x[:, None],), torch.tensor([-1.0, 1.0, 5.0]).double())
    model = PiecewiseLinearInterpolant(1, 3).double()
    told = interpolation()(State({"model": Preprocessed(torch.nn.Identity(), model)}), batch)
    assert float(told["loss"]) == pytest.approx(2 / 3)  # the two that differ cannot both be met
    assert told["knots"] == 2.0
    assert float(told["gap"]) < 1e-15


def test_the_loss_is_the_weighted_mean() -> None:
    x, weight = torch.tensor([0.0, 0.0, 1.0, 2.0]).double(), torch.tensor([1.0, 3.0, 2.0, 0.0]).double()
    batch = Batch((x[:, None],), torch.tensor([-1.0, 1.0, 5.0, torch.nan]).double(), weight)
    told = interpolation()(State({"model": PiecewiseLinearInterpolant(1, 4).double()}), batch)
    # -1 once and 1 three times have the mean 1/2: (1 * 9/4 + 3 * 1/4) / 6
    assert float(told["loss"]) == pytest.approx(1 / 2)


def test_more_features_than_one_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"of one feature: got in_features=3; take feedforward/mlp_regressor"
    ):
        PiecewiseLinearInterpolant(3, 10)
    for knots in (-1, 1):
        with pytest.raises(ValueError, match=f"or at least 2: got {knots}"):
            PiecewiseLinearInterpolant(1, 10, knots=knots)


def test_rows_that_cannot_be_interpolated_are_refused() -> None:
    x, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0])
    with pytest.raises(NonFiniteError, match="inputs must be finite: got nan in row 1"):
        points_of(torch.tensor([0.0, torch.nan]), y)
    with pytest.raises(NonFiniteError, match="targets must be finite: got inf in row 0"):
        points_of(x, torch.tensor([torch.inf, 0.0]))
    with pytest.raises(ValueError, match="weight above 0: got 2 of weight 0"):
        points_of(x, y, torch.zeros(2))
    with pytest.raises(ValueError, match="at least 0"):
        points_of(x, y, torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="needs targets"):
        interpolation()(State({"model": PiecewiseLinearInterpolant(1, 2)}), Batch((x[:, None],)))
    # a NaN of weight 0 counts for nothing
    assert points_of(torch.tensor([0.0, torch.nan]), y, torch.tensor([1.0, 0.0])).x.tolist() == [0.0]
