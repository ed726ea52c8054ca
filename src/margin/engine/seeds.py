"""Several seeds: the mean of a metric over independent trainings, with Student's interval (1908)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np


def summary(metrics: Sequence[Mapping[str, float]], *, level: float = 0.95) -> dict[str, dict[str, float]]:
    """The mean of each metric with its t interval: mean -+ t_{n-1} s / sqrt(n).

    Args:
        metrics: One mapping a training.
        level: Confidence of the interval, in (0, 1).

    Returns:
        By metric: mean, low, high, std (of one training), n.

    Raises:
        ValueError: There are fewer than two trainings.

    Reference:
        Student 1908, Section VI.
    """
    from scipy.stats import t

    count = len(metrics)
    if count < 2:
        raise ValueError(f"an interval needs at least two trainings: got {count}")
    factor = float(t.ppf((1 + level) / 2, count - 1)) / math.sqrt(count)
    found = {}
    for name in metrics[0]:
        values = np.array([row[name] for row in metrics], dtype=np.float64)
        mean, std = float(values.mean()), float(values.std(ddof=1))
        found[name] = {
            "mean": mean,
            "low": mean - factor * std,
            "high": mean + factor * std,
            "std": std,
            "n": float(count),
        }
    return found
