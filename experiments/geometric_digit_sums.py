"""Deep Sets that add MNIST digits, on sets longer than in training (Zaheer et al. 2017, Section 4.1.2).

Every batch of training has new sets of 1 to 10 images, drawn from 55,000 of the training part; judged are
sets of images of the test part. The sum over elements is compared with the mean. The weights of the last step
are judged; nothing is chosen on the test part. The budget is minutes of one core.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin import Training, load, train
from margin.core.types import Batch
from margin.data.examples import Data
from margin.data.formats.arrays.idx import mnist
from margin.data.sets.synthetic_geometry import digit_sums
from margin.runs.seed_interval import summary

SIZES = (5, 10, 20, 30, 40, 50)
MOST, SETS, EPOCHS, TEST = 10, 10_000, 40, 1000


@dataclass(frozen=True, eq=False)
class Drawn:
    """Sets of images that are drawn anew each time they are taken; the target is the sum of the digits."""

    images: Tensor
    digits: Tensor

    def __len__(self) -> int:
        return SETS

    def take(self, index: Tensor, generator: Generator) -> Batch:
        sizes = torch.randint(1, MOST + 1, (len(index),), generator=generator)
        chosen = torch.randint(len(self.images), (len(index), MOST), generator=generator)
        mask = torch.arange(MOST) < sizes[:, None]
        sums = torch.where(mask, self.digits[chosen], 0).sum(1).float()
        return Batch((self.images[chosen], mask), sums)

    def tensors(self) -> list[Tensor]:
        return [self.digits]


def data_of(seed: int) -> Data:
    """Sets drawn from 55,000 images of MNIST's training part, levels in [0, 1]."""
    made = digit_sums(digits="mnist", train_sets=20, test_sets=2, seed=seed)
    part = mnist(val=0.0).splits["train"]
    images, digits = part.inputs[0].flatten(1)[:55_000] / 255, part.targets[:55_000]
    splits = {"train": Drawn(images, digits), "test": made.splits["test"]}
    return replace(made, splits=splits, preprocess=nn.Identity())


@torch.no_grad()
def judged(model: nn.Module, size: int, seed: int) -> dict[str, float]:
    """How often the sum of so many digits, rounded, is right, and the mean absolute error."""
    data = digit_sums(digits="mnist", train_sets=20, test_sets=TEST, test_size=size, seed=1000 + seed)
    batch = data.splits["test"].take(torch.arange(TEST), Generator())
    error = model.eval()(*batch.inputs) - batch.targets
    return {
        f"accuracy at {size}": float((error.round() == 0).double().mean()),
        f"error at {size}": float(error.abs().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3, help="of the sum; the mean has two")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {}
    start = time.process_time()
    for pool, seeds in (("sum", arguments.seeds), ("mean", 2)):
        for seed in range(seeds):
            runs.setdefault(pool, []).append(trained(pool, seed))
            print(pool, seed, runs[pool][-1], flush=True)
        written(runs, round(time.process_time() - start))


def trained(pool: str, seed: int) -> dict[str, float]:
    options = {"hidden": 128, "features": 64, "pool": pool}
    how = Training(
        seed=seed,
        epochs=EPOCHS,
        batch_size=64,
        lr=2e-3,
        schedule="cosine",
        patience=0,
        threads=1,
        evaluate_every=10**6,
    )
    with tempfile.TemporaryDirectory() as directory:
        run = train("geometric/deepsets_regressor", data_of(seed), options, how, out=Path(directory) / "run")
        model = load(run, "last")
    return {name: value for size in SIZES for name, value in judged(model, size, seed).items()}


def written(runs: dict[str, list[dict[str, float]]], seconds: int) -> None:
    """Write what is known so far."""
    figures = []
    for pool, rows in runs.items():
        for name, found in summary(rows).items():
            what, _, size = name.partition(" at ")
            text = {"accuracy": "sums right when rounded", "error": "mean absolute error of the sum"}[what]
            figures.append(
                {
                    "what": f"{pool} over elements, sets of {size} digits: {text} ({len(rows)} seeds)",
                    "value": found["mean"],
                    "unit": "1",
                    "interval": [found["low"], found["high"]],
                }
            )
    record(
        "geometric/digit_sums",
        title=f"Deep Sets on sums of MNIST digits: trained on {SETS * EPOCHS:,} drawn sets of 1 to {MOST} "
        f"images, judged on {TEST:,} sets of each size",
        figures=figures,
        metrics=runs,
        training={"batch_size": 64, "lr": 2e-3, "schedule": "cosine", "hidden": 128, "features": 64},
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
