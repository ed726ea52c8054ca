"""Learning-rate schedules as pure functions of the step: factors of the first learning rate."""

import math
from collections.abc import Callable
from typing import Literal

Schedule = Callable[[int], float]


def schedule_of(name: Literal["constant", "cosine", "linear"], *, total: int, warmup: int) -> Schedule:
    """The factor of the learning rate at each step.

    A linear rise over ``warmup`` steps, then constant at 1; half a cosine to 0 at ``total``
    (Loshchilov and Hutter 2017, Eq. 5 with one period); or a straight line to 0 at ``total``.

    Args:
        name: The shape after the rise.
        total: Steps of the training.
        warmup: Steps of the rise; 0 for none.
    """
    span = max(1, total - warmup)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / span)
        if name == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1 - done if name == "linear" else 1.0

    return factor
