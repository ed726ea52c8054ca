"""Linear models on scikit-learn's bundled data, beside scikit-learn's own on the same split."""

import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import binomtest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.record import record
from margin import train
from margin.data.examples import Data
from margin.data.open import open_data


def arrays(data: Data, part: str) -> tuple[np.ndarray, np.ndarray]:
    return data.splits[part].inputs[0].double().numpy(), data.splits[part].targets.numpy()


def values(directory: Path) -> list[dict[str, object]]:
    data = open_data("diabetes", {})
    ours = train("linear_regression", data, out=directory / "linear").metrics["test_mse"]
    reference = LinearRegression().fit(*arrays(data, "train"))
    x, y = arrays(data, "test")
    theirs = float(np.square(reference.predict(x) - y).mean())
    gap = abs(ours - theirs) / theirs
    return [
        {"what": "diabetes, least squares: test mean squared error", "value": ours, "unit": "1"},
        {
            "what": "relative difference from scikit-learn's",
            "value": gap,
            "unit": "1",
            "target": "<= 1e-4",
            "met": gap <= 1e-4,
        },
    ]


def classes(directory: Path, name: str) -> dict[str, object]:
    data = open_data(name, {})
    ours = train("logistic_regression", data, out=directory / name).metrics["test_accuracy"]
    x, y = arrays(data, "train")
    scaler = StandardScaler().fit(x)
    reference = LogisticRegression(C=np.inf, max_iter=5000).fit(scaler.transform(x), y)
    x, y = arrays(data, "test")
    interval = binomtest(round(ours * len(y)), len(y)).proportion_ci(0.95, "exact")
    return {
        "what": f"{name}, logistic regression: test accuracy",
        "value": ours,
        "unit": "1",
        "interval": [interval.low, interval.high],
        "published": f"{reference.score(scaler.transform(x), y):.4f} (scikit-learn, unpenalized, same split)",
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        figures = values(Path(directory))
        figures += [classes(Path(directory), name) for name in ("breast-cancer", "iris", "wine")]
    record(
        "classic/bundled",
        title="Linear models on scikit-learn's bundled data, one split, seed 0",
        figures=figures,
        packages=("scikit-learn",),
    )


if __name__ == "__main__":
    main()
