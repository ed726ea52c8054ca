"""How often the printed 95 % intervals of a calibration error and of a mean loss hold the truth.

Populations whose truth is known: stated probabilities uniform on [0.5, 1] with events of probability p less a
shift (calibration error: the shift), and lognormal losses (mean: exp(spread^2 / 2)). Command:

    python -m experiments.theory_coverage
"""

import math

import torch
from torch import Generator

from benchmarks.record import record
from margin.theory.prediction.calibration import calibrated_errors, calibration_interval
from margin.theory.prediction.held_out import Terms, mean_limits
from margin.theory.prediction.risk import clopper_pearson

SEED = 2019


def calibration(shift: float, n: int, repeats: int, generator: Generator, resamples: int = 200) -> int:
    """Samples of ``repeats`` whose interval holds the population's calibration error, which is ``shift``."""
    held = 0
    for _ in range(repeats):
        p = 0.5 + 0.5 * torch.rand(n, generator=generator, dtype=torch.float64)
        happened = torch.rand(n, generator=generator, dtype=torch.float64) < p - shift
        chance = calibrated_errors(p, generator, resamples=resamples)
        low, high = calibration_interval(p, happened, chance, generator)
        held += low <= shift <= high
    return held


def mean(spread: float, n: int, repeats: int, generator: Generator) -> int:
    """Samples of ``repeats`` lognormal losses whose interval holds the population's mean."""
    truth, held = math.exp(spread**2 / 2), 0
    for _ in range(repeats):
        values = (spread * torch.randn(n, generator=generator, dtype=torch.float64)).exp()
        low, high = mean_limits(Terms(values, torch.ones_like(values), torch.arange(n)))
        held += low <= truth <= high
    return held


def main() -> None:
    """Simulate, print and write."""
    figures = []

    def add(what: str, n: int, held: int, repeats: int, least: float | None) -> None:
        share = held / repeats
        row = {"what": f"{what}, n = {n:,}", "unit": "1", "value": share,
               "interval": list(clopper_pearson(held, repeats))}  # fmt: skip
        if least is not None:
            row |= {"target": f">= {least:g}", "met": share >= least}
        figures.append(row)
        print(row, flush=True)

    for shift in (0.0, 0.02, 0.1, 0.3):
        for n, repeats in ((1, 2000), (10, 2000), (20, 2000), (100, 2000), (500, 1000), (20_000, 150)):
            held = calibration(shift, n, repeats, Generator().manual_seed(SEED))
            add(f"coverage, calibration error of {shift:g}", n, held, repeats, 0.93)
    for spread in (0.5, 1.0, 1.5):
        for n in (10, 30, 100, 1000):
            held = mean(spread, n, 4000, Generator().manual_seed(SEED))
            least = 0.93 if n > 10 and spread <= 1 else None
            add(f"coverage, mean of lognormal losses of spread {spread:g}", n, held, 4000, least)
    record(
        "theory/coverage",
        title="Coverage of the printed 95 % intervals of a calibration error and of a mean loss",
        figures=figures,
        seeds=str(SEED),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
