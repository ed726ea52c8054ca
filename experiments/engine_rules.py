"""Optimizers and rules on the digits: test accuracy of one network over 5 seeds, paired with AdamW."""

import math
import statistics
import tempfile
from pathlib import Path

from scipy.stats import t as student

from benchmarks.record import record
from margin import train
from margin.core.options import Training
from margin.data.open import open_data

SEEDS = range(5)
EPOCHS = 10
CONTESTANTS = {
    "AdamW": ({}, "", {}),
    "Lion, lr 3e-4": ({"optimizer": "Lion", "lr": 3e-4}, "", {}),
    "SignDescent, momentum 0.9, lr 3e-4": (
        {"optimizer": "SignDescent", "lr": 3e-4, "optimizer_options": {"momentum": 0.9}},
        "",
        {},
    ),
    "HeavyBall, lr 0.03": ({"optimizer": "HeavyBall", "lr": 0.03}, "", {}),
    "Nesterov, lr 0.03": ({"optimizer": "Nesterov", "lr": 0.03}, "", {}),
    "AdamW, mean of the weights of the last half": ({"average": "mean", "average_start": 170}, "", {}),
    "sam, rho 0.05": ({}, "sam", {"rho": 0.05}),
    "sam, rho 0.2": ({}, "sam", {"rho": 0.2}),
    "entropy_sgd, lr 0.02": ({"lr": 0.02}, "entropy_sgd", {}),
    "continuation, sigma 0.1": ({}, "continuation", {"sigma": 0.1}),
    "gradient_flow, time 0.1 a step": ({}, "gradient_flow", {"time": 0.1}),
    "newton, conjugate gradients, batches of 256": (
        {"batch_size": 256},
        "newton",
        {"solver": "conjugate_gradients"},
    ),
}


def accuracy(name: str, seed: int, directory: Path) -> float:
    changed, rule, step = CONTESTANTS[name]
    training = Training(**{"seed": seed, "epochs": EPOCHS, "evaluate_every": 10_000, **changed})
    out = directory / f"{list(CONTESTANTS).index(name)}-{seed}"
    run = train("mlp", open_data("digits", {}), rule=rule, step=step, training=training, out=out)
    return run.metrics["test_accuracy"]


def mean_of(values: list[float]) -> tuple[float, list[float]]:
    mean = statistics.fmean(values)
    half = float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, [mean - half, mean + half]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        found = {n: [accuracy(n, seed, Path(directory)) for seed in SEEDS] for n in CONTESTANTS}
    figures: list[dict[str, object]] = []
    for name, values in found.items():
        value, interval = mean_of(values)
        figures.append({"what": f"{name}: test accuracy", "value": value, "unit": "1", "interval": interval})
    for name, values in list(found.items())[1:]:
        value, interval = mean_of([a - b for a, b in zip(values, found["AdamW"], strict=True)])
        what = f"{name}: test accuracy less AdamW's, paired by seed"
        figures.append({"what": what, "value": value, "unit": "1", "interval": interval})
    record(
        "engine/rules",
        title=f"Optimizers and rules on digits, MLP, {EPOCHS} epochs, 5 seeds, no rate tuned",
        figures=figures,
        accuracies=found,
        packages=("scikit-learn",),
    )


if __name__ == "__main__":
    main()
