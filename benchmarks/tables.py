"""Reading a CSV as data beside polars reading it as a frame, tall and wide: time and peak memory."""

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is loaded

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import torch

from benchmarks.record import interleaved, ratio, record
from margin.data.formats.tables.tables import read_table

SHAPES, ROUNDS = ((1_000_000, 20), (80, 20_000)), 3

# VmHWM begins anew with a program; ru_maxrss would be that of the process that started it
PEAK = (
    "import re, sys; {load}; status = open('/proc/self/status').read(); "
    "print(int(re.findall(r'VmHWM:\\s+(\\d+)', status)[0]) / 2**10)"
)
LOADS = {
    "ours": "from margin.data.formats.tables.tables import read_table; read_table(sys.argv[1], target='y')",
    "polars": "import polars; frame = polars.read_csv(sys.argv[1])",
}


def written(folder: Path, rows: int, features: int) -> Path:
    draw = np.random.default_rng(0)
    columns = {f"x{k}": draw.normal(size=rows).round(6) for k in range(features)}
    frame = pl.DataFrame({**columns, "y": np.where(columns["x0"] > 0, "a", "b")})
    path = folder / f"{rows}x{features}.csv"
    frame.write_csv(path)
    return path


def peak(path: Path, name: str) -> float:
    """The peak memory of a process that reads the file, in MiB, its libraries included."""
    code = PEAK.format(load=LOADS[name])
    return float(
        subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout
    )


def measured(path: Path, shape: str) -> tuple[list[dict[str, object]], dict[str, float]]:
    ours, frame = read_table(path, target="y"), pl.read_csv(path)
    read = torch.cat([part.inputs[0] for part in ours.splits.values()]).double().sum()
    gap = abs(float(read) - float(frame.drop("y").to_numpy().sum())) / frame.height
    times = interleaved(ROUNDS, ours=lambda: read_table(path, target="y"), polars=lambda: pl.read_csv(path))
    slower, least, most = ratio(times, "ours", "polars")
    memory = {name: peak(path, name) for name in LOADS}
    more = memory["ours"] / memory["polars"]
    figures: list[dict[str, object]] = [
        {
            "what": f"{shape}: difference of the sums of a row",
            "value": gap,
            "unit": "1",
            "target": "<= 1e-4",
            "met": gap <= 1e-4,
        },
        {
            "what": f"{shape}: time / polars'",
            "value": slower,
            "unit": "ratio",
            "interval": [least, most],
            "target": "<= 3",
            "met": slower <= 3,
        },
        {
            "what": f"{shape}: peak memory / polars'",
            "value": more,
            "unit": "ratio",
            "target": "<= 3",
            "met": more <= 3,
        },
    ]
    medians = {f"{name}, {shape}": sorted(values)[len(values) // 2] for name, values in times.items()}
    return figures, medians | {f"{name} MiB, {shape}": value for name, value in memory.items()}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        parts = [measured(written(Path(folder), *shape), "{:,} x {:,}".format(*shape)) for shape in SHAPES]
    record(
        "data/tables",
        title="Reading a CSV as data: understood, split, standardized, beside polars' read_csv as a frame",
        figures=[figure for figures, _ in parts for figure in figures],
        packages=("polars",),
        threads=1,
        measured={name: value for _, medians in parts for name, value in medians.items()},
    )


if __name__ == "__main__":
    main()
