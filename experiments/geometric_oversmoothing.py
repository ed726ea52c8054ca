"""Oversmoothing on Cora: the graph's rate, and the accuracy of graph convolutional networks by depth.

The published accuracies are those that Chen et al. (2020, Table 3) report of a network without residual
connections or dropped edges. Width, dropout and training are this library's defaults but for 64 units.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import Generator

from benchmarks.record import record
from margin import Training, train
from margin.core.findings import Subject
from margin.core.tasks import CLASSES
from margin.data.sets.named_graphs import cora
from margin.engine.loop import risk
from margin.engine.runs import load
from margin.geometric.graphs.oversmoothing import energy, rate, smoothing_of
from margin.runs.seed_interval import summary

PUBLISHED = {2: 0.811, 4: 0.804, 8: 0.695, 16: 0.649, 32: 0.603}
SOURCE = "Chen et al. 2020, Table 3 (GCN)"
RATE, COMPONENTS = 0.99638, 78


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    data = cora()
    part = data.splits["test"]
    batch = part.take(torch.arange(len(part)), Generator())
    smoothing = smoothing_of(batch.inputs[1], len(batch.inputs[0]))
    found, components = rate(smoothing), int(smoothing.component.max()) + 1
    figures: list[dict[str, object]] = [
        {
            "what": "largest |eigenvalue| of the coupling matrix other than the components' ones",
            "value": found.value,
            "unit": "1",
            "interval": [found.value - found.error, found.value + found.error],
            "target": str(RATE),
            "met": abs(found.value - RATE) < 5e-6,
        },
        {
            "what": "components",
            "value": components,
            "unit": "1",
            "target": str(COMPONENTS),
            "met": components == COMPONENTS,
        },
    ]
    raw: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        for depth, published in PUBLISHED.items():
            metrics, shares, start = [], [], time.process_time()
            for seed in range(arguments.seeds):
                training = Training(seed=seed, threads=1, evaluate_every=4)
                options = {"hidden": 64, "layers": depth}
                run = train("geometric/gcn", data, options, training, out=Path(directory) / f"{depth}-{seed}")
                metrics.append(run.metrics)
                subject = Subject(
                    model=load(run), test=[batch], task=CLASSES, objective=risk(CLASSES), independent=False
                )
                shares.append(float(energy(subject).curves["energy in parts of the square"][-1]))
                print(depth, seed, run.metrics["test_accuracy"], shares[-1], flush=True)
            accuracy = summary(metrics)["test_accuracy"]
            raw[str(depth)] = {
                "runs": metrics,
                "energy": shares,
                "seconds": round(time.process_time() - start),
            }
            figures.append(
                {
                    "what": f"{depth} layers: test accuracy",
                    "value": accuracy["mean"],
                    "unit": "1",
                    "interval": [accuracy["low"], accuracy["high"]],
                    "target": str(published),
                    "published": f"{published} ({SOURCE})",
                }
            )
            figures.append(
                {
                    "what": f"{depth} layers: Dirichlet energy of the logits in parts of their square",
                    "value": sorted(shares)[len(shares) // 2],
                    "unit": "1",
                    "interval": [min(shares), max(shares)],
                }
            )
            record(
                "geometric/oversmoothing",
                title=f"Cora, standard split, {arguments.seeds} seeds: graph convolutions by depth",
                figures=figures,
                seeds=arguments.seeds,
                raw=raw,
            )


if __name__ == "__main__":
    main()
