"""Several seeds: the mean of a metric over independent trainings, with Student's interval (1908).

Seeds may agree by chance, most easily in a score of few values: 19 of 23 right three times tells no more of
other examples than one seed does. A share has the limits of Clopper and Pearson (1934) for its examples too.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np


def summary(
    metrics: Sequence[Mapping[str, float]], *, level: float = 0.95, examples: Mapping[str, int] | None = None
) -> dict[str, dict[str, float]]:
    r"""The mean m of each metric with its t interval, :math:`m \mp t_{n-1} s / \sqrt n`.

    A share of examples that all trainings are judged by has two errors, of the seeds and of the examples,
    which add in squares: :math:`m - \sqrt{(t_{n-1} s / \sqrt n)^2 + (m - l)^2}`, with l the lower limit of
    Clopper and Pearson of so many examples, not n times as many: they are the same ones. Above likewise.

    Args:
        metrics: One mapping a training.
        level: Confidence of the interval, in (0, 1).
        examples: Of each metric that is a share of examples, of how many; of others the t interval is given.

    Returns:
        By metric: mean, low, high, std (of one training), n.

    Raises:
        ValueError: There are fewer than two trainings.

    Reference:
        Student 1908, Section VI; Clopper and Pearson 1934; Zou and Donner 2008 (limits of a sum).
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
        low, high = mean - factor * std, mean + factor * std
        if examples and name in examples:
            least, most = _exact(mean, examples[name], level)
            low = max(0.0, mean - math.hypot(factor * std, mean - least))
            high = min(1.0, mean + math.hypot(factor * std, most - mean))
        found[name] = {"mean": mean, "low": low, "high": high, "std": std, "n": float(count)}
    return found


def shares(metrics: Sequence[Mapping[str, float]], parts: Mapping[str, int]) -> dict[str, int]:
    """The accuracies that are a share of the examples of a part, with how many these are.

    Args:
        metrics: One mapping a training, by names as ``test_accuracy``.
        parts: The number of examples of each held-out part. An accuracy that is no whole number of these is
            one of other things, as of tokens, and is left out.
    """
    found = {}
    for name in metrics[0]:
        part, _, score = name.partition("_")
        n = parts.get(part, 0)
        whole = all(math.isclose(row[name] * n, round(row[name] * n), abs_tol=1e-6) for row in metrics)
        if score == "accuracy" and n and whole:
            found[name] = n
    return found


def _exact(share: float, n: int, level: float) -> tuple[float, float]:
    """The limits of Clopper and Pearson of a share of n, which may lie between two counts."""
    from scipy.stats import beta

    alpha, right = 1 - level, min(max(share, 0.0), 1.0) * n
    low = float(beta.ppf(alpha / 2, right, n - right + 1)) if right > 0 else 0.0
    high = float(beta.ppf(1 - alpha / 2, right + 1, n - right)) if right < n else 1.0
    return low, high
