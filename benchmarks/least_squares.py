"""Least squares: how its time grows with the shorter side of the rows, tall and wide."""

import math

import torch

from benchmarks.record import interleaved, record
from margin.classic.linear.regression import minimum_norm_solution

LONG, SHORT, ROUNDS = 16_000, (128, 192, 256, 384, 512), 5


def medians(wide: bool) -> dict[int, float]:
    generator = torch.Generator().manual_seed(0)
    contestants = {}
    for side in SHORT:
        shape = (side, LONG) if wide else (LONG, side)
        x = torch.randn(*shape, generator=generator, dtype=torch.float64)
        y = torch.randn(shape[0], generator=generator, dtype=torch.float64)
        contestants[str(side)] = lambda x=x, y=y: minimum_norm_solution(x, y)
    times = interleaved(ROUNDS, **contestants)
    return {int(name): sorted(values)[len(values) // 2] for name, values in times.items()}


def exponent(seconds: dict[int, float]) -> float:
    """The slope of log time over log side, by least squares."""
    side = torch.tensor([[math.log(side)] for side in seconds], dtype=torch.float64)
    slope, _, _ = minimum_norm_solution(side, torch.tensor([math.log(t) for t in seconds.values()]).double())
    return float(slope)


def main() -> None:
    found = {"tall": medians(False), "wide": medians(True)}
    slopes = {name: exponent(seconds) for name, seconds in found.items()}
    record(
        "classic/least_squares",
        title=f"Least squares, {LONG:,} on the longer side and {SHORT} on the shorter, float64",
        figures=[
            {
                "what": f"{name}: exponent of the shorter side in the time",
                "value": slope,
                "unit": "1",
                "target": "<= 2.3 (n d^2 tall, n^2 d wide)",
                "met": slope <= 2.3,
            }
            for name, slope in slopes.items()
        ],
        seconds={f"{name}, {side}": t for name, seconds in found.items() for side, t in seconds.items()},
    )


if __name__ == "__main__":
    main()
