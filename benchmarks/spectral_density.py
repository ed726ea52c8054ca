"""The spectral density of a small net's Hessian beside curvlinops' lanczos_approximate_spectrum.

An MLP 16-24-8 (608 parameters) after 200 steps of gradient descent on a task drawn from a seed, 1,000
examples. Both sides take the same number of Lanczos steps and of probes, and smooth with one width, that of
curvlinops; the L1 distance to the dense spectrum, smoothed alike, is compared, so that speed is measured at
equal error. Peak memory is that of a process that computes one density.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys

import torch
from torch import Generator, nn

from benchmarks.curvature_memory import peak_mib
from benchmarks.record import interleaved, ratio, record
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.diagonal import as_symmetric
from margin.theory.curvature.hessian import risk_hessian
from margin.theory.curvature.spectral_density import spectral_density

STEPS, PROBES, ROUNDS, KAPPA, SEEDS = 40, 8, 7, 3.0, 5


def trained() -> tuple[nn.Module, Batch]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8))
    generator = Generator().manual_seed(1)
    x = torch.randn(1000, 16, generator=generator)
    y = (x @ torch.randn(16, 8, generator=generator)).argmax(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval(), Batch((x,), y)


def ours(model: nn.Module, batch: Batch, seed: int = 0):
    with risk_hessian(model, [batch], risk(CLASSES)) as H:
        found = spectral_density(H, H.dim, probes=PROBES, steps=STEPS, dtype=H.dtype, seed=seed)
    low, high = found.ends
    width = (1 + 2 * 0.05) * (high - low) / (STEPS - 1) / math.sqrt(8 * math.log(KAPPA))
    grid = found.grid(1024, width)
    return grid, found.smoothed(grid, width)[0], width


def theirs(model: nn.Module, batch: Batch, seed: int = 0):
    from curvlinops import HessianLinearOperator
    from curvlinops.papyan2020traces.spectrum import lanczos_approximate_spectrum

    torch.manual_seed(seed)
    data = [(batch.inputs[0], batch.targets)]
    operator = HessianLinearOperator(
        model, nn.CrossEntropyLoss(), list(model.parameters()), data, check_deterministic=False
    )
    grid, density = lanczos_approximate_spectrum(operator, STEPS, num_repeats=PROBES, kappa=KAPPA)
    half = float(grid[-1] - grid[0]) / 2
    return grid.double(), density.double(), half * 2 / (STEPS - 1) / math.sqrt(8 * math.log(KAPPA))


def distance(values: torch.Tensor, grid: torch.Tensor, density: torch.Tensor, width: float) -> float:
    z = (grid[:, None] - values) / width
    exact = (-z.square() / 2).exp().mean(1) / (width * math.sqrt(2 * math.pi))
    return float(torch.trapezoid((density - exact).abs(), grid))


def peak(who: str) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spectral_density", "--peak", who]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peak", choices=("ours", "theirs"))
    model, batch = trained()
    if who := parser.parse_args().peak:
        import curvlinops  # noqa: F401  both processes pay for its import

        {"ours": ours, "theirs": theirs}[who](model, batch)
        print(json.dumps(peak_mib()))
        return
    with risk_hessian(model, [batch], risk(CLASSES)) as H:
        values = torch.linalg.eigvalsh(as_symmetric(H, H.dim, dtype=H.dtype))
    errors = {
        "ours": [distance(values, *ours(model, batch, seed)) for seed in range(SEEDS)],
        "theirs": [distance(values, *theirs(model, batch, seed)) for seed in range(SEEDS)],
    }
    mean = {name: statistics.mean(some) for name, some in errors.items()}
    memory = {who: peak(who) for who in ("ours", "theirs")}
    times = interleaved(ROUNDS, ours=lambda: ours(model, batch), theirs=lambda: theirs(model, batch))
    speed, least, most = ratio(times, "theirs", "ours")
    record(
        "theory/spectral_density",
        title=f"Spectral density of an MLP 16-24-8, {PROBES} probes of {STEPS} Lanczos steps, 1,000 examples",
        figures=[
            {
                "what": f"L1 distance to the dense spectrum, ours / curvlinops, mean of {SEEDS} seeds",
                "unit": "ratio",
                "value": mean["ours"] / mean["theirs"],
                "target": "<= 1.1",
                "met": mean["ours"] <= 1.1 * mean["theirs"],
            },
            {
                "what": "peak memory, ours / curvlinops",
                "unit": "ratio",
                "value": memory["ours"] / memory["theirs"],
                "target": "<= 1.05",
                "met": memory["ours"] <= 1.05 * memory["theirs"],
            },
            {
                "what": "time of curvlinops / ours",
                "unit": "ratio",
                "value": speed,
                "interval": [least, most],
                "target": ">= 1",
                "met": speed >= 1,
            },
        ],
        packages=("curvlinops-for-pytorch",),
        distances=errors,
        peak_mib=memory,
        seconds={name: statistics.median(some) for name, some in times.items()},
    )


if __name__ == "__main__":
    main()
