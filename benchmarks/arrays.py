"""A file of arrays by the command line: peak memory beyond that for a small file, in sizes of the file."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.record import record

ROWS, SMALL, FEATURES = 500_000, 500, 100

# VmHWM begins anew with a program; ru_maxrss would be that of the process that started it
CODE = (
    "import re, sys; from margin.cli import main; status = main(sys.argv[1:]); "
    "kept = open('/proc/self/status').read(); "
    "print('peak', int(re.findall(r'VmHWM:\\s+(\\d+)', kept)[0]) * 1024); sys.exit(status)"
)
COMMANDS = {
    "data show": "data show FILE",
    "predict": "predict run FILE --out FILE.csv",
    "audit": "audit run FILE --claims risk.accuracy --out FILE.audit",
}


def peak(words: str, folder: Path) -> int:
    """The peak memory of a process that runs a command, its libraries included."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words.split()], cwd=folder, capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def main() -> None:
    figures: list[dict[str, object]] = []
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, rows in (("small.npy", SMALL), ("big.npy", ROWS)):
            x = np.random.default_rng(0).normal(size=(rows, FEATURES)).astype(np.float32)
            np.save(folder / file, x)
            np.save(folder / file.replace(".", "_y."), (x[:, 0] > 0).astype(int))
        peak("train mlp small.npy --model.hidden 4 --epochs 1 --out run", folder)
        size = (folder / "big.npy").stat().st_size
        for what, words in COMMANDS.items():
            small, big = (peak(words.replace("FILE", file), folder) for file in ("small.npy", "big.npy"))
            times = (big - small) / size
            figures.append(
                {
                    "what": f"{what}: peak memory beyond that for a small file / the file's size",
                    "value": times,
                    "unit": "ratio",
                    "target": "<= 2.5",
                    "met": times <= 2.5,
                }
            )
            measured |= {f"{what} MiB": big / 2**20, f"{what} MiB, small file": small / 2**20}
    record(
        "data/arrays",
        title="A .npy file of 191 MiB, float32, by the command line: peak memory",
        figures=figures,
        packages=("numpy",),
        threads=1,
        measured=measured,
    )


if __name__ == "__main__":
    main()
