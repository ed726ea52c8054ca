"""Cover's transition, measured: the share of random labelings of Gaussian points that a plane separates."""

import torch

from benchmarks.record import record
from margin.classic.perceptron.cover import separable_share
from margin.classic.perceptron.separation import separate
from margin.theory.prediction.risk import clopper_pearson

TRIALS, WEIGHTS, RATIOS = 400, (5, 20, 50), (1.0, 1.6, 1.8, 2.0, 2.2, 2.4, 3.0)


def measured(points: int, weights: int, seed: int) -> int:
    """How many of the trials' labelings of fresh points are separated."""
    generator = torch.Generator().manual_seed(seed)
    separated = 0
    for _ in range(TRIALS):
        x = torch.randn(points, weights, generator=generator, dtype=torch.float64)
        sign = 2.0 * torch.randint(0, 2, (points, 1), generator=generator).double() - 1
        found = separate(sign * x)
        if not (found.separable or found.inseparable):
            raise ArithmeticError(found.evidence())
        separated += found.separable
    return separated


def main() -> None:
    figures = []
    for weights in WEIGHTS:
        for ratio in RATIOS:
            points = round(ratio * weights)
            count = measured(points, weights, seed=1000 * weights + points)
            low, high = clopper_pearson(count, TRIALS, level=0.9999)
            theory = float(separable_share(points, weights))
            figures.append(
                {
                    "what": f"separable share of {points} points in {weights} dimensions (s / n = {ratio})",
                    "value": count / TRIALS,
                    "unit": "1",
                    "interval": [low, high],
                    "target": f"{theory:.4f} (Cover 1965) in the interval",
                    "met": low <= theory <= high,
                }
            )
    record(
        "classic/separation_capacity",
        title=f"Cover's transition at s = 2n: {TRIALS} labelings of Gaussian points each, 99.99 % intervals",
        figures=figures,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
