"""Dropout on MNIST without knowledge of the plane: 784-1200-1200-10 on the official test part (MARGIN_DATA).

Pixels are divided by 255, so that a pixel dropped is black. Five percent of the training part are held out
for the learning curve; the weights of the last step are judged, and nothing is chosen on the test part.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.record import record
from margin import Training, load, train
from margin.core.tasks import CLASSES
from margin.data.examples import InOrder
from margin.data.open import open_data
from margin.data.preprocess import Standardize
from margin.engine.evaluation import evaluate
from margin.engine.loop import risk
from margin.runs.seed_interval import summary

OPTIONS = {"hidden": (1200, 1200), "dropout": 0.5, "input_dropout": 0.2}
PUBLISHED = "0.0125 (dropout, ReLU, no max-norm; Srivastava et al. 2014, Table 2)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=25)
    arguments = parser.parse_args()
    data = open_data("mnist", {"val": 0.05})
    data = replace(data, preprocess=Standardize(torch.zeros(1, 1, 1), torch.full((1, 1, 1), 255.0)))
    training = Training(epochs=arguments.epochs, batch_size=128, lr=1e-3, schedule="cosine", patience=0)
    test = InOrder(data.splits["test"], 1000)
    metrics, seconds = [], []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            out = Path(directory) / f"seed-{seed}"
            run = train("feedforward/mlp", data, OPTIONS, replace(training, seed=seed), out=out)
            seconds.append(time.perf_counter() - start)
            last = evaluate(load(run, "last"), test, CLASSES, risk(CLASSES))
            metrics.append({"test_error": 1 - last["accuracy"], "test_loss": last["loss"]})
            print(f"seed {seed}: {metrics[-1]} in {seconds[-1]:.0f} s", flush=True)
    found = summary(metrics)["test_error"]
    record(
        "feedforward/mnist_dropout",
        title=f"784-1200-1200-10 with dropout on MNIST, official test part, {arguments.seeds} seeds",
        figures=[
            {
                "what": "test error",
                "value": found["mean"],
                "unit": "1",
                "interval": [found["low"], found["high"]],
                "target": "<= 0.015",
                "published": PUBLISHED,
                "met": found["mean"] <= 0.015,
            },
            {"what": "seconds a seed", "value": max(seconds), "unit": "s"},
        ],
        seeds=list(range(arguments.seeds)),
        metrics=metrics,
        epochs=arguments.epochs,
        options={name: list(value) if isinstance(value, tuple) else value for name, value in OPTIONS.items()},
    )


if __name__ == "__main__":
    main()
