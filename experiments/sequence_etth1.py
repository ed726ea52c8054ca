"""ETTh1 (Zhou et al. 2021): a transformer's hours, seven columns foretold 24 and 96 hours ahead.

The standard parts, 12, 4 and 4 months of 30 days; errors in units of the training part's deviations, over
all windows of the test part. The nets read 96 hours, as does the linear map beside them; that of 336 hours
is Zeng et al.'s setting.

Choices, by validation errors 24 hours ahead at seed 0, which is not used: the last value is taken out of a
context (a GRU's .42, against .47 with mean and deviation); columns are read one by one; small batches (a
GRU at .60 after 800 steps of 8 windows, at .74 after 200 of 32); learning rates, and the GRU's 64 units.
"""

import argparse
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from margin import Training, load, train
from margin.data.examples import Data
from margin.data.formats.series.sources import read_series
from margin.engine.evaluation import eval_mode
from margin.engine.runs import Run
from margin.runs.seed_interval import summary

ROWS = 14_400
"""20 months of 30 days."""

REPEAT = {96: (1.295, 0.713)}
"""Mean squared and absolute error of the last value, Zeng et al. 2023, Table 2."""

LINEAR = {96: (0.374, 0.394)}
"""Of NLinear, context 336, Zeng et al. 2023, Table 2."""

NETS = Training(
    batch_size=8,
    lr=1e-2,
    clip=1.0,
    patience=0,
    schedule="cosine",
    evaluate_every=10**6,
    checkpoint_every=10**6,
)

MODELS: dict[str, tuple[str, dict[str, Any], Training, int]] = {
    "last value": ("sequence/last_value", {}, Training(), 96),
    "one day ago": ("sequence/seasonal_naive", {"period": 24}, Training(), 96),
    "linear, 96 hours": ("sequence/linear_forecaster", {}, Training(), 96),
    "linear, 336 hours": ("sequence/linear_forecaster", {}, Training(), 336),
    "linear, 336 hours, one map": ("sequence/linear_forecaster", {"maps": "one"}, Training(), 336),
    "GRU": ("sequence/gru_forecaster", {"hidden": 64, "reads": "own"}, NETS, 96),
    "LRU": ("sequence/lru_forecaster", {"width": 32, "states": 32, "reads": "own"}, NETS, 96),
    "TCN": ("sequence/tcn_forecaster", {"hidden": 32, "reads": "own"}, replace(NETS, lr=5e-3), 96),
}

EXACT = ("sequence/last_value", "sequence/seasonal_naive", "sequence/linear_forecaster")


def data(horizon: int, context: int) -> Data:
    path = Path(os.environ["MARGIN_DATA"]) / "timeseries" / "ett" / "ETTh1.csv.gz"
    return read_series(path, context=context, horizon=horizon, rows=ROWS)


def errors(run: Run, source: Data) -> tuple[float, float]:
    """Mean squared and mean absolute error over the test part, in deviations of the training part."""
    model, part = load(run.path), source.splits["test"]
    std = torch.tensor([record[2] for record in source.spec["target_scale"]], dtype=torch.float64)
    squares = absolute = 0.0
    with torch.no_grad(), eval_mode(model):
        for index in torch.arange(len(part)).split(512):
            batch = part.take(index, torch.Generator())
            error = (model(batch.inputs[0]).double() - batch.targets.double()) / std
            squares += float(error.square().sum())
            absolute += float(error.abs().sum())
    count = len(part) * part.horizon * len(std)
    return squares / count, absolute / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1600, help="of each net")
    parser.add_argument("--horizons", type=int, nargs="+", default=[24, 96])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    arguments = parser.parse_args()
    figures: list[dict[str, object]] = []
    for horizon in arguments.horizons:
        for name in arguments.models:
            model, options, training, context = MODELS[name]
            source = data(horizon, context)
            training = training if model in EXACT else replace(training, max_steps=arguments.steps)
            found = []
            with tempfile.TemporaryDirectory() as directory:
                for seed in range(1, 2 if model in EXACT else arguments.seeds + 1):
                    out = Path(directory) / str(seed)
                    run = train(model, source, options, replace(training, seed=seed, threads=1), out=out)
                    found.append(errors(run, source))
                    print(horizon, name, seed, found[-1], flush=True)
            figures += rows(name, horizon, found)
        record(
            "sequence/etth1",
            title="ETTh1, all seven columns, standard parts: errors in deviations of the training part",
            figures=figures,
            seeds=arguments.seeds,
            budget=f"{arguments.steps} steps of 8 windows of seven sequences; one thread; the last weights",
        )


def rows(name: str, horizon: int, errors_of: list[tuple[float, float]]) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    known = {"last value": REPEAT, "linear, 336 hours, one map": LINEAR}.get(name, {}).get(horizon)
    for k, what in enumerate(("mean squared error", "mean absolute error")):
        values = [pair[k] for pair in errors_of]
        mean = statistics.fmean(values)
        row: dict[str, object] = {
            "what": f"{name}, {horizon} hours ahead: {what}",
            "value": mean,
            "unit": "1",
        }
        if len(values) > 1:
            found = summary([{"error": value} for value in values])["error"]
            row["interval"] = [found["low"], found["high"]]
        if known:
            row |= {
                "published": f"{known[k]} (Zeng, Chen, Zhang and Xu 2023, Table 2)",
                "target": f"{known[k]} within 3 %",
                "met": abs(mean / known[k] - 1) <= 0.03,
            }
        made.append(row)
    return made


if __name__ == "__main__":
    main()
