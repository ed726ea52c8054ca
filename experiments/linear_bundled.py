"""Each linear model on real data that everyone has, beside scikit-learn on the same split."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.stats import binomtest
from sklearn import decomposition, linear_model

from benchmarks.record import record
from margin import Training, train
from margin.data.examples import Data
from margin.data.open import open_data

EXACT = Training(precision="float64")


def arrays(data: Data, part: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = data.splits[part].inputs[0].flatten(1).double().numpy(), data.splits[part].targets.numpy()
    return data.preprocess.double()(torch.from_numpy(x)).numpy(), y


def beside(what: str, ours: float, theirs: float, unit: str, tolerance: float) -> dict[str, object]:
    gap = float(abs(ours - theirs) / abs(theirs))
    return {
        "what": what,
        "value": ours,
        "unit": unit,
        "published": f"{theirs:.6g} (scikit-learn, same split)",
        "target": f"relative difference <= {tolerance:g}",
        "met": gap <= tolerance,
    }


def regressions(directory: Path) -> list[dict[str, object]]:
    data = open_data("diabetes", {})
    (x, y), (tx, ty) = arrays(data, "train"), arrays(data, "test")

    def error(model: object) -> float:
        return float(np.square(model.fit(x, y).predict(tx) - ty).mean())

    peers = {
        "linear_regression": linear_model.LinearRegression(),
        "ridge": linear_model.Ridge(alpha=0.1 * len(y)),
        "lasso": linear_model.Lasso(alpha=0.1, tol=1e-10, max_iter=100_000),
    }
    figures = []
    for name, peer in peers.items():
        run = train(name, data, training=EXACT, out=directory / name)
        figures.append(beside(f"diabetes, {name}: test MSE", run.metrics["test_mse"], error(peer), "1", 1e-6))
    for name in ("lms", "kernel_ridge"):
        value = train(name, data, training=EXACT, out=directory / name).metrics["test_mse"]
        figures.append({"what": f"diabetes, {name}: test MSE", "value": value, "unit": "1"})
    return figures


def codes(directory: Path) -> list[dict[str, object]]:
    data = open_data("wine", {})
    (x, _), (tx, _) = arrays(data, "train"), arrays(data, "test")

    def loss(name: str, **training: object) -> float:
        options = Training(precision="float64", **training)
        run = train(name, data, {"components": 3}, options, out=directory / f"{name}-{len(training)}")
        return run.metrics["test_loss"]

    pca = decomposition.PCA(3).fit(x)
    tail = float(np.square(tx - pca.inverse_transform(pca.transform(tx))).sum(1).mean())
    factors = decomposition.FactorAnalysis(3, tol=1e-8 * len(x), max_iter=10_000, svd_method="lapack").fit(x)
    exact = loss("ppca")
    return [
        beside("wine, pca: test squared error", loss("pca"), tail, "1", 1e-6),
        beside("wine, linear_autoencoder: test squared error", loss("linear_autoencoder"), tail, "1", 0.02),
        beside("wine, factor_analysis: test nats", loss("factor_analysis"), -factors.score(tx), "nats", 1e-6),
        {"what": "wine, ppca: test negative log-likelihood", "value": exact, "unit": "nats"},
        {
            "what": "wine, ppca_em less ppca: test negative log-likelihood",
            "value": loss("ppca_em", evaluate_every=1000) - exact,
            "unit": "nats",
            "target": "<= 1e-3 in absolute value",
        },
    ]


def classes(directory: Path) -> list[dict[str, object]]:
    figures = []
    for name in ("breast-cancer", "iris", "wine"):
        data = open_data(name, {})
        (x, y), (tx, ty) = arrays(data, "train"), arrays(data, "test")
        ours = train("softmax_regression", data, training=EXACT, out=directory / f"s-{name}").metrics
        share = 1e-3 * len(y) / (2 if len(np.unique(y)) == 2 else 1)
        peer = linear_model.LogisticRegression(C=1 / share, tol=1e-5, max_iter=10_000).fit(x, y)
        right = round(ours["test_accuracy"] * len(ty))
        interval = binomtest(right, len(ty)).proportion_ci(0.95, "exact")
        figures.append(
            {
                "what": f"{name}, softmax_regression: test accuracy",
                "value": ours["test_accuracy"],
                "unit": "1",
                "interval": [interval.low, interval.high],
                "published": f"{peer.score(tx, ty):.4f} (scikit-learn, same penalty and split)",
                "target": "the same",
                "met": bool(abs(peer.score(tx, ty) - ours["test_accuracy"]) < 1e-9),
            }
        )
    return figures


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        figures = [*regressions(Path(directory)), *codes(Path(directory)), *classes(Path(directory))]
    for figure in figures:
        if figure["what"].startswith("wine, ppca_em"):
            figure["met"] = abs(figure["value"]) <= 1e-3
    record(
        "classic/linear_bundled",
        title="Linear models on scikit-learn's bundled data, one split, seed 0",
        figures=figures,
        packages=("scikit-learn",),
    )


if __name__ == "__main__":
    main()
