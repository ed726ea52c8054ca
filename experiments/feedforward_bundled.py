"""Feed-forward models on scikit-learn's bundled data: digits, diabetes, and digits with few labels."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Arrays, Data
from margin.data.open import open_data
from margin.runs.seed_interval import summary

SEEDS = 5
LABELED = 50
DIGITS = {
    "MLP 128": ("mlp", {}),
    "MLP 64-64, shortcuts, batch normalization": (
        "mlp",
        {"hidden": (64, 64), "residual": "projection", "norm": "batch"},
    ),
    "MLP 64-64, normalized weights": ("mlp", {"hidden": (64, 64), "norm": "weight"}),
    "residual MLP, 8 layers of 64": ("residual_mlp", {}),
    "dense MLP, 4 layers of 32": ("dense_mlp", {}),
}


def arrays(data: Data, part: str) -> tuple[np.ndarray, np.ndarray]:
    return data.splits[part].inputs[0].flatten(1).numpy(), data.splits[part].targets.numpy()


def metrics_of(
    model: str, data: Data, options: dict, training: Training, directory: Path, **more: object
) -> list[dict[str, float]]:
    return [
        train(model, data, options, replace(training, seed=seed), out=directory / f"{seed}", **more).metrics
        for seed in range(SEEDS)
    ]


def digits(directory: Path) -> list[dict[str, object]]:
    data = open_data("digits", {})
    x, y = arrays(data, "train")
    test, labels = arrays(data, "test")
    scaler = StandardScaler().fit(x)
    peer = MLPClassifier((128,), max_iter=400, random_state=0).fit(scaler.transform(x), y)
    theirs = peer.score(scaler.transform(test), labels)
    figures = []
    for name, (model, options) in DIGITS.items():
        metrics = metrics_of(model, data, options, Training(epochs=40, patience=0), directory / name)
        found = summary(metrics)["test_accuracy"]
        figures.append(
            {
                "what": f"digits, {name}: test accuracy",
                "value": found["mean"],
                "unit": "1",
                "interval": [found["low"], found["high"]],
                "published": f"{theirs:.4f} (scikit-learn's MLPClassifier of 128 units, same split)",
            }
        )
    return figures


def diabetes(directory: Path) -> dict[str, object]:
    """Targets in standard deviations of the training part, from its mean."""
    data = open_data("diabetes", {})
    mean, std = (getattr(data.splits["train"].targets, name)() for name in ("mean", "std"))
    splits = {n: Arrays(part.inputs, (part.targets - mean) / std) for n, part in data.splits.items()}
    data = replace(data, splits=splits)
    found = summary(metrics_of("sigmoid_net", data, {"units": 8}, Training(epochs=100), directory))[
        "test_mse"
    ]
    test, values = arrays(data, "test")
    theirs = float(((LinearRegression().fit(*arrays(data, "train")).predict(test) - values) ** 2).mean())
    return {
        "what": "diabetes, sigmoid net of 8 units: test mean squared error, in variances of the target",
        "value": found["mean"],
        "unit": "1",
        "interval": [found["low"], found["high"]],
        "published": f"{theirs:.3f} (scikit-learn's LinearRegression, same split)",
    }


def few_labels(directory: Path) -> list[dict[str, object]]:
    """Reconstruction, then 40 epochs of labels, beside 40 and 80 epochs of labels; 50 digits have one.

    Learning rate and corruption were chosen on a validation part of the first two seeds.
    """
    data = open_data("digits", {"val": 0.0})
    part = data.splits["train"]
    arms = {
        "reconstruction first": (80, {"pretraining": 0.5, "corruption": 0.3}),
        "as many steps on labels": (40, {"pretraining": 0.0}),
        "as many steps in all": (80, {"pretraining": 0.0}),
    }
    accuracy: dict[str, list[float]] = {name: [] for name in arms}
    for seed in range(SEEDS):
        order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))
        weight = torch.zeros(len(part))
        weight[order[:LABELED]] = 1.0
        few = replace(data, splits={**data.splits, "train": Arrays(part.inputs, part.targets, weight)})
        for name, (epochs, step) in arms.items():
            training = Training(epochs=epochs, lr=1e-2, seed=seed)
            options, out = {"hidden": (64, 32)}, directory / f"{name}-{seed}"
            run = train("stacked_autoencoder", few, options, training, step=step, out=out)
            accuracy[name].append(run.metrics["test_accuracy"])
    first, *others = accuracy
    figures: list[dict[str, object]] = [
        {
            "what": f"digits, {LABELED} labels, stacked autoencoder 64-32: test accuracy",
            "value": sum(accuracy[first]) / SEEDS,
            "unit": "1",
        }
    ]
    for other in others:
        gains = [a - b for a, b in zip(accuracy[first], accuracy[other], strict=True)]
        mean = sum(gains) / SEEDS
        low, high = stats.t.interval(0.95, SEEDS - 1, loc=mean, scale=stats.sem(gains))
        figures.append(
            {
                "what": f"gain over {other} without it, paired over {SEEDS} seeds",
                "value": mean,
                "unit": "1",
                "interval": [float(low), float(high)],
                "target": "> 0 with 95 % confidence",
                "met": bool(low > 0),
            }
        )
    return figures


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        figures = [*digits(place / "digits"), diabetes(place / "diabetes"), *few_labels(place / "few")]
    record(
        "feedforward/bundled",
        title=f"Feed-forward models on scikit-learn's bundled data, {SEEDS} seeds, one split",
        figures=figures,
        packages=("scikit-learn", "scipy"),
        seeds=list(range(SEEDS)),
    )


if __name__ == "__main__":
    main()
