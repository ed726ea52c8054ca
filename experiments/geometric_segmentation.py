"""PointNet's segmentation of generated solids, box, cylinder and sphere (Qi et al. 2017, Section 5.1).

The clouds are generated, not ShapeNet's parts, so no published figure is a target. As the shapes there, they
stand in a frame of their own: the solids upright, side by side in one order, of any size. Mean intersection
over union is as there: of each cloud the mean over its classes, then over clouds; one class for all gets 1/9.
To keep to minutes of one core the maximum is over 256 features, not 1024, and clouds have 128 points.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import Generator, Tensor

from benchmarks.record import record
from margin import Training, load, train
from margin.data.sets.synthetic_geometry import solids
from margin.runs.seed_interval import summary

EPOCHS, LR = 12, 2e-3


def mean_iou(predicted: Tensor, labels: Tensor, classes: int) -> float:
    """Intersection over union of each class in each cloud; a class in neither counts 1."""
    ious = []
    for k in range(classes):
        own, said = labels == k, predicted == k
        union = (own | said).sum(1)
        ious.append(torch.where(union > 0, (own & said).sum(1) / union.clamp(min=1), 1.0))
    return float(torch.stack(ious).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    rows, start = [], time.process_time()
    for seed in range(arguments.seeds):
        rows.append(trained(seed))
        print(seed, rows[-1], flush=True)
        if seed:
            written(rows, round(time.process_time() - start))


def trained(seed: int) -> dict[str, float]:
    """Accuracy and mean intersection over union on the test part; data and weights by the seed."""
    data = solids(examples=2700, points=128, pose="aligned", test=0.1, val=0.0, seed=seed)
    how = Training(
        seed=seed,
        epochs=EPOCHS,
        batch_size=32,
        lr=LR,
        schedule="cosine",
        patience=0,
        threads=1,
        evaluate_every=10**6,
    )
    options = {"features": 256}
    with tempfile.TemporaryDirectory() as directory:
        run = train("geometric/pointnet_segmentation", data, options, how, out=Path(directory) / "run")
        net = load(run, "last").eval()
    found = {}
    for name, part in (("training", data.splits["train"]), ("test", data.splits["test"])):
        batch = part.take(torch.arange(min(len(part), 270)), Generator())
        with torch.no_grad():
            predicted = net(*batch.inputs).argmax(-1)
        found[f"accuracy of a point, {name}"] = float((predicted == batch.targets).double().mean())
        found[f"mean intersection over union, {name}"] = mean_iou(predicted, batch.targets, 3)
    return found


def written(rows: list[dict[str, float]], seconds: int) -> None:
    """Write what is known so far."""
    record(
        "geometric/segmentation",
        title="PointNet's segmentation of aligned solids (box, cylinder, sphere) in clouds of 128 points: "
        f"2,430 for training, 270 for testing, {EPOCHS} epochs, {len(rows)} seeds; chance is 1/3 and 1/9",
        figures=[
            {"what": name, "value": found["mean"], "unit": "1", "interval": [found["low"], found["high"]]}
            for name, found in summary(rows).items()
        ],
        metrics=rows,
        training={"batch_size": 32, "lr": LR, "schedule": "cosine", "features": 256},
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
