"""Forecasts of several steps by linear recurrent units (Orvieto et al. 2023)."""

import math

from margin.sequence.forecast.forecasting import Forecaster, Normalize, Reads, Scale, width_read
from margin.sequence.linear import lru

REACH = (0.5, 0.99, 2 * math.pi)
"""Inner and outer radius and largest phase of the eigenvalues at the beginning: memories of 1 to 100 rows."""


def lru_forecaster(  # more than 7 parameters: 4 are dictated by the data
    input_size: int,
    horizon: int,
    num_targets: int,
    target_scale: Scale,
    *,
    width: int = 64,
    states: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    reads: Reads = "all",
    normalize: Normalize = "last",
) -> Forecaster:
    """The next values of each target by blocks of linear recurrent units that have read the context.

    Args:
        input_size: Columns of the series.
        horizon: Steps that are foretold.
        num_targets: Columns that are foretold.
        target_scale: For each target its column, mean and deviation in training.
        width: Numbers of each step between the blocks.
        states: Complex states of each block.
        layers: Blocks.
        dropout: Probability with which a number is dropped in training, in [0, 1).
        reads: Whether the forecast of a target reads every column, or its own alone.
        normalize: What is taken out of a context: nothing, its last value, or its mean and deviation.

    Reference:
        Orvieto et al. 2023, Section 3.
    """
    core = lru.recurrence(
        width_read(input_size, reads),
        width=width,
        states=states,
        layers=layers,
        dropout=dropout,
        norm="layer",
        reach=REACH,
    )
    return Forecaster(core, horizon, num_targets, target_scale, reads=reads, normalize=normalize)
