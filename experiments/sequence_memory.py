"""How far back recurrences learn to look: the adding problem at T = 100 and 400, copy memory at lag 100.

Every cell takes the same steps on the same examples, five paired seeds, at one thread; how many steps is the
budget, not what a cell would need. The results are written after each seed but the first.
"""

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Data
from margin.data.sets.copy_memory import COPIED, copy_memory
from margin.data.sets.synthetic_sequences import adding
from margin.runs.seed_interval import summary

EXAMPLES, BATCH, SOLVED = 20_000, 32, 0.002


class Task(NamedTuple):
    """A task: how its data are made, what the entries are called, its budget, the error without memory."""

    name: str
    suffix: str
    steps: int
    baseline: float
    time: int


TASKS = (
    Task("adding, T = 100", "regressor", 800, 1 / 6, 100),
    Task("copy memory, lag 100", "language", 4000, 10 * math.log(8) / 120, 100),
    Task("adding, T = 400", "regressor", 800, 1 / 6, 400),
)


def data_of(task: Task, seed: int) -> Data:
    if task.suffix == "regressor":
        return adding(examples=EXAMPLES, time=task.time, seed=seed, test=0.05, val=0.02)
    return copy_memory(examples=EXAMPLES, lag=task.time, seed=seed, test=0.05, val=0.02)


COPY: dict[str, tuple[dict[str, object], float]] = {
    "elman": ({"hidden": 128}, 5e-3),
    "lstm": ({"hidden": 128, "recurrent_init": "orthogonal"}, 3e-3),
    "gru": ({"hidden": 128}, 2e-3),
    "mingru": ({"hidden": 128, "layers": 2}, 5e-3),
    "lru": (
        {"width": 32, "states": 128, "layers": 2, "norm": "none", "r_min": 0.98, "r_max": 0.9999},
        5e-3,
    ),
}
"""Options and learning rates for copy memory, chosen by trainings at seed 0, which is not used."""

ADDING: dict[str, tuple[dict[str, object], float]] = {
    "elman": ({"hidden": 32}, 5e-3),
    "lstm": ({"hidden": 64}, 1e-2),
    "gru": ({"hidden": 32}, 5e-3),
    "mingru": ({"hidden": 32, "layers": 2}, 1e-2),
    "lru": ({"width": 64, "states": 64, "layers": 2, "norm": "batch", "r_max": 0.9999}, 2e-3),
}
"""The same for the adding problem."""


def options_of(cell: str, task: Task) -> tuple[dict[str, object], float]:
    """The cell's own options, with the memory the task asks for where it has one, and its learning rate."""
    adding = task.suffix == "regressor"
    options, lr = (ADDING if adding else COPY)[cell]
    if cell in ("lstm", "mingru"):
        memory = task.time if adding else task.time + 2 * COPIED
        return options | {"memory": memory}, lr
    if cell == "lru" and adding:
        # eigenvalues that forget to 1/e in T to 10,000 steps, and turn by up to 8 radians in T
        return options | {"r_min": 1 - 0.8 / task.time, "max_phase": 8 / task.time}, lr
    return options, lr


def trained(cell: str, task: Task, seed: int, directory: Path) -> dict[str, object]:
    options, lr = options_of(cell, task)
    training = Training(
        seed=seed,
        max_steps=task.steps,
        batch_size=BATCH,
        lr=lr,
        clip=1.0,
        schedule="constant",
        evaluate_every=task.steps // 10,
        patience=0,
        until={"loss": SOLVED},
        threads=1,
    )
    started, out = time.perf_counter(), directory / f"{cell}-{task.suffix}-{task.time}-{seed}"
    run = train(f"sequence/{cell}_{task.suffix}", data_of(task, seed), options, training, out=out)
    curve = [[row["step"], round(float(row["val_loss"]), 5)] for row in run.history if "val_loss" in row]
    found = {
        "cell": cell,
        "task": task.name,
        "seed": seed,
        "test": float(run.metrics["test_loss"]),
        "seconds": round(time.perf_counter() - started, 1),
        "curve": curve,
    }
    print(found, flush=True)
    return found


def interval(values: list[float]) -> list[float]:
    """Student's, of 95 %, which needs two seeds."""
    found = summary([{"loss": value} for value in values])["loss"]
    return [found["low"], found["high"]]


def figures_of(runs: list[dict[str, object]], cells: list[str]) -> list[dict[str, object]]:
    figures: list[dict[str, object]] = []
    for task in TASKS:
        of = {
            cell: {r["seed"]: float(r["test"]) for r in runs if (r["cell"], r["task"]) == (cell, task.name)}
            for cell in cells
        }
        for cell, by_seed in of.items():
            values = list(by_seed.values())
            row: dict[str, object] = {
                "what": f"{task.name}, {cell}, {task.steps} steps of {BATCH}: test loss",
                "value": statistics.fmean(values),
                "unit": "1" if task.suffix == "regressor" else "nats a token",
                "interval": interval(values),
                "seeds": len(values),
                "without memory": round(task.baseline, 4),
            }
            if cell == "elman":
                row["target"] = "near the loss without memory"
                row["met"] = statistics.fmean(values) > 0.7 * task.baseline
            elif "elman" in of:
                less = interval([by_seed[s] - of["elman"][s] for s in by_seed])
                row["minus Elman's, paired"] = less
                row["target"] = "far below it, and below Elman's"
                row["met"] = statistics.fmean(values) < 0.5 * task.baseline and less[1] < 0
            figures.append(row)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", nargs="+", default=["elman", "lstm", "gru", "mingru", "lru"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(1, arguments.seeds + 1):
            for task in TASKS:
                runs += [trained(cell, task, seed, Path(directory)) for cell in arguments.cells]
            if seed == 1:
                continue
            record(
                "sequence/memory",
                title="Adding problem and copy memory: equal steps for every cell, one thread, paired seeds",
                figures=figures_of(runs, arguments.cells),
                runs=runs,
                budget=f"{', '.join(f'{t.name}: {t.steps} steps of {BATCH}' for t in TASKS)}; a training "
                f"ends before where the loss of a step is at most {SOLVED}",
                options={c: {t.name: options_of(c, t) for t in TASKS} for c in arguments.cells},
            )


if __name__ == "__main__":
    main()
