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
TRAIN = (sys.executable, "-m", "margin", "train", "lenet5", "digits")
ROUNDS = 3


def until_said(folder: str, *, terminal: bool) -> float:
    """Processor seconds of a training until its first character on stderr, a terminal or a pipe."""
    end, given = pty.openpty() if terminal else os.pipe()
    program = subprocess.Popen(TRAIN, cwd=folder, stdout=subprocess.DEVNULL, stderr=given)
    os.close(given)
    os.read(end, 1)
    user, system = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    program.kill()
    program.wait()
    os.close(end)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def first_words() -> list[dict[str, object]]:
    """What a user waits for: that the terminal says what is done, and that the training begins."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for what, terminal in (("terminal: what is waited for", True), ("pipe: the training begins", False)):
            times = [until_said(folder, terminal=terminal) for _ in range(ROUNDS)]
            rows.append(
                {
                    "what": f"margin train, first line in a {what}, processor time",
                    "value": statistics.median(times),
                    "unit": "s",
                    "interval": [min(times), max(times)],
                    "target": "<= 2",
                    "met": statistics.median(times) <= 2,
                }
            )
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
