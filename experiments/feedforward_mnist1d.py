"""An MLP and softmax regression on MNIST-1D, made by its published recipe (Greydanus and Kobak 2024).

The MLP's learning rate was chosen with 400 of the training examples held out; here it learns from all 4,000,
and the weights of the last step are judged.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Arrays, Data
from margin.data.sets.mnist1d import POINTS, TRAIN
from margin.data.sets.mnist1d import recipe as mnist1d
from margin.runs.seed_interval import summary


def data_of(x: np.ndarray, y: np.ndarray, held_out: int = 0) -> Data:
    inputs, labels = torch.from_numpy(x).float(), torch.from_numpy(y)
    parts = {
        "train": slice(0, TRAIN - held_out),
        "val": slice(TRAIN - held_out, TRAIN),
        "test": slice(TRAIN, None),
    }
    splits = {
        name: Arrays((inputs[part],), labels[part])
        for name, part in parts.items()
        if held_out or name != "val"
    }
    spec = {"in_features": POINTS, "num_classes": 10, "num_examples": len(splits["train"])}
    return Data(name="mnist-1d", splits=splits, spec=spec)


MODELS = {
    # the paper's own: two hidden layers, the second beside a shortcut
    "MLP": (
        "feedforward/mlp",
        {"hidden": (256, 256), "residual": "identity"},
        Training(max_steps=6000, batch_size=100, optimizer="Adam", lr=1e-2, schedule="cosine", patience=0),
        0.68,
    ),
    "softmax regression": ("classic/softmax_regression", {}, Training(), 0.32),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    x, y = mnist1d()
    figures, everything = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for name, (model, options, training, published) in MODELS.items():
            exact = model.startswith("classic/")
            data = data_of(x, y)
            metrics = []
            for seed in range(1 if exact else arguments.seeds):
                out = Path(directory) / f"{name}-{seed}"
                metrics.append(train(model, data, options, replace(training, seed=seed), out=out).metrics)
            found = {"mean": metrics[0]["test_accuracy"]} if exact else summary(metrics)["test_accuracy"]
            figures.append(
                {
                    "what": f"{name}: test accuracy",
                    "value": found["mean"],
                    "unit": "1",
                    **({} if exact else {"interval": [found["low"], found["high"]]}),
                    "target": f">= {published - 0.02:.2f}",
                    "published": f"{published} (Greydanus and Kobak 2024)",
                    "met": found["mean"] >= published - 0.02,
                }
            )
            everything[name] = metrics
    record(
        "feedforward/mnist1d",
        title=f"MNIST-1D, 4,000 training and 1,000 test examples, {arguments.seeds} seeds of the MLP",
        figures=figures,
        packages=("scikit-learn", "scipy"),
        metrics=everything,
    )


if __name__ == "__main__":
    main()
