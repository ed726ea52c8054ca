"""Seconds until ``margin --help`` has printed, beside a bare interpreter."""

import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.record import interleaved, record


def main() -> None:
    program = str(Path(sys.executable).with_name("margin"))

    def running(*words: str):
        return lambda: subprocess.run(words, check=True, capture_output=True)

    times = interleaved(
        11,
        help=running(program, "--help"),
        models=running(program, "models"),
        python=running(sys.executable, "-c", "pass"),
    )
    median = statistics.median(times["help"])
    record(
        "cli/startup",
        title="Start-up of the command line, median of 11",
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
        ],
    )


if __name__ == "__main__":
    main()
