"""LeNet-5 on scikit-learn's digits: five seeds, a stratified quarter held out; then the audit of one."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import record
from margin import Run
from margin.runs.seed_interval import summary

SEEDS = 5


def timed(*words: str) -> tuple[float, float]:
    """Seconds and peak MiB of a command in a process of its own."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "margin", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        runs, seconds, peak = [], [], 0.0
        for seed in range(SEEDS):
            path = Path(directory) / f"seed-{seed}"
            took, peak = timed("train", "lenet5", "digits", "--seed", str(seed), "--out", str(path))
            runs.append(Run(path))
            seconds.append(took)
        audit, peak_both = timed("audit", str(runs[0].path))
        metrics = summary([run.metrics for run in runs])
    test = metrics["test_accuracy"]
    record(
        "vision/lenet5_digits",
        title="LeNet-5 on scikit-learn's digits, mean of 5 seeds, stratified quarter held out",
        figures=[
            {
                "what": "test accuracy",
                "value": test["mean"],
                "unit": "1",
                "interval": [test["low"], test["high"]],
                "target": ">= 0.975",
                "met": test["mean"] >= 0.975,
            },
            {
                "what": "seconds a seed, start-up included",
                "value": max(seconds),
                "unit": "s",
                "target": "<= 20",
                "met": max(seconds) <= 20,
            },
            {
                "what": "seconds of the audit, start-up included",
                "value": audit,
                "unit": "s",
                "target": "<= 30",
                "met": audit <= 30,
            },
            {
                "what": "peak memory of training",
                "value": peak,
                "unit": "MiB",
                "target": "<= 1536",
                "met": peak <= 1536,
            },
            {
                "what": "peak memory of training and audit",
                "value": peak_both,
                "unit": "MiB",
                "target": "<= 1536",
                "met": peak_both <= 1536,
            },
        ],
        packages=("scikit-learn",),
        seeds=list(range(SEEDS)),
        metrics=metrics,
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
