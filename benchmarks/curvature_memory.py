"""Peak memory and time of a product with the Hessian against the number of examples, the chunk fixed.

A process for each size multiplies an MLP 64-128-10's Hessian with three vectors, in chunks of 250 examples
that are made when they are asked for, so that what grows is what the products hold. Peak resident memory of
a whole process is compared with that of a whole process.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Generator, nn

from benchmarks.record import record
from margin.core.tasks import CLASSES
from margin.core.types import Batch
from margin.engine.loop import risk
from margin.theory.curvature.hessian import risk_hessian

SIZES, CHUNK, PRODUCTS, REPEATS = (2_000, 5_000, 10_000, 20_000), 250, 3, 3


class Drawn(Sequence[Batch]):
    """Batches that are drawn from their number when they are asked for."""

    def __init__(self, examples: int) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return self.examples // CHUNK

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not 0 <= i < len(self):
            raise IndexError(i)
        generator = Generator().manual_seed(i)
        x = torch.randn(CHUNK, 64, generator=generator)
        return Batch((x,), torch.randint(10, (CHUNK,), generator=generator))


def peak_mib() -> float:
    """Peak resident memory of this program; getrusage's begins with that of the program that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def measure(examples: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 10))
    with risk_hessian(model, Drawn(examples), risk(CLASSES), chunk=CHUNK) as H:
        v = torch.randn(H.dim)
        H(v)
        start = time.process_time()
        for _ in range(PRODUCTS):
            H(v)
        seconds = (time.process_time() - start) / PRODUCTS
    return {"mib": peak_mib(), "seconds": seconds}


def in_a_process(examples: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.curvature_memory", "--examples", str(examples)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def slope(x: list[float], y: list[float]) -> float:
    """The exponent of a power law, by least squares of logarithms."""
    a, b = ([math.log(v) for v in values] for values in (x, y))
    am, bm = sum(a) / len(a), sum(b) / len(b)
    return sum((p - am) * (q - bm) for p, q in zip(a, b, strict=True)) / sum((p - am) ** 2 for p in a)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int)
    if examples := parser.parse_args().examples:
        print(json.dumps(measure(examples)))
        return
    runs = {size: [in_a_process(size) for _ in range(REPEATS)] for size in SIZES}
    peaks = {size: min(run["mib"] for run in runs[size]) for size in SIZES}
    seconds = {size: min(run["seconds"] for run in runs[size]) for size in SIZES}
    growth = peaks[SIZES[-1]] / peaks[SIZES[0]]
    exponent = slope(list(map(float, SIZES)), [seconds[size] for size in SIZES])
    record(
        "theory/curvature_memory",
        title=f"A product with the Hessian of an MLP 64-128-10 in chunks of {CHUNK} examples",
        figures=[
            {
                "what": f"peak memory at {SIZES[-1]:,} examples / at {SIZES[0]:,}",
                "unit": "ratio",
                "value": growth,
                "target": "<= 1.1",
                "met": growth <= 1.1,
            },
            {
                "what": "exponent of time against examples",
                "unit": "1",
                "value": exponent,
                "target": "1 +- 0.1",
                "met": abs(exponent - 1) <= 0.1,
            },
        ],
        peak_mib=peaks,
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
