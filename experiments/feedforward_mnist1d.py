"""An MLP and softmax regression on MNIST-1D, made here by its published recipe (Greydanus and Kobak 2024).

Ten templates of twelve points; each example is padded, stretched, scaled, shifted around, filled with
correlated noise where it is silent, tilted, and sampled at 40 points. Generator, seed 42 and the order of the
draws are the recipe's: these are, to the bit, the examples that the authors' package mnist1d makes.

The MLP's learning rate was chosen with 400 of the training examples held out; here it learns from all 4,000,
and the weights of the last step are judged.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Arrays, Data
from margin.engine.seeds import summary

TEMPLATES = (
    (5, 6, 6.5, 6.75, 7, 7, 7, 7, 6.75, 6.5, 6, 5),
    (5, 3, 3, 3.4, 3.8, 4.2, 4.6, 5, 5.4, 5.8, 5, 5),
    (5, 6, 6.5, 6.5, 6, 5.25, 4.75, 4, 3.5, 3.5, 4, 5),
    (5, 6, 6.5, 6.5, 6, 5, 5, 6, 6.5, 6.5, 6, 5),
    (5, 4.4, 3.8, 3.2, 2.6, 2.6, 5, 5, 5, 5, 5, 5),
    (5, 3, 3, 3, 3, 5, 6, 6.5, 6.5, 6, 4.5, 5),
    (5, 4, 3.5, 3.25, 3, 3, 3, 3, 3.25, 3.5, 4, 5),
    (5, 7, 7, 6.6, 6.2, 5.8, 5.4, 5, 4.6, 4.2, 5, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 4, 3.5, 3.5, 4, 5),
    (5, 4, 3.5, 3.5, 4, 5, 5, 5, 5, 4.7, 4.3, 5),
)
PER_CLASS, TRAIN, LENGTH, POINTS = 500, 4000, 72, 40
PADDING, SCALE, SHIFT, CORRELATED, WHITE, TILT = (36, 60), 0.4, 48, 0.25, 0.02, 0.75


def resampled(x: np.ndarray, points: int) -> np.ndarray:
    return np.interp(np.linspace(0, 1, points), np.linspace(0, 1, len(x)), x)


def example(template: np.ndarray, draw: np.random.RandomState) -> np.ndarray:
    silence = PADDING[0] + int(draw.rand() * (PADDING[1] - PADDING[0] + 1))
    x = resampled(np.concatenate((template + 1e-8, np.zeros(silence))), LENGTH)
    x = np.roll(x * (1 + SCALE * (draw.rand() - 0.5)), draw.choice(SHIFT))
    noise = gaussian_filter(CORRELATED * draw.randn(LENGTH), 2)
    x = np.where(x != 0, x, noise) + WHITE * draw.randn(LENGTH)
    x = x - TILT * (draw.rand() - 0.5) * np.linspace(-0.5, 0.5, LENGTH)
    return resampled(x, POINTS)


def mnist1d(seed: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """All examples, shuffled and standardized as a whole; the first 4,000 are for training."""
    draw = np.random.RandomState(seed)
    templates = np.array(TEMPLATES)
    templates -= templates.mean(1, keepdims=True)
    templates /= templates.std(1, keepdims=True)
    templates = (templates - templates[:, :1]) / 6
    x = np.stack([example(template, draw) for template in templates for _ in range(PER_CLASS)])
    order = draw.permutation(len(x))
    x, y = x[order], np.repeat(np.arange(10), PER_CLASS)[order]
    return (x - x.mean()) / x.std(), y


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
