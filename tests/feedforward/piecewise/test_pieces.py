"""Exact pieces: against a fine grid, the inverse converter, hand cases; chains that are none are seen."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from margin.data.preprocess import Standardize
from margin.feedforward.piecewise import pieces as piecewise_linear_pieces
from margin.feedforward.piecewise.linear import basis_of_network, pwl_basis, relu_network
from margin.feedforward.piecewise.pieces import (
    Pieces,
    chain_of,
    most_pieces,
    pieces_of,
    pieces_on,
    sup_distance,
)
from margin.nn.preprocessed import Preprocessed

X = torch.linspace(-5, 5, 64, dtype=torch.float64)[:, None]


def network(*widths: int, activation: nn.Module | None = None, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for one, other in itertools.pairwise(widths):
        parts += [nn.Linear(one, other), activation or nn.ReLU()]
    return nn.Sequential(*parts[:-1]).double()


def bends_on_a_grid(model: nn.Module, low: float, high: float, count: int = 200_001) -> int:
    """Brute force: maximal runs of cells where the slope changes."""
    x = torch.linspace(low, high, count, dtype=torch.float64)
    with torch.no_grad():
        y = model(x[:, None])
    slope = y.diff(dim=0) / x.diff()[:, None]
    changed = (slope.diff(dim=0).abs() > 1e-6 * slope.abs().max()).any(1).tolist()
    return sum(value for value, _ in itertools.groupby(changed))


@pytest.mark.parametrize("widths", [(1, 6, 1), (1, 5, 5, 1), (1, 4, 4, 4, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_count_is_that_of_a_fine_grid_and_the_map_the_networks(widths: tuple, seed: int) -> None:
    model = network(*widths, seed=seed)
    chain = chain_of(model, X)
    found = pieces_of(chain)
    z = torch.linspace(-30, 30, 5001, dtype=torch.float64)
    torch.testing.assert_close(found(z), model(z[:, None]).detach(), atol=1e-11, rtol=1e-11)
    inside = found.knots[(found.knots > -4) & (found.knots < 4)]
    if not len(inside) or float(inside.diff().min() if len(inside) > 1 else 1) > 2e-4:
        assert pieces_on(found, -4.0, 4.0) - 1 == bends_on_a_grid(model, -4, 4)
    assert len(found.slopes) <= most_pieces(chain)
    steps = found(found.middles())
    assert bool(steps.isfinite().all())


@pytest.mark.parametrize("seed", range(5))
def test_one_hidden_layer_has_the_knots_of_its_ramps(seed: int) -> None:
    model = network(1, 8, 1, seed=seed)
    found = pieces_of(chain_of(model, X))
    torch.testing.assert_close(found.knots, basis_of_network(model[0], model[2]).knots)
    assert len(found.slopes) == most_pieces(chain_of(model, X)) == 9


def test_other_kinds_of_layers_are_followed() -> None:
    torch.manual_seed(0)
    core = nn.Sequential(
        nn.Flatten(),
        weight_norm(nn.Linear(1, 6)),
        nn.BatchNorm1d(6),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.5),
        nn.Linear(6, 4, bias=False),
        nn.BatchNorm1d(4, affine=False),
        nn.ReLU(),
        nn.Linear(4, 1),
    ).double()
    core.train()
    core(torch.randn(50, 1, dtype=torch.float64))
    model = Preprocessed(Standardize(torch.tensor([2.0]), torch.tensor([0.5])).double(), core)
    chain = chain_of(model, X)
    assert not isinstance(chain, str)
    assert core.training
    found, z = pieces_of(chain), torch.linspace(-9, 9, 2001, dtype=torch.float64)
    torch.testing.assert_close(found(z), model.eval()(z[:, None]).detach(), atol=1e-11, rtol=1e-11)
    assert most_pieces(chain) == 7 * 5


def test_activation_regions_are_at_least_the_linear_ones() -> None:
    model = network(1, 3, 1)
    with torch.no_grad():
        model[2].weight[0, 1] = 0  # its unit turns on somewhere, but nothing bends there
    chain = chain_of(model, X)
    assert len(pieces_of(chain).slopes) == 3
    assert len(pieces_of(chain, regions=True).slopes) == 4


@pytest.mark.parametrize("seed", range(3))
def test_regions_are_the_patterns_along_a_fine_grid(seed: int) -> None:
    """Brute force on (-4, 4): how often a unit of either layer turns on or off."""
    model = network(1, 5, 5, 1, seed=seed)
    x = torch.linspace(-4, 4, 400_001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        first = model[0](x)
        patterns = torch.cat((first > 0, model[2](first.relu()) > 0), 1)
    changes = int((patterns[1:] != patterns[:-1]).any(1).sum())
    found = pieces_of(chain_of(model, X), regions=True)
    assert pieces_on(found, -4.0, 4.0) == changes + 1
    assert len(found.slopes) >= len(pieces_of(chain_of(model, X)).slopes)


def test_a_constant_has_one_piece() -> None:
    model = network(1, 4, 4, 1)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    found = pieces_of(chain_of(model, X))
    assert len(found.knots) == 0
    assert found(torch.tensor([-3.0, 0.0, 7.0])).flatten().tolist() == [0, 0, 0]


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.relu = nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU()

    def forward(self, x):
        return self.two(self.relu(self.one(x))) + x


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(1, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def test_what_is_no_chain_is_said_to_be_none() -> None:
    x = X.float()
    torch.manual_seed(0)
    assert chain_of(Skip(), x) == "the outputs are not those of the last layer"
    assert chain_of(Hidden(), x) == "layer two gets something else than what the layer before it gives"
    tanh = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
    assert chain_of(tanh, x) == "layer 1 is a Tanh, neither affine nor a ReLU"
    twice = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert chain_of(nn.Sequential(twice, twice), x) == [*twice, *twice]


def test_weights_that_are_no_numbers_and_too_many_pieces_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(1, 5, 1)
    chain = list(model)
    monkeypatch.setattr(piecewise_linear_pieces, "MOST_PIECES", 3)
    with pytest.raises(ArithmeticError, match="at most 3 pieces"):
        pieces_of(chain)
    monkeypatch.undo()
    monkeypatch.setattr(piecewise_linear_pieces, "MOST_NUMBERS", 4)
    with pytest.raises(ArithmeticError, match="got 1 pieces before a layer of 5"):
        pieces_of(chain)
    monkeypatch.undo()
    with torch.no_grad():
        model[2].weight[0, 0] = math.nan
    with pytest.raises(ArithmeticError, match="weights must be finite: Linear"):
        pieces_of(chain)
    moving = nn.BatchNorm1d(5, track_running_stats=False).double()
    with pytest.raises(ArithmeticError, match="without stored statistics"):
        pieces_of([model[0], moving])


def polygon(x: list[float], y: list[float]) -> Pieces:
    f64 = {"dtype": torch.float64}
    return pieces_of(list(relu_network(pwl_basis(torch.tensor(x, **f64), torch.tensor(y, **f64)))))


def test_the_distance_of_two_polygons_is_exact() -> None:
    f, g = polygon([0, 0.4, 1], [0, 1, 0]), polygon([0, 0.7, 1], [0, -0.5, 0])
    at = {x: abs(float((f(t) - g(t))[0, 0])) for x in (0.4, 0.7) for t in [torch.tensor([x]).double()]}
    assert sup_distance(f, g, 0.0, 1.0) == (pytest.approx(max(at.values())), pytest.approx(0.4))
    # only what lies in the interval counts, its ends included
    assert sup_distance(f, polygon([0, 1], [0, 0]), 0.5, 1.0) == (pytest.approx(5 / 6), 0.5)
    assert sup_distance(f, polygon([0, 1], [0, 0]), 0.0, 0.3) == (pytest.approx(0.75), 0.3)
    with pytest.raises(ValueError, match="low < high: got 1, 1"):
        sup_distance(f, g, 1.0, 1.0)
    assert pieces_on(f, 0.4, 1.0) == 1
    assert pieces_on(f, 0.39, 1.0) == 2
