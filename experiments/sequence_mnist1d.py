"""Recurrent networks on MNIST-1D, one number a step (Greydanus and Kobak 2024): GRU, LSTM, minGRU, LRU.

The learning rate and the number of steps were chosen for the GRU with 400 of the training examples held out,
and are the others' too; here each learns from all 4,000, and the weights of the last step are judged.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.record import record
from margin import Training, train
from margin.data.sets.mnist1d import mnist1d
from margin.runs.seed_interval import summary

TRAINING = Training(
    max_steps=1500, batch_size=100, lr=5e-3, schedule="cosine", clip=1.0, patience=0, evaluate_every=1500
)
PUBLISHED = 0.91
MODELS = {
    "GRU": ("sequence/gru", {"hidden": 64}),
    "LSTM": ("sequence/lstm", {"hidden": 64}),
    "minGRU": ("sequence/mingru", {"layers": 3}),  # one layer alone is linear in what it remembers
    "LRU": ("sequence/lru", {}),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    data, figures, everything = mnist1d(val=0.0), [], {}
    with tempfile.TemporaryDirectory() as directory:
        for name, (model, options) in MODELS.items():
            metrics, start = [], time.process_time()
            for seed in range(arguments.seeds):
                out = Path(directory) / f"{name}-{seed}"
                run = train(model, data, options, replace(TRAINING, seed=seed, threads=1), out=out)
                metrics.append(run.metrics)
                print(name, seed, run.metrics["test_accuracy"], flush=True)
            found = summary(metrics)["test_accuracy"]
            everything[name] = {"runs": metrics, "seconds": round(time.process_time() - start)}
            published = {
                "target": f">= {PUBLISHED}",
                "published": f"{PUBLISHED} (Greydanus and Kobak 2024)",
                "met": found["mean"] >= PUBLISHED,
            }
            figures.append(
                {
                    "what": f"{name}: test accuracy",
                    "value": found["mean"],
                    "unit": "1",
                    "interval": [found["low"], found["high"]],
                    **(published if name == "GRU" else {}),
                }
            )
            print(figures[-1], flush=True)
    record(
        "sequence/mnist1d",
        title=f"MNIST-1D, a number at a time: 4,000 training, 1,000 test examples, {arguments.seeds} seeds",
        figures=figures,
        packages=("scipy",),
        metrics=everything,
    )


if __name__ == "__main__":
    main()
