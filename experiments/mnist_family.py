"""An MLP on Fashion-MNIST and LeNet-5 on MNIST, on the official test parts (files under MARGIN_DATA)."""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.record import record
from margin import Training, train
from margin.data.opening import open_data

SETTINGS = {
    "fashion": {
        "model": "feedforward/mlp",
        "data": "fashion-mnist",
        "options": {"hidden": (256, 128), "dropout": 0.1},
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
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.which]
    data = open_data(setting["data"], {"val": 0.05})
    training = setting["training"].over({"seed": arguments.seed})
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        run = train(setting["model"], data, setting["options"], training, out=Path(directory) / "run")
        seconds = time.perf_counter() - start
        metrics, history = run.metrics, run.history
    accuracy, n = metrics["test_accuracy"], len(data.splits["test"])
    from scipy.stats import binomtest

    interval = binomtest(round(accuracy * n), n).proportion_ci(0.95, "exact")
    record(
        setting["name"],
        title=f"{setting['model']} on {setting['data']}, official test part, one seed",
        figures=[
            {
                "what": "test accuracy",
                "value": accuracy,
                "unit": "1",
                "interval": [interval.low, interval.high],
                "target": f">= {setting['target']}",
                "published": setting["published"],
                "met": accuracy >= setting["target"],
            },
            {
                "what": "epochs",
                "value": history[-1]["epoch"],
                "unit": "epochs",
                "target": "<= 10",
                "met": history[-1]["epoch"] <= 10,
            },
            {"what": "seconds", "value": seconds, "unit": "s"},
        ],
        seed=arguments.seed,
        metrics=metrics,
    )


if __name__ == "__main__":
    main()
