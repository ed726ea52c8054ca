"""Spectral filters on Cora and Citeseer, standard split (Kipf and Welling 2017, Table 3).

Two layers of 16 channels, Chebyshev order 2, dropout 0.5, Adam at 0.01 for 200 epochs; the weights of the
epoch with the least validation loss are judged. Weight decay 5e-4 is on all matrices, theirs on the first
layer's.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.record import record
from margin import Training, train
from margin.data.sets.named_graphs import citeseer, cora
from margin.runs.seed_interval import summary

TRAINING = Training(
    epochs=200,
    batch_size="all",
    lr=1e-2,
    patience=0,
    optimizer="Adam",
    optimizer_options={"weight_decay": 5e-4},
    checkpoint_every=200,
    threads=1,
)
CASES = (
    ("Cora, ChebNet of order 2", cora, "geometric/chebnet", {}, 0.812, 20),
    ("Cora, ChebNet of order 3", cora, "geometric/chebnet", {"order": 3}, 0.795, 20),
    ("Cora, polynomials of degree 2", cora, "geometric/poly_filter", {}, None, 10),
    ("Citeseer, ChebNet of order 2", citeseer, "geometric/chebnet", {}, 0.696, 20),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=0)
    arguments = parser.parse_args()
    figures, everything = [], {}
    for name, source, model, options, published, seeds in CASES:
        data, metrics, start = source(), [], time.process_time()
        for seed in range(arguments.seeds or seeds):
            with tempfile.TemporaryDirectory() as directory:
                out = Path(directory) / "run"
                metrics.append(train(model, data, options, replace(TRAINING, seed=seed), out=out).metrics)
        found = summary(metrics)["test_accuracy"]
        figures.append(
            {
                "what": f"{name}: test accuracy",
                "value": found["mean"],
                "unit": "1",
                "interval": [found["low"], found["high"]],
            }
        )
        if published is not None:
            figures[-1] |= {
                "target": f">= {published}",
                "published": f"{published} (Kipf and Welling 2017, Table 3)",
                "met": found["mean"] >= published,
            }
        everything[name] = {"runs": metrics, "seconds": round(time.process_time() - start)}
        record(
            "geometric/chebnet",
            title="Spectral filters on citation graphs, 20 labels a class, standard split, means over seeds",
            figures=figures,
            metrics=everything,
        )


if __name__ == "__main__":
    main()
