"""What each sampler of diffusion makes of Gaussian data with the exact denoiser: its law, and samples.

The data are N(2, .25) under Ho's linear schedule of 1,000 steps (Ho et al. 2020; Song et al. 2021). With the
exact denoiser every sampler is an affine recursion, whose variance is computed; 100,000 samples are held
against it. No sampler has the data's variance at few steps: what is left is the sampler's own error.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin.core.catalog import resolve, user_options
from margin.generative.diffusion.gaussian_denoiser import gaussian_eps
from margin.generative.diffusion.linear_gaussian_law import GaussianData, law_of
from margin.generative.diffusion.model import SAMPLERS
from margin.generative.diffusion.schedules import linear_schedule, strided, strided_by_ratio

MEAN, VARIANCE, COUNT, SCHEDULE = 2.0, 0.25, 100_000, linear_schedule(1000)
DATA = GaussianData(
    torch.full((1,), MEAN, dtype=torch.float64), torch.full((1,), VARIANCE, dtype=torch.float64)
)
STEPS = (5, 10, 20, 50, 100, 200, 500, 1000)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "DDPM, posterior variance": ("ddpm", {"variance": "small"}),
    "DDPM, variance beta": ("ddpm", {"variance": "large"}),
    "DDIM": ("ddim", {"eta": 0.0}),
    "DDIM, eta = 1": ("ddim", {"eta": 1.0}),
    "probability flow, Euler": ("euler", {}),
    "probability flow, Heun": ("heun", {}),
    "DPM-Solver++ 2M": ("dpm++", {}),
    "reverse SDE, Euler-Maruyama": ("sde", {}),
}
KNOWN = {
    ("DDPM, posterior variance", 1000): 0.2461,
    ("DDPM, posterior variance", 50): 0.1964,
    ("DDIM", 50): 0.2227,
}
"""Of the specification, to four digits."""


def stops_of(method: str, steps: int) -> list[int]:
    spaced = strided_by_ratio if method == "dpm++" else strided
    return [*spaced(SCHEDULE, steps).tolist(), 0]


def exact(x: Tensor, t: int) -> Tensor:
    return gaussian_eps(x, float(SCHEDULE.alpha_bar[t]), MEAN, VARIANCE)


def drawn(method: str, steps: int, options: dict[str, Any]) -> Tensor:
    """Samples of the sampler itself."""
    generator = Generator().manual_seed(steps)
    x = torch.randn(COUNT, 1, generator=generator, dtype=torch.float64)
    run = resolve(SAMPLERS[method])  # type: ignore[index]
    given = {"generator": generator, **options}
    known = {name: value for name, value in given.items() if name in user_options(run)}
    out: Tensor = run(exact, SCHEDULE, x, times=torch.tensor(stops_of(method, steps)[:-1]), **known)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", default="")
    arguments = parser.parse_args()
    curves: dict[str, list[float]] = {}
    figures: list[dict[str, Any]] = []
    start = time.process_time()
    for name, (method, options) in CASES.items():
        laws = [law_of(method, SCHEDULE, stops_of(method, n), DATA, **options).law() for n in STEPS]  # type: ignore[arg-type]
        curves[name] = [float(variance) for _, variance in laws]
        worst = 0.0
        for n in (10, 50):
            mean, variance = (float(part) for part in laws[STEPS.index(n)])
            x = drawn(method, n, options)
            off = abs(float(x.mean()) - mean) / math.sqrt(variance / COUNT)
            worst = max(worst, off, abs(float(x.var()) - variance) / (variance * math.sqrt(2 / COUNT)))
        figures.append(
            {
                "what": f"{name}: {COUNT:,} samples' mean and variance from the law's, 10 and 50 steps",
                "value": worst,
                "unit": "standard errors, the largest of four",
                "target": "<= 4",
                "met": worst <= 4,
            }
        )
    for (name, n), known in KNOWN.items():
        found = curves[name][STEPS.index(n)]
        figures.append(
            {
                "what": f"{name}, {n} steps: variance of the samples, the data's being {VARIANCE}",
                "value": found,
                "unit": "1",
                "target": f"{known} to 5e-5",
                "met": abs(found - known) <= 5e-5,
            }
        )
    record(
        "generative/samplers",
        title="Samplers of diffusion with the exact denoiser of N(2, .25): recursions and samples",
        figures=figures,
        seconds=round(time.process_time() - start),
        steps=list(STEPS),
        variances=curves,
    )
    if arguments.picture:
        picture(curves, Path(arguments.picture))


def picture(curves: dict[str, list[float]], path: Path) -> None:
    """The error of the variance by the number of steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, variances in curves.items():
        axes.loglog(STEPS, [abs(v - VARIANCE) for v in variances], marker=".", label=name)
    axes.set_xlabel("steps")
    axes.set_ylabel("|variance of the samples - .25|")
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
