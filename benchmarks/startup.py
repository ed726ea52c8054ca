"""Seconds until ``margin --help`` has printed, beside a bare interpreter; until a training says something."""

import os
import pty
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.record import interleaved, record

PROGRAM = str(Path(sys.executable).with_name("margin"))
ROUNDS = 5


def until_said(*words: str, folder: str, terminal: bool = False) -> float:
    """Processor seconds of a program until its first character on stderr, a terminal or a pipe."""
    end, given = pty.openpty() if terminal else os.pipe()
    program = subprocess.Popen((sys.executable, *words), cwd=folder, stdout=subprocess.DEVNULL, stderr=given)
    os.close(given)
    os.read(end, 1)
    user, system = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    program.kill()
    program.wait()
    os.close(end)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


WAITS = {
    "margin train mlp iris, first line in a terminal: what is waited for": ("iris", True),
    "margin train mlp iris, first line in a pipe: what is trained": ("iris", False),
    "margin train mlp two-moons, first line in a pipe: what is trained": ("two-moons", False),
}


def first_words() -> list[dict[str, object]]:
    """What a user waits for: that the terminal says what is done, and that the training begins."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for what, (data, terminal) in WAITS.items():
            words = ("-m", "margin", "train", "mlp", data)
            times = [until_said(*words, folder=folder, terminal=terminal) for _ in range(ROUNDS)]
            rows.append(
                {
                    "what": f"{what}, processor time",
                    "value": statistics.median(times),
                    "unit": "s",
                    "interval": [min(times), max(times)],
                    "target": "<= 2",
                    "met": statistics.median(times) <= 2,
                }
            )
        bare = [
            until_said("-c", "import sys, torch; print(file=sys.stderr)", folder=folder) for _ in range(3)
        ]
        rows.append({"what": "import torch, processor time", "value": statistics.median(bare), "unit": "s"})
    return rows


def main() -> None:
    def running(*words: str):
        return lambda: subprocess.run(words, check=True, capture_output=True)

    times = interleaved(
        11,
        help=running(PROGRAM, "--help"),
        models=running(PROGRAM, "models"),
        python=running(sys.executable, "-c", "pass"),
    )
    median = statistics.median(times["help"])
    record(
        "cli/startup",
        title=f"Start-up of the command line, median of 11; of a training, of {ROUNDS}",
        figures=[
            {
                "what": "margin --help",
                "value": median,
                "unit": "s",
                "interval": [min(times["help"]), max(times["help"])],
                "target": "<= 0.3",
                "met": median <= 0.3,
            },
            {"what": "margin models", "value": statistics.median(times["models"]), "unit": "s"},
            {"what": "python -c pass", "value": statistics.median(times["python"]), "unit": "s"},
            *first_words(),
        ],
    )


if __name__ == "__main__":
    main()
