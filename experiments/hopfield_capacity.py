"""Hopfield's network near capacity: overlap after recall by load, and patterns recalled exactly."""

import math
import sys

import torch
from scipy.stats import t as student

from benchmarks.record import record
from margin.classic.memory.hopfield import correlations
from margin.classic.memory.hopfield_dynamics import asynchronous
from margin.classic.memory.hopfield_theory import critical_load, exact_recall_capacity, retrieval_overlap

SEEDS, PROBES, SWEEPS = range(5), 100, 200
LOADS = (0.05, 0.08, 0.1, 0.11, 0.12, 0.13, 0.138, 0.145, 0.15, 0.16, 0.18, 0.2)
FULL = 0.138
AGS = "Amit, Gutfreund and Sompolinsky 1985"


def network(units: int, patterns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * units + seed)
    x = 2.0 * torch.randint(0, 2, (patterns, units), generator=generator) - 1
    return x, correlations(x)


def overlap(units: int, load: float, noise: float, seed: int) -> float:
    """Mean overlap with the pattern after asynchronous recall from it, a share of its bits flipped."""
    x, C = network(units, round(load * units), seed)
    x = x[:PROBES]
    generator = torch.Generator().manual_seed(seed)
    probes = torch.where(torch.rand(x.shape, generator=generator) < noise, -x, x)
    found = asynchronous(C, torch.zeros(units), probes, max_sweeps=SWEEPS)
    assert bool(found.settled.all())
    return float((found.state * x).mean(1).mean())


def exact(units: int, patterns: int, seed: int) -> float:
    """Share of the stored patterns that are fixed points."""
    x, C = network(units, patterns, seed)
    return float(asynchronous(C, torch.zeros(units), x, max_sweeps=1).settled.double().mean())


def figure(what: str, values: list[float], **more: object) -> dict[str, object]:
    mean = sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
    half = float(student.ppf(0.975, len(values) - 1)) * error
    return {"what": what, "value": mean, "unit": "1", "interval": [mean - half, mean + half], **more}


def main() -> None:
    torch.set_num_threads(1)
    sizes = [int(word) for word in sys.argv[1:]] or [1000, 2000]
    figures, curves = [], {}
    for units in sizes:
        for noise in (0.0, 0.1):
            values = {load: [overlap(units, load, noise, seed) for seed in SEEDS] for load in LOADS}
            curves[f"n = {units}, {noise:.0%} of the bits flipped"] = values
            loads = LOADS if noise == 0 else (FULL,)
            for load in loads:
                what = f"n = {units}, load {load}, {noise:.0%} flipped: overlap after recall"
                limit = 0.967 if load == FULL else round(retrieval_overlap(load), 4)
                source = {"published": f"{limit}, n -> infinity ({AGS})"} if noise == 0 else {}
                figures.append(figure(what, values[load], **source))
            drop = [a - b for a, b in zip(values[0.12], values[0.16], strict=True)]
            fall = figure(
                f"n = {units}, {noise:.0%} flipped: fall of the overlap from load 0.12 to 0.16", drop
            )
            figures.append(fall)
        edges = {
            "n / (4 ln n)": (round(exact_recall_capacity(units, every=True)), "1, n -> infinity"),
            "n / (2 ln n)": (round(exact_recall_capacity(units)), "1 below, 0 above, n -> infinity"),
            "0.3 n": (round(0.3 * units), "0, n -> infinity"),
        }
        for name, (patterns, limit) in edges.items():
            shares = [exact(units, patterns, seed) for seed in SEEDS]
            what = f"n = {units}, {patterns} patterns ({name}): share recalled exactly"
            figures.append(figure(what, shares, published=f"{limit} (McEliece et al. 1987)"))
    record(
        "classic/hopfield_capacity",
        title="Hopfield's network near capacity: mean over 5 networks, 95 % t interval, 100 probes each",
        figures=figures,
        packages=("scipy",),
        seeds=list(SEEDS),
        overlaps={name: {str(load): v for load, v in values.items()} for name, values in curves.items()},
        limit={str(load): retrieval_overlap(load) for load in LOADS},
        critical_load=critical_load(),
    )


if __name__ == "__main__":
    main()
