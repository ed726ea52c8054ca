"""Each body's forecaster reads its options, and learns a wave that the last value cannot tell."""

import pytest
import torch

from margin.data.sets.tiny.sequences import waves
from margin.sequence.convolution import tcn
from margin.sequence.linear import lru, mingru
from margin.sequence.recurrent import gru, lstm

SCALE = [(0, 0.0, 1.0), (2, 0.0, 1.0)]
BUILDS = {
    "lstm": (lstm.forecaster, {"hidden": 7, "layers": 2}),
    "gru": (gru.forecaster, {"hidden": 7, "layers": 2}),
    "gru quantiles": (gru.quantiles, {"hidden": 7, "layers": 2}),
    "mingru": (mingru.forecaster, {"hidden": 7, "layers": 2}),
    "lru": (lru.forecaster, {"width": 7, "states": 5, "layers": 1}),
    "tcn": (tcn.forecaster, {"hidden": 7, "layers": 2}),
}


@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("normalize", ["none", "mean_std"])
def test_options_reach_the_recurrence_and_the_head(name, normalize):
    build, options = BUILDS[name]
    model = build(3, 4, 2, SCALE, **options, normalize=normalize)
    shape = (5, 4, 2, 3) if name == "gru quantiles" else (5, 4, 2)
    assert model(torch.zeros(5, 6, 3)).shape == shape
    assert (model.recurrence.output_size, model.normalize) == (7, normalize)
    own = build(3, 4, 2, SCALE, **options, reads="own")
    assert own(torch.zeros(5, 6, 3)).shape == shape
    assert own.recurrence.input_size == 1


@pytest.mark.parametrize("name", ["lstm", "gru", "mingru", "lru"])
def test_every_row_of_the_context_tells(name):
    torch.manual_seed(0)
    build, options = BUILDS[name]
    model = build(3, 4, 2, SCALE, **options, normalize="none").double()
    x = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).square().sum(), x)
    assert bool((grad[0].abs().amax(1) > 0).all())


def test_a_tcn_reads_its_receptive_field_and_no_row_more():
    torch.manual_seed(0)
    model = tcn.forecaster(3, 4, 2, SCALE, layers=2, kernel=2, normalize="none").double()
    x = torch.randn(1, 12, 3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x)
    reach = 1 + 2 * (2 - 1) * (2**2 - 1)
    rows = grad[0].abs().amax(1)
    assert bool((rows[: 12 - reach] == 0).all())
    assert bool((rows[12 - reach :] > 0).all())


def test_the_eigenvalues_of_a_forecaster_begin_in_a_ring_of_memories_of_1_to_100_rows():
    model = lru.forecaster(1, 2, 1, [(0, 0.0, 1.0)], states=200)
    for block in model.recurrence.blocks:
        moduli = block.core.eigenvalues.detach().abs()
        assert 0.5 <= float(moduli.min()) < 0.6
        assert 0.97 < float(moduli.max()) <= 0.99


def test_a_wave_is_learned_better_than_no_change(tmp_path):
    from margin import Training, load, train
    from margin.sequence.forecast.baselines import LastValue

    data = waves()
    run = train("sequence/gru:series", data, {"hidden": 16}, Training(epochs=40, lr=1e-2), out=tmp_path / "r")
    base = LastValue(2, 3, 2, data.spec["target_scale"])
    batch = data.splits["test"].take(torch.arange(len(data.splits["test"])), torch.Generator())
    with torch.no_grad():
        ours = (load(run.path)(batch.inputs[0]) - batch.targets).square().mean((0, 1))
        theirs = (base(data.preprocess(batch.inputs[0])) - batch.targets).square().mean((0, 1))
    assert bool((ours < 0.5 * theirs).all())
