"""Forecasts of several steps by dilated causal convolutions (Bai, Kolter and Koltun 2018)."""

from margin.sequence.convolution import tcn
from margin.sequence.forecast.forecasting import Forecaster, Normalize, Reads, Scale, width_read


def tcn_forecaster(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    hidden: int = 32,
    layers: int = 5,
    kernel: int = 3,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The next values of each target by dilated causal convolutions that have read the context.

    Args:
        input_size: Columns of the series.
        horizon: Steps that are foretold.
        num_targets: Columns that are foretold.
        target_scale: For each target its column, mean and deviation in training.
        hidden: Units of every block.
        layers: Blocks; the last value of the context reads 1 + 2 (kernel - 1) (2^layers - 1) rows.
        kernel: Taps of every convolution.
        dropout: Probability with which a number is dropped in training, in [0, 1).
        reads: Whether the forecast of a target reads every column, or its own alone.
        normalize: What is taken out of a context: nothing, its last value, or its mean and deviation.

    Reference:
        Bai, Kolter and Koltun 2018, Section 3.
    """
    core = tcn.TCN(
        width_read(input_size, reads), hidden=hidden, layers=layers, kernel=kernel, dropout=dropout
    )
    return Forecaster(core, horizon, num_targets, target_scale, reads=reads, normalize=normalize)
