"""Randomized smoothing on MNIST: the small CNN trained and smoothed with noise of .25 and .5 of the range.

The share of 100 test images, drawn at random, that is certified right in a Euclidean ball (CERTIFY with
n0 = 100, n = 10,000, alpha = .001), beside the largest radius that so many draws can certify, and the clean
accuracy of the base model on the whole test part.
"""

import argparse
from pathlib import Path

import torch
from torch import Generator

from benchmarks.record import record
from margin import Training, load, resume, train
from margin.data.open import open_data
from margin.robust.certificates.smoothing import ABSTAINED, ceiling, certify
from margin.theory.prediction.risk import clopper_pearson

SIGMAS, RADII, IMAGES, DRAWS, ALPHA, WHITE = (
    (0.25, 0.5),
    (0.0, 0.25, 0.5, 0.75, 1.0, 1.5),
    100,
    10_000,
    0.001,
    255.0,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/robust_smoothing"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, figures, rows = open_data("mnist", {"val": 0.05}), [], {}
    part = data.splits["test"]
    index = torch.randperm(len(part), generator=Generator().manual_seed(0))[:IMAGES]
    x, y = part.inputs[0][index].float(), part.targets[index]
    for sigma in SIGMAS:
        out = arguments.out / f"sigma{sigma}"
        training = Training(
            epochs=3,
            batch_size=100,
            lr=2e-3,
            optimizer="Adam",
            schedule="cosine",
            seed=0,
            patience=0,
            threads=1,
        )
        if (out / "run.yaml").exists():
            run = resume(out)
        else:
            options = {"rule": "smoothing", "step": {"sigma": sigma * WHITE}, "task": "classes"}
            run = train("experiments.robust_mnist:small_cnn", data, {}, training, out=out, **options)
        found = certify(
            load(run.path), x, sigma * WHITE, Generator().manual_seed(1), draws=DRAWS, alpha=ALPHA
        )
        radius = torch.where(found.classes == y, found.radius / WHITE, -1.0)
        for least in RADII:
            right = int((radius > least).sum())
            figures.append(
                {
                    "what": f"sigma {sigma}: certified right at l2 radius {least}",
                    "value": right / IMAGES,
                    "unit": "share",
                    "interval": [round(end, 4) for end in clopper_pearson(right, IMAGES)],
                }
            )
        figures.append(
            {
                "what": f"sigma {sigma}: largest certified radius",
                "value": round(float(radius.max()), 4),
                "unit": "range of a pixel",
                "published": f"at most {ceiling(DRAWS, sigma, ALPHA):.4f} of {DRAWS:,} draws (3.1986 sigma; "
                "Cohen, Rosenfeld and Kolter 2019, Section 3.2.2)",
            }
        )
        abstained = int((found.classes == ABSTAINED).sum())
        rows[str(sigma)] = {"abstained": abstained, "metrics": run.metrics}
    record(
        "robust/smoothing_mnist",
        title="Randomized smoothing of a small CNN on MNIST, 3 epochs with Gaussian noise, 100 test images",
        figures=figures,
        rows=rows,
    )


if __name__ == "__main__":
    main()
