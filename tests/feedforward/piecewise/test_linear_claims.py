"""Claims about networks of one input: hand cases, random ones, broken ones."""

import math

import pytest
import torch
from torch import nn

from margin.core.catalog import claims
from margin.core.findings import Subject, Verdict
from margin.core.tasks import VALUES
from margin.core.types import Batch
from margin.engine.loop import State, risk
from margin.feedforward.mlp.model import MLPRegressor
from margin.feedforward.piecewise import linear_claims as line
from margin.feedforward.piecewise import sawtooth_claims
from margin.feedforward.piecewise.interpolant import PiecewiseLinearInterpolant, interpolation
from margin.feedforward.piecewise.sawtooth import Sawtooth

ASKED = {name: claims()[f"feedforward/{name}"] for name in ("line.pieces", "line.separation")}


def subject(model: nn.Module, features: int = 1, dtype: torch.dtype = torch.float64) -> Subject:
    x = torch.linspace(-2, 2, 20 * features).reshape(-1, features).to(dtype)
    batch = Batch((x,), x[:, 0].sin())
    return Subject(model=model.to(dtype), test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


def interpolant(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype = torch.float64) -> Subject:
    model = PiecewiseLinearInterpolant(1, len(x)).to(dtype)
    batch = Batch((x[:, None],), y).to(dtype=dtype, device="cpu")
    interpolation()(State({"model": model}), batch)
    return Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [(7,), (16, 16), (8, 8, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_pieces_and_separation_hold_for_random_networks(hidden: tuple, seed: int, dtype: torch.dtype) -> None:
    torch.manual_seed(seed)
    asked = subject(MLPRegressor(1, hidden=hidden), dtype=dtype)
    found = line.pieces(asked)
    assert found.verdict is Verdict.HOLDS, found
    assert float(found.high) == math.prod(m + 1 for m in hidden)
    assert sawtooth_claims.separation(asked).verdict is Verdict.HOLDS


def test_the_bound_on_pieces_is_attained_by_one_hidden_layer() -> None:
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    asked = interpolant(x, (7 * x).cos())
    found = line.pieces(asked)
    assert (int(found.value), float(found.high)) == (10, 10)
    assert found.verdict is Verdict.HOLDS
    assert found.curves["knots"].tolist() == pytest.approx(x[1:-1].tolist())
    assert "widths 1, 9, 1" in found.statement
    assert " 8 of them on [-1, 1]" in found.statement


def test_a_model_that_is_another_function_elsewhere_is_unfounded() -> None:
    class Trap(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            far = x.abs().amax() > 90
            return self.layers(x).flatten() + far

    torch.manual_seed(0)
    model = Trap()
    with torch.no_grad():
        model.layers[0].bias[0] = 200 * model.layers[0].weight[0, 0]  # a knot at -200
    asked = subject(model)
    assert line.is_one_input_relu(asked)
    for ask in (line.pieces, sawtooth_claims.separation):
        found = ask(asked)
        assert found.verdict is Verdict.UNFOUNDED
        assert found.premises[0].status == "refuted"


def test_other_models_are_not_asked() -> None:
    torch.manual_seed(0)
    plane, smooth = MLPRegressor(2), MLPRegressor(1, activation="tanh")
    affine, two = nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2))
    for claim in ASKED.values():
        assert "is asked only of a ReLU network of one input" in claim.refusal(subject(plane, features=2))
        assert claim.refusal(subject(smooth))
        assert claim.refusal(subject(affine))
        assert not claim.refusal(subject(MLPRegressor(1)))
    assert not ASKED["line.pieces"].refusal(subject(two))
    assert ASKED["line.separation"].refusal(subject(two))
    with pytest.raises(ValueError, match=r"one input: got inputs of shape \(2,\)"):
        line.pieces(subject(plane, features=2))
    with pytest.raises(ValueError, match=r"layer layers\.2 is a Tanh, neither affine nor a ReLU"):
        line.pieces(subject(smooth))
    images = Subject(
        model=nn.Flatten(),
        test=[Batch((torch.zeros(2, 1, 1, 1),), torch.zeros(2))],
        task=VALUES,
        objective=risk(VALUES),
    )
    assert not line.is_one_input_relu(images)


def test_weights_that_are_no_numbers_fail() -> None:
    model = MLPRegressor(1, hidden=(4,))
    asked = subject(model)
    with torch.no_grad():
        next(model.parameters())[0, 0] = math.nan
    for ask in (line.pieces, sawtooth_claims.separation):
        found = ask(asked)
        assert found.verdict is Verdict.FAILED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_interpolant_passes_through_its_means_and_a_moved_weight_shows(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 3, 60).repeat(2)
    asked = interpolant(x, torch.randn(120, generator=g), dtype)
    found = line.interpolates(asked)
    assert found.verdict is Verdict.HOLDS
    assert found.tolerance < (1e-10 if dtype is torch.float64 else 1e-4)
    output = asked.model.output
    with torch.no_grad():
        output.bias += 1e-3
    assert line.interpolates(asked).verdict is Verdict.VIOLATED
    with torch.no_grad():
        output.bias.fill_(math.nan)
    assert line.interpolates(asked).verdict is Verdict.FAILED
    with pytest.raises(ValueError, match="piecewise-linear interpolant: got MLPRegressor"):
        line.interpolates(subject(MLPRegressor(1)))


@pytest.mark.parametrize("outside", ["constant", "linear"])
@pytest.mark.parametrize("seed", range(3))
def test_near_inputs_in_float32_do_not_excuse_a_moved_function(outside: str, seed: int) -> None:
    """A bend is paid over the piece behind it, not over the longest piece of all."""
    x, y = torch.randn(2, 2000, generator=torch.Generator().manual_seed(seed))
    model = PiecewiseLinearInterpolant(1, 2000, outside=outside)
    batch = Batch((x[:, None],), y)
    interpolation()(State({"model": model}), batch)
    asked = Subject(model=model, test=[batch], train=[batch], task=VALUES, objective=risk(VALUES))
    found = line.interpolates(asked)
    assert found.verdict is Verdict.HOLDS
    assert found.tolerance < 0.02
    with torch.no_grad():
        model.output.bias += 0.03
    assert line.interpolates(asked).verdict is Verdict.VIOLATED


def test_the_sawtooth_claim_counts_and_a_moved_weight_shows() -> None:
    found = sawtooth_claims.count(sawtooth_claims.demo())
    assert (int(found.value), int(found.low), int(found.high)) == (64, 64, 64)
    assert "needs 63 units" in found.statement
    assert found.verdict is Verdict.HOLDS
    asked = sawtooth_claims.demo()
    with torch.no_grad():
        asked.model.layers[0].bias[1] = -0.75  # the first fold is crooked: it goes up to 3/2
    assert sawtooth_claims.count(asked).verdict is Verdict.VIOLATED
    with pytest.raises(ValueError, match="asked of a sawtooth: got MLPRegressor"):
        sawtooth_claims.count(subject(MLPRegressor(1)))


def test_the_separation_is_tight_for_the_constant_one_half() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    nn.init.constant_(model[2].bias, 0.5)
    found = sawtooth_claims.separation(subject(model))
    assert float(found.value) == pytest.approx(0.5, abs=1e-15)
    assert found.verdict is Verdict.HOLDS
    assert "With 1 piece on" in found.statement
    # a sawtooth itself is far from the next deeper one
    deep = subject(Sawtooth(depth=3))
    deep = Subject(
        model=deep.model,
        test=[Batch((torch.linspace(0, 1, 5, dtype=torch.float64)[:, None],), torch.zeros(5).double())],
        task=VALUES,
        objective=risk(VALUES),
    )
    assert "composed 4 times, of 16 pieces" in sawtooth_claims.separation(deep).statement
    assert float(sawtooth_claims.separation(deep).value) == pytest.approx(1.0)
