"""Forecasts of several steps by minimal gated recurrent units (Feng et al. 2024)."""

from margin.sequence.forecast.forecasting import Forecaster, Normalize, Reads, Scale, width_read
from margin.sequence.linear import mingru


def mingru_forecaster(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    hidden: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The next values of each target by minimal gated recurrent units that have read the context.

    Args:
        input_size: Columns of the series.
        horizon: Steps that are foretold.
        num_targets: Columns that are foretold.
        target_scale: For each target its column, mean and deviation in training.
        hidden: Units of each layer.
        layers: Layers.
        dropout: Probability with which a unit between layers is dropped in training, in [0, 1).
        reads: Whether the forecast of a target reads every column, or its own alone.
        normalize: What is taken out of a context: nothing, its last value, or its mean and deviation.

    Reference:
        Feng et al. 2024, Section 3.1.
    """
    core = mingru.recurrence(width_read(input_size, reads), hidden=hidden, layers=layers, dropout=dropout)
    return Forecaster(core, horizon, num_targets, target_scale, reads=reads, normalize=normalize)
