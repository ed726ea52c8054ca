"""Naive forecasts by hand; the linear map against numpy's least squares and against an autoregression."""

import numpy as np
import pytest
import torch
from torch import Generator, nn

from margin.core.types import Batch
from margin.engine.loop import State
from margin.nn.preprocessed import Preprocessed
from margin.sequence.forecast.baselines import (
    LastValue,
    LinearForecaster,
    SeasonalNaive,
    exact_forecast,
    linear_solution,
    nothing_to_learn,
    repeated,
)

SCALE = [(1, 10.0, 2.0)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_last_season_comes_again_and_again():
    x = torch.arange(1.0, 6.0)[None, :, None]
    assert repeated(x, 5, 3).flatten().tolist() == [3, 4, 5, 3, 4]
    assert repeated(x, 3, 1).flatten().tolist() == [5, 5, 5]
    assert repeated(x, 2, 5).flatten().tolist() == [1, 2]
    for wrong in (0, 6):
        with pytest.raises(ValueError, match=r"period must be in 1 .. 5"):
            repeated(x, 2, wrong)


def test_naive_forecasts_are_in_the_series_units():
    x = draw(3, 4, 2)
    assert torch.equal(LastValue(2, 2, 1, SCALE).double()(x), 10 + 2 * x[:, -1:, 1:].expand(3, 2, 1))
    season = SeasonalNaive(2, 4, 3, 1, SCALE, period=2).double()(x)
    assert torch.equal(season[:, :, 0], 10 + 2 * x[:, [2, 3, 2], 1])
    with pytest.raises(ValueError, match=r"period must be in 1 .. 4"):
        SeasonalNaive(2, 4, 3, 1, SCALE, period=5)


def test_the_exact_map_is_numpys_least_squares():
    z, y = draw(40, 6), draw(40, 3, seed=1)
    W, b = linear_solution(z, y)
    ones = np.concatenate((z.numpy(), np.ones((40, 1))), 1)
    expected = np.linalg.lstsq(ones, y.numpy(), rcond=None)[0]
    assert np.abs(W.numpy() - expected[:-1].T).max() < 1e-10
    assert np.abs(b.numpy() - expected[-1]).max() < 1e-10


def test_of_many_solutions_the_shortest_is_taken():
    z = draw(30, 3)
    z = torch.cat((z, z[:, :1]), 1)  # a column twice
    W, _ = linear_solution(z, draw(30, 2, seed=1))
    assert (W[:, 0] - W[:, 3]).abs().max() < 1e-9


def test_a_penalty_shrinks_the_map_as_ridge_does():
    z, y = draw(40, 5), draw(40, 2, seed=1)
    W, b = linear_solution(z, y, penalty=7.0)
    c = z - z.mean(0)
    expected = np.linalg.solve((c.T @ c).numpy() + 7 * np.eye(5), (c.T @ (y - y.mean(0))).numpy()).T
    assert np.abs(W.numpy() - expected).max() < 1e-10
    assert (b - (y.mean(0) - torch.from_numpy(expected) @ z.mean(0))).abs().max() < 1e-10
    with pytest.raises(ValueError, match="penalty"):
        linear_solution(z, y, penalty=-1.0)


class Shift(nn.Module):
    """A standardization: (x - 3) / 2."""

    def forward(self, x):
        return (x - 3) / 2


@pytest.mark.parametrize("normalize", ["none", "last"])
@pytest.mark.parametrize("reads", ["own", "all"])
def test_a_noiseless_linear_recursion_is_foretold_exactly(normalize, reads):
    # x_t = 1.6 x_{t-1} - .9 x_{t-2}: two rows foretell all that follow
    rows = [1.0, 0.5]
    for _ in range(60):
        rows.append(1.6 * rows[-1] - 0.9 * rows[-2])
    x = torch.tensor(rows, dtype=torch.float64)
    series = torch.stack((x, -x), 1) * 2 + 3
    windows = series.unfold(0, 9, 1).transpose(1, 2)
    batch = Batch((windows[:, :4],), windows[:, 4:])
    core = LinearForecaster(
        2, 4, 5, 2, [(0, 3.0, 2.0), (1, 3.0, 2.0)], normalize=normalize, reads=reads
    ).double()
    model = Preprocessed(Shift(), core)
    metrics = exact_forecast()(State({"model": model}, generator=Generator()), batch)
    assert float(metrics["loss"]) < 1e-18
    assert (model(windows[:, :4]) - windows[:, 4:]).abs().max() < 1e-8


def test_the_exact_solve_is_where_the_gradient_vanishes():
    x, y = draw(50, 5, 3), draw(50, 2, 2, seed=1)
    scale = [(0, 1.0, 2.0), (2, 0.0, 0.5)]
    for options in ({}, {"maps": "one"}, {"reads": "all"}, {"normalize": "none"}):
        core = LinearForecaster(3, 5, 2, 2, scale, **options).double()
        exact_forecast()(State({"model": core}, generator=Generator()), Batch((x,), y))
        loss = ((core(x) - y) / core.scale.std).square().mean()
        grads = torch.autograd.grad(loss, list(core.parameters()))
        assert max(g.abs().max() for g in grads) < 1e-12, options


def test_one_map_serves_every_target_and_own_maps_do_not():
    x = draw(4, 5, 2)
    one = LinearForecaster(2, 5, 3, 2, [(0, 0.0, 1.0), (1, 0.0, 1.0)], maps="one").double()
    nn.init.normal_(one.weight, generator=torch.Generator().manual_seed(0))
    assert (one(x.flip(2)) - one(x).flip(2)).abs().max() < 1e-12
    with pytest.raises(ValueError, match="maps=one"):
        LinearForecaster(2, 5, 3, 2, SCALE * 2, maps="one", reads="all")


def test_nothing_is_learned_and_the_loss_is_in_deviations():
    model = LastValue(2, 2, 1, SCALE).double()
    x = torch.zeros(1, 3, 2, dtype=torch.float64)
    batch = Batch((x,), torch.tensor([[[12.0], [6.0]]], dtype=torch.float64))
    metrics = nothing_to_learn()(State({"model": model}, generator=Generator()), batch)
    assert float(metrics["loss"]) == pytest.approx((1 + 4) / 2)
    for step in (nothing_to_learn(), exact_forecast()):
        with pytest.raises(ValueError, match="no targets"):
            step(State({"model": model}, generator=Generator()), Batch((x,)))
