"""DDIM's 50 steps beside DDPM's 1,000 on a mixture of eight Gaussians: what either costs, how far it is.

One diffusion of points is trained on the set ``ring``; 5,000 samples of either sampler are put to the
classifier two-sample test (nearest neighbors; best is 1/2) against as many fresh points of the known law.
Both read the same network. Times are of 5,000 samples, interleaved, in medians; DDIM-1000 tells what of the
difference is the number of steps.

Budget: 6 minutes of one core.
"""

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from benchmarks.record import interleaved, record
from margin import Training, load, train
from margin.data.sets.mixture_plane import ring
from margin.generative.quality.classifier_two_sample import Told, told_apart
from margin.nn.preprocessed import core_of

RUNS = {
    "DDPM, 1,000 steps": {"sampler": "ddpm", "steps": 1000},
    "DDIM, 50 steps": {"sampler": "ddim", "steps": 50},
    "DDIM, 1,000 steps": {"sampler": "ddim", "steps": 1000},
    "DPM-Solver++ (2M), 20 steps": {"sampler": "dpm++", "steps": 20},
}
SLOW, FAST = list(RUNS)[:2]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, value in (("steps", 10_000), ("count", 5000), ("rounds", 3), ("threads", 1), ("std", 0.1)):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


@torch.no_grad()
def samples(model: torch.nn.Module, count: int, seed: int, **more: Any) -> Tensor:
    """Samples in the data's units."""
    core: Any = core_of(model)
    inverse: Any = model.preprocess
    return inverse.inverse(core.sample(count, generator=Generator().manual_seed(seed), **more))


def accuracy(name: str, found: Told) -> dict[str, object]:
    return {
        "what": f"{name}: told apart from as many points of the law, accuracy",
        "value": found.accuracy,
        "unit": "1",
        "interval": [found.low, found.high],
    }


def main() -> None:
    given = options()
    torch.set_num_threads(given.threads)
    data = ring(examples=40_000, std=given.std)
    with tempfile.TemporaryDirectory() as directory:
        training = Training(threads=given.threads, max_steps=given.steps)
        model = load(train("diffusion", data, {}, training, out=Path(directory) / "run")).float()
    fresh = [ring(examples=2 * given.count, std=given.std, seed=seed, test=0.5, val=0.0) for seed in (1, 2)]
    real, others = (part.splits["test"].inputs[0][: given.count].double() for part in fresh)
    judged = {"points of the law themselves": told_apart(real, others, generator=Generator().manual_seed(0))}
    for name, more in RUNS.items():
        x = samples(model, given.count, 3, **more).double()
        judged[name] = told_apart(real, x, generator=Generator().manual_seed(0))
    runs = {name: partial(samples, model, given.count, 4, **more) for name, more in RUNS.items()}
    times = interleaved(given.rounds, **runs)
    ratios = [b / a for a, b in zip(times[SLOW], times[FAST], strict=True)]
    gap = judged[FAST].accuracy - judged[SLOW].accuracy
    stderr = (judged[FAST].stderr ** 2 + judged[SLOW].stderr ** 2) ** 0.5
    fast = statistics.median(ratios)
    record(
        "generative/ddim",
        title=f"DDIM, 50 steps, beside DDPM, 1,000, on eight Gaussians of deviation {given.std:g} on a "
        f"circle of radius 2: {given.count:,} samples of either, {given.threads} threads, "
        f"{given.steps:,} training steps",
        figures=[
            *(accuracy(name, found) for name, found in judged.items()),
            {
                "what": "two-sample accuracy of DDIM-50 less that of DDPM-1000",
                "value": gap,
                "unit": "1",
                "interval": [gap - 1.96 * stderr, gap + 1.96 * stderr],
            },
            {
                "what": "seconds of DDIM-50 over those of DDPM-1000",
                "value": fast,
                "unit": "1",
                "interval": [min(ratios), max(ratios)],
                "target": "<= 1/18",
                "met": fast <= 1 / 18,
            },
        ],
        seconds=times,
        seed=0,
    )


if __name__ == "__main__":
    main()
