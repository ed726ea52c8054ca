"""A track: how far a generator's samples are from training rows, at every evaluation of a training."""

from collections.abc import Sequence

import torch
from torch import Generator

from margin.core.types import Batch, Objective
from margin.engine.loop import State
from margin.generative.quality.generated import draw
from margin.math.seeds import mix
from margin.math.two_samples.sliced_wasserstein import sliced_wasserstein
from margin.nn.preprocessed import core_of

COUNT = 500
"""Samples and training rows that are compared, at most."""


def track(state: State, objective: Objective, batches: Sequence[Batch]) -> dict[str, float]:
    """How far what is generated is from the training rows; the same seeds each time; leaves no trace.

    Args:
        state: Of the training; the weights that a user would get are asked.
        objective: Not looked at: adversarial players have no common one.
        batches: The training part in order.

    Returns:
        ``sliced_wasserstein``, in standard deviations of the data; NaN where samples are not finite.

    Raises:
        ValueError: The model cannot be sampled.
    """
    if not callable(getattr(core_of(state.usable), "sample", None)):
        raise ValueError(
            "the track sliced_wasserstein needs a model that can be sampled: "
            f"got {type(core_of(state.usable)).__name__}"
        )
    count = sum(len(batch.inputs[0]) for batch in batches)
    every = torch.randperm(count, generator=Generator().manual_seed(mix(0, 19)))[:COUNT].sort().values
    data = torch.cat([batch.inputs[0].detach().cpu() for batch in batches])[every].double()
    samples = draw(state.usable, len(data), data.shape[1:])
    if not bool(samples.isfinite().all()):
        return {"sliced_wasserstein": float("nan")}
    spread = data.std(0) if data.ndim == 2 else data.std()
    scale = torch.where(spread > 0, spread, 1.0)
    distance = sliced_wasserstein(
        samples / scale, data / scale, generator=Generator().manual_seed(0), directions=100
    )
    return {"sliced_wasserstein": distance.value}
