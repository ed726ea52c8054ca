"""Where measured figures go: docs/results/<area>/<name>.json, as they came out."""

import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def versions(*packages: str) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("margin", "torch", "numpy", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, object]:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return {"processor": model, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}


def record(
    name: str, *, title: str, figures: list[dict[str, object]], packages: tuple[str, ...] = (), **more: object
) -> Path:
    """Write one result.

    Args:
        name: ``area/name``.
        title: What was measured, in one sentence.
        figures: Rows of what, value, unit, interval, target, source, met.
        packages: Peers whose versions matter.
        more: Anything else worth keeping: seed, raw numbers.
    """
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    module = sys.modules["__main__"].__spec__
    command = f"python -m {module.name}" if module else f"python {sys.argv[0]}"
    document = {
        "title": title,
        "command": " ".join([command, *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "figures": figures,
        "versions": versions(*packages),
        "machine": machine(),
        **more,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    for row in figures:
        print("  ".join(f"{key}={value}" for key, value in row.items()))
    print(f"-> {path}")
    return path


def interleaved(rounds: int, **contestants) -> dict[str, list[float]]:
    """Seconds of each contestant, run in turn, ``rounds`` times after one warm-up each.

    Every library computes on as many threads as torch does: NumPy's and SciPy's have counts of their own.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with threadpool_limits(torch.get_num_threads()):
        for run in contestants.values():
            run()
        for _ in range(rounds):
            for name, run in contestants.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return times


def ratio(times: dict[str, list[float]], one: str, other: str) -> tuple[float, float, float]:
    """Median of the paired ratios, and their least and largest."""
    ratios = [a / b for a, b in zip(times[one], times[other], strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)
