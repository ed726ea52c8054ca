"""Forecasts of several steps by gated recurrent networks, and a GRU's quantiles (Wen et al. 2017)."""

from margin.sequence.forecast.forecasting import Forecaster, Normalize, Reads, Scale, width_read
from margin.sequence.recurrent import gru, lstm


def lstm_forecaster(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The next values of each target by a long short-term memory that has read the context.

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
    """
    core = lstm.recurrence(width_read(input_size, reads), hidden=hidden, layers=layers, dropout=dropout)
    return Forecaster(core, horizon, num_targets, target_scale, reads=reads, normalize=normalize)


def gru_forecaster(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The next values of each target by gated recurrent units that have read the context.

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
    """
    core = gru.recurrence(width_read(input_size, reads), hidden=hidden, layers=layers, dropout=dropout)
    return Forecaster(core, horizon, num_targets, target_scale, reads=reads, normalize=normalize)


def gru_quantiles(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    hidden: int = 64,
    layers: int = 1,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The quantiles .1, .5 and .9 of the next values of each target, by gated recurrent units.

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
    """
    core = gru.recurrence(width_read(input_size, reads), hidden=hidden, layers=layers, dropout=dropout)
    return Forecaster(
        core, horizon, num_targets, target_scale, reads=reads, normalize=normalize, outputs="quantiles"
    )
