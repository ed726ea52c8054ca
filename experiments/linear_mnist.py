"""A linear classifier on MNIST beside that of LeCun et al. 1998."""

import tempfile
from pathlib import Path

from scipy.stats import binomtest

from benchmarks.record import record
from margin import Training, train
from margin.data.open import open_data

PUBLISHED = "0.120 (LeCun, Bottou, Bengio and Haffner 1998, Section III-C.1, linear classifier)"


def main() -> None:
    data = open_data("mnist", {})
    with tempfile.TemporaryDirectory() as directory:
        solved = train(
            "softmax_regression",
            data,
            {"penalty": 1e-4, "tolerance": 3e-4},
            Training(evaluate_every=1),
            out=Path(directory) / "softmax",
        )
        error = 1 - solved.metrics["test_accuracy"]
    interval = binomtest(round(error * 10_000), 10_000).proportion_ci(0.95, "exact")
    record(
        "classic/linear_mnist",
        title="Softmax regression on MNIST, penalty 1e-4, one solve on the training part, seed 0",
        figures=[
            {
                "what": "MNIST, softmax regression: test error",
                "value": error,
                "unit": "1",
                "interval": [interval.low, interval.high],
                "published": PUBLISHED,
                "target": "at most the published",
                "met": interval.low <= 0.12,
            }
        ],
        packages=("scikit-learn",),
    )


if __name__ == "__main__":
    main()
