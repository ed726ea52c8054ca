"""Each builder reads its options, and learns a wave that the last value cannot foretell."""

import pytest
import torch

from margin.data.sets.tiny.sequences import waves
from margin.sequence.forecast.gated_forecasters import gru_forecaster, gru_quantiles, lstm_forecaster


@pytest.mark.parametrize("build", [gru_forecaster, lstm_forecaster, gru_quantiles])
def test_options_reach_the_recurrence_and_the_head(build):
    model = build(3, 4, 2, [(0, 0.0, 1.0), (2, 0.0, 1.0)], hidden=7, layers=2, normalize="none")
    out = model(torch.zeros(5, 6, 3))
    assert out.shape == (5, 4, 2) if build is not gru_quantiles else (5, 4, 2, 3)
    assert model.recurrence.output_size == 7
    assert model.normalize == "none"
    own = build(3, 4, 2, [(0, 0.0, 1.0), (2, 0.0, 1.0)], reads="own")
    assert own(torch.zeros(5, 6, 3)).shape[:3] == (5, 4, 2)
    assert own.recurrence.input_size == 1


def test_a_wave_is_learned_better_than_no_change(tmp_path):
    from margin import Training, load, train
    from margin.sequence.forecast.baselines import LastValue

    data = waves()
    run = train(
        "sequence/gru_forecaster", data, {"hidden": 16}, Training(epochs=40, lr=1e-2), out=tmp_path / "r"
    )
    base = LastValue(2, 3, 2, data.spec["target_scale"])
    batch = data.splits["test"].take(torch.arange(len(data.splits["test"])), torch.Generator())
    with torch.no_grad():
        ours = (load(run.path)(batch.inputs[0]) - batch.targets).square().mean((0, 1))
        theirs = (base(data.preprocess(batch.inputs[0])) - batch.targets).square().mean((0, 1))
    assert bool((ours < 0.5 * theirs).all())
