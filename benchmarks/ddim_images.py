"""DDIM's 50 steps beside DDPM's 1,000 on 16 x 16 digits: what either costs, how far from digits it is.

One unconditional image_diffusion draws 5,000 digits either way; each sample is put to the classifier
two-sample test against official test digits (LeNet-5's last hidden layer, nearest neighbors; best is 1/2).
Times are of 250 digits, interleaved, in medians.

Budget: 45 minutes of two cores. Results are written as they come.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from benchmarks.record import interleaved, ratio, record
from experiments.generative_mnist_diffusion import SIDE, Judge, samples, small_digits
from margin import Training, load, train
from margin.generative.quality.measures import TwoSampleAccuracy, classifier_two_sample


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, value in (
        ("steps", 5000),
        ("count", 5000),
        ("epochs", 4),
        ("threads", 2),
        ("ddpm", 1000),
        ("ddim", 50),
        ("timed", 250),
        ("rounds", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 32], help="of the U-Net's levels")
    return parser.parse_args()


def main() -> None:
    given = options()
    torch.set_num_threads(given.threads)
    data = small_digits()
    with tempfile.TemporaryDirectory() as directory:
        quick = Training(
            threads=given.threads, epochs=given.epochs, batch_size=64, lr=2e-3, schedule="cosine"
        )
        judge = Judge(train("lenet5", data, {}, quick, out=Path(directory) / "lenet5"))
        slow = Training(threads=given.threads, max_steps=given.steps)
        own = {"widths": given.widths}
        run = train("image_diffusion", data, own, slow, out=Path(directory) / "diffusion")
        model = load(run).float()
    real = judge.features(data.splits["test"].inputs[0][: given.count])
    others = judge.features(data.splits["train"].inputs[0][: given.count])
    compare(given, model, real, others, judge)


def compare(given: argparse.Namespace, model: Any, real: Tensor, others: Tensor, judge: Judge) -> None:
    figures: list[dict[str, object]] = []
    told: dict[str, TwoSampleAccuracy] = {}
    times: dict[str, list[float]] = {}
    runs = {
        name: partial(samples, model, sampler=name, steps=getattr(given, name)) for name in ("ddim", "ddpm")
    }

    def put(name: str, rows: Tensor) -> None:
        found = told[name] = classifier_two_sample(real, rows, generator=Generator().manual_seed(0))
        figures.append(
            {
                "what": f"{name}: told apart from as many test digits, accuracy",
                "value": found.accuracy,
                "unit": "1",
                "interval": [found.low, found.high],
            }
        )

    def write() -> None:
        record(
            "generative/ddim_images",
            title=f"DDIM, {given.ddim} steps, beside DDPM, {given.ddpm:,}, on digits of {SIDE} x {SIDE}: "
            f"{given.count:,} samples of either, U-Net of {given.widths} maps, {given.threads} threads",
            figures=figures,
            seconds=times,
            seed=0,
        )

    put("training digits", others)
    for name, run in runs.items():
        put(name.upper(), judge.features(run(given.count)))
        write()
    times |= interleaved(given.rounds, **{name: partial(run, given.timed) for name, run in runs.items()})
    gap = told["DDIM"].accuracy - told["DDPM"].accuracy
    stderr = (told["DDIM"].stderr ** 2 + told["DDPM"].stderr ** 2) ** 0.5
    fast, low, high = ratio(times, "ddim", "ddpm")
    figures.append(
        {
            "what": "two-sample accuracy of DDIM less that of DDPM",
            "value": gap,
            "unit": "1",
            "interval": [gap - 1.96 * stderr, gap + 1.96 * stderr],
        }
    )
    figures.append(
        {
            "what": "seconds of DDIM over those of DDPM",
            "value": fast,
            "unit": "1",
            "interval": [low, high],
            "target": "<= 1/18",
            "met": fast <= 1 / 18,
        }
    )
    write()


if __name__ == "__main__":
    main()
