"""Modes of a ring of 8 and of a grid of 25 Gaussians that GANs cover, by objective, over 5 seeds.

2,500 samples each; a sample is good within 3 standard deviations of the nearest mean, and a mode is covered
that has 20 good samples or more (100 is a mode's share of the grid). Beside them the table of Srivastava et
al. 2017, whose networks, steps and rates are others. ``--picture FILE`` draws the samples of the first seed.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.record import record
from margin import Training, train
from margin.data.sets.mixture_plane import grid, ring
from margin.generative.quality.mode_coverage import mode_coverage
from margin.runs.sampling import sample
from margin.runs.seed_interval import summary

TRAINING = Training(
    max_steps=5000,
    batch_size=128,
    lr=1e-3,
    schedule="linear",
    average=0.99,
    evaluate_every=5000,
    threads=1,
)
SAMPLES, LEAST = 2500, 20
SETS = {"ring": ring(examples=10_000), "grid": grid(examples=20_000)}
MODELS: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
    "non-saturating": ("generative/gan", {}, {"penalty": 0.0}),
    "non-saturating, minibatch discrimination": ("generative/gan", {"minibatch": 16}, {"penalty": 0.0}),
    "non-saturating, slope penalized at the data": ("generative/gan", {}, {"penalty": 0.1}),
    "the same, extragradient": ("generative/gan", {}, {"penalty": 0.1, "method": "extragradient"}),
    "Wasserstein, gradient penalty": ("generative/wgan", {}, {"penalty": 0.1}),
}
PUBLISHED = {
    "ring": {"GAN": 1.0, "unrolled GAN": 7.6, "VEEGAN": 8.0},
    "grid": {"GAN": 3.3, "unrolled GAN": 23.6, "VEEGAN": 24.6},
}
SOURCE = "Srivastava et al. 2017, Table 1"


def run(name: str, set_name: str, seed: int, steps: int, out: Path) -> tuple[dict[str, float], Tensor]:
    """What one training covers, and its samples."""
    model, options, step = MODELS[name]
    data = SETS[set_name]
    trained = train(model, data, options, replace(TRAINING, seed=seed, max_steps=steps), step=step, out=out)
    samples = sample(trained, SAMPLES, seed=seed).values
    truth = data.encoding["truth"]
    found = mode_coverage(samples, torch.tensor(truth["means"]), truth["std"], least=LEAST)
    return {"modes covered": float(found.covered), "good samples": found.good}, samples


def draw(drawn: dict[tuple[str, str], Tensor], file: str) -> None:
    """A panel for each set and objective: the means as crosses, the samples as dots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3 * len(MODELS), 3.2 * len(SETS)))
    for axes, ((set_name, name), samples) in zip(
        figure.subplots(len(SETS), len(MODELS)).flat, drawn.items(), strict=True
    ):
        means = torch.tensor(SETS[set_name].encoding["truth"]["means"])
        axes.plot(*means.T, "+", color="black", markersize=9)
        axes.plot(*samples.T, ".", markersize=1.5)
        reach = 1.3 * float(means.abs().max())
        axes.set(title=f"{set_name}: {name}", aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
        axes.title.set_fontsize(7)
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--picture", default="")
    arguments = parser.parse_args()
    figures: list[dict[str, object]] = []
    drawn: dict[tuple[str, str], Tensor] = {}
    everything: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for set_name in SETS:
            for name in MODELS:
                rows = []
                for seed in range(arguments.seeds):
                    out = Path(directory) / f"{set_name}-{len(everything)}-{seed}"
                    row, samples = run(name, set_name, seed, arguments.steps, out)
                    rows.append(row)
                    drawn.setdefault((set_name, name), samples)
                    print(set_name, name, seed, row, flush=True)
                everything[f"{set_name}: {name}"] = rows
                for what, found in summary(rows).items():
                    figures.append(
                        {
                            "what": f"{set_name}, {name}: {what}",
                            "value": round(found["mean"], 4),
                            "unit": "modes" if what == "modes covered" else "share",
                            "interval": [round(found["low"], 4), round(found["high"], 4)],
                            **({"published": PUBLISHED[set_name]} if what == "modes covered" else {}),
                            "source": SOURCE,
                        }
                    )
    if arguments.picture:
        draw(drawn, arguments.picture)
    record(
        "generative/gan_modes",
        title=f"Modes of a ring (8) and a grid (25) of Gaussians that GANs cover: {arguments.seeds} seeds, "
        f"{arguments.steps} steps of 128 examples, two hidden layers of 128 in either player",
        figures=figures,
        criterion=f"a mode has at least {LEAST} of {SAMPLES} samples within 3 standard deviations",
        runs=everything,
    )


if __name__ == "__main__":
    main()
