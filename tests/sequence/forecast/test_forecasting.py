"""Forecasts in the series' units: no change at zero weights, invariances, quantiles that never cross."""

import pytest
import torch
from torch import nn

from margin.sequence.forecast.forecasting import Forecaster, normalized_context
from margin.sequence.recurrent.gru import recurrence

SCALE = [(1, 50.0, 4.0), (0, -2.0, 0.5)]


def contexts(batch=4, time=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, 3, generator=generator, dtype=torch.float64)


def forecaster(seed=0, **options):
    torch.manual_seed(seed)
    return Forecaster(recurrence(3, hidden=5), 2, 2, SCALE, **options).double()


def test_what_is_taken_out_can_be_put_back():
    x = contexts()
    for how in ("none", "last", "mean_std"):
        z, level, unit = normalized_context(x, how)
        assert (level + unit * z - x).abs().max() < 1e-14
    z, level, unit = normalized_context(x, "last")
    assert torch.equal(z[:, -1], torch.zeros(4, 3).double())
    z, _, _ = normalized_context(1e6 * x, "mean_std")
    assert z.mean(1).abs().max() < 1e-9
    assert (z.std(1, correction=0) - 1).abs().max() < 1e-9


def test_a_constant_context_is_divided_by_no_zero():
    z, _, unit = normalized_context(torch.ones(1, 6, 3), "mean_std")
    assert torch.equal(z, torch.zeros(1, 6, 3))
    assert unit[0, 0].tolist() == pytest.approx([1e-5**0.5] * 3)


@pytest.mark.parametrize("normalize", ["none", "last", "mean_std"])
def test_at_zero_weights_the_level_is_forecast_in_the_series_units(normalize):
    model = forecaster(normalize=normalize)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    x = contexts()
    level = {"none": 0 * x[:, -1], "last": x[:, -1], "mean_std": x.mean(1)}[normalize]
    expected = torch.stack((50 + 4 * level[:, 1], -2 + 0.5 * level[:, 0]), -1)[:, None].expand(4, 2, 2)
    assert (model(x) - expected).abs().max() < 1e-12


def test_a_shift_of_a_column_shifts_the_forecast_and_a_unit_scales_it():
    x, shift = contexts(), torch.tensor([3.0, -1.0, 7.0], dtype=torch.float64)
    moved = torch.stack((4 * shift[1], 0.5 * shift[0]))
    last = forecaster(normalize="last")
    assert (last(x + shift) - last(x) - moved).abs().max() < 1e-12
    both = forecaster(normalize="mean_std")
    far = 100 * x  # so that the 1e-5 under the root is nothing
    scaled = both(2 * far + shift) - both.scale.mean
    assert (scaled - 2 * (both(far) - both.scale.mean) - moved).abs().max() < 1e-4
    plain = forecaster(normalize="none")
    assert (plain(x + shift) - plain(x)).abs().max() > 1e-3


@pytest.mark.parametrize("normalize", ["none", "last", "mean_std"])
def test_quantiles_never_cross_whatever_the_weights(normalize):
    for seed in range(20):
        model = forecaster(seed, normalize=normalize, outputs="quantiles")
        with torch.no_grad():
            model.head.weight.mul_(50)
        out = model(contexts(seed=seed))
        assert out.shape == (4, 2, 2, 3)
        assert bool((out.diff(dim=-1) >= 0).all())


def test_the_median_of_quantiles_is_the_forecast_of_the_same_weights():
    mean, quantiles = forecaster(), forecaster(outputs="quantiles")
    quantiles.recurrence.load_state_dict(mean.recurrence.state_dict())
    with torch.no_grad():
        quantiles.head.weight[:4].copy_(mean.head.weight)
        quantiles.head.bias[:4].copy_(mean.head.bias)
    x = contexts()
    assert (mean(x) - quantiles(x)[..., 1]).abs().max() < 1e-12


@pytest.mark.parametrize(
    "scale",
    [
        [(0, 0.0, 1.0)],
        [(0, 0.0, 1.0), (3, 0.0, 1.0)],
        [(0, 0.0, 1.0), (-1, 0.0, 1.0)],
        [(0, 0.0, 0.0), (1, 0.0, 1.0)],
    ],
)
def test_a_scale_that_does_not_fit_is_refused(scale):
    with pytest.raises(ValueError, match="target_scale"):
        Forecaster(recurrence(3), 2, 2, scale)


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Forecaster(recurrence(3), 0, 2, SCALE)


def test_float32_and_float64_agree():
    model, x = forecaster(), contexts()
    assert model(x).dtype == torch.float64
    wide = model(x)
    assert (model.float()(x.float()).double() - wide).abs().max() < 1e-4


def test_a_column_by_itself_is_forecast_by_one_network_whatever_the_others_do():
    torch.manual_seed(0)
    for outputs in ("mean", "quantiles"):
        model = Forecaster(recurrence(1, hidden=5), 4, 2, SCALE, reads="own", outputs=outputs).double()
        x = contexts()
        out = model(x)
        other = x.clone()
        other[:, :, 2] += 5 * torch.randn(4, 6).double()  # no target
        other[:, 0, 0] += 1.0  # the second target, not its last value
        assert torch.equal(model(other)[:, :, 0], out[:, :, 0])
        assert not torch.equal(model(other)[:, :, 1], out[:, :, 1])
        swapped = Forecaster(
            recurrence(1, hidden=5), 4, 2, SCALE[::-1], reads="own", outputs=outputs
        ).double()
        state = model.state_dict()
        swapped.load_state_dict({k: v for k, v in state.items() if "scale" not in k}, strict=False)
        assert torch.equal(swapped(x), out.flip(2))


def test_what_reads_one_column_has_one_input():
    with pytest.raises(ValueError, match="input_size 1"):
        Forecaster(recurrence(3), 2, 2, SCALE, reads="own")


@pytest.mark.parametrize("outputs", ["mean", "quantiles"])
def test_a_forecast_is_in_the_units_of_its_context(outputs):
    """A band without the context's unit would stay as wide where the numbers grow a hundredfold."""
    torch.manual_seed(0)
    scale = [(1, 0.0, 1.0), (0, 0.0, 1.0)]
    model = Forecaster(recurrence(3, hidden=5), 2, 2, scale, normalize="mean_std", outputs=outputs).double()
    x = 1000 * contexts()  # so that the 1e-5 under the root is nothing
    torch.testing.assert_close(model(100 * x), 100 * model(x), rtol=1e-7, atol=0)


@pytest.mark.parametrize("normalize", ["none", "last", "mean_std"])
def test_a_context_of_no_step_is_refused(normalize):
    model = forecaster(normalize=normalize)
    with pytest.raises(ValueError, match=r"a context must have at least 1 step: got shape \(4, 0, 3\)"):
        model(contexts(time=0))
    assert model(contexts(time=1)).shape == (4, 2, 2)
