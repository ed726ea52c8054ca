"""An MLP on Fashion-MNIST and LeNet-5 on MNIST, on the official test parts (files under MARGIN_DATA)."""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.record import record
from margin import Training, train
from margin.data.open import open_data
from margin.runs.seed_interval import summary

SETTINGS = {
    "fashion": {
        "model": "feedforward/mlp",
        "data": "fashion-mnist",
        "options": {"hidden": (256, 128, 100), "dropout": 0.1},
        "training": Training(epochs=10, batch_size=128, lr=1e-3, schedule="cosine", patience=0),
        "target": 0.88,
        "published": "0.8833 (MLP 256-128-100; Xiao, Rasul and Vollgraf 2017, the repository)",
        "name": "feedforward/mlp_fashion_mnist",
    },
    "mnist": {
        "model": "vision/lenet5",
        "data": "mnist",
        "options": {},
        "training": Training(epochs=8, batch_size=64, lr=2e-3, schedule="cosine"),
        "target": 0.99,
        "published": "0.9905 (without distortions; LeCun, Bottou, Bengio and Haffner 1998, III.C)",
        "name": "vision/lenet5_mnist",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=SETTINGS)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.which]
    data = open_data(setting["data"], {"val": 0.05})
    metrics, seconds, epochs = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(arguments.seeds):
            start = time.perf_counter()
            training = setting["training"].over({"seed": seed})
            out = Path(directory) / f"seed-{seed}"
            run = train(setting["model"], data, setting["options"], training, out=out)
            seconds.append(time.perf_counter() - start)
            metrics.append(run.metrics)
            epochs.append(run.history[-1]["epoch"])
    found = summary(metrics)["test_accuracy"]
    record(
        setting["name"],
        title=f"{setting['model']} on {setting['data']}, official test part, mean of {arguments.seeds} seeds",
        figures=[
            {
                "what": "test accuracy",
                "value": found["mean"],
                "unit": "1",
                "interval": [found["low"], found["high"]],
                "target": f">= {setting['target']}",
                "published": setting["published"],
                "met": found["mean"] >= setting["target"],
            },
            {
                "what": "epochs",
                "value": max(epochs),
                "unit": "epochs",
                "target": "<= 10",
                "met": max(epochs) <= 10,
            },
            {"what": "seconds a seed", "value": max(seconds), "unit": "s"},
        ],
        seeds=list(range(arguments.seeds)),
        metrics=metrics,
    )


if __name__ == "__main__":
    main()
