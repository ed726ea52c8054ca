"""Eigenvalues of linear recurrences before and after training on MNIST-1D: diagonal (LRU) beside dense.

Both have the same blocks around them and take the same steps. ``--picture FILE`` draws the first seed.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.record import record
from margin import Training, load, train
from margin.data.sets.mnist1d import mnist1d
from margin.runs.seed_interval import summary
from margin.sequence.dynamics.transitions import transitions

TRAINING = Training(
    max_steps=600,
    batch_size=100,
    lr=5e-3,
    schedule="cosine",
    clip=1.0,
    patience=0,
    evaluate_every=600,
    threads=1,
)
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "LRU": ("sequence/lru", {"width": 32, "states": 32, "r_min": 0.0, "r_max": 0.99}),
    "dense linear system": ("sequence/linear_system", {"width": 32, "states": 32, "gain": 0.95}),
}
READ = ("mean modulus before", "mean modulus after", "largest modulus before", "largest modulus after")


def spectra(run: Path) -> list[Tensor]:
    """The eigenvalues of all layers, when training began and at its last step."""
    return [
        torch.cat([t.eigenvalues for t in transitions(load(run, mark))]).cpu() for mark in ("initial", "last")
    ]


def draw(found: dict[str, list[Tensor]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(found), 4.2))
    angle = torch.linspace(0, 6.2832, 200)
    for axes, (name, (before, after)) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        axes.plot(angle.cos(), angle.sin(), color="black", linewidth=0.8)
        axes.plot(before.real, before.imag, "o", markerfacecolor="none", markersize=5, label="before")
        axes.plot(after.real, after.imag, ".", markersize=5, label="after")
        axes.set(title=name, aspect="equal", xlabel="real part", ylabel="imaginary part")
        axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", default="")
    arguments = parser.parse_args()
    data, figures, drawn, everything = mnist1d(val=0.0), [], {}, {}
    with tempfile.TemporaryDirectory() as directory:
        for name, (model, options) in MODELS.items():
            rows = []
            for seed in range(arguments.seeds):
                out = Path(directory) / f"{model.rpartition('/')[2]}-{seed}"
                run = train(model, data, options, replace(TRAINING, seed=seed), out=out)
                before, after = (values.abs() for values in spectra(out))
                moduli = [float(x) for x in (before.mean(), after.mean(), before.max(), after.max())]
                rows.append(
                    {"test accuracy": run.metrics["test_accuracy"], **dict(zip(READ, moduli, strict=True))}
                )
                drawn.setdefault(name, spectra(out))
                print(name, seed, rows[-1], flush=True)
            for what, found in summary(rows).items():
                figures.append(
                    {
                        "what": f"{name}: {what}",
                        "value": found["mean"],
                        "unit": "1",
                        "interval": [found["low"], found["high"]],
                    }
                )
            everything[name] = rows
    if arguments.picture:
        draw(drawn, arguments.picture)
    record(
        "sequence/eigenvalues",
        title=f"Eigenvalues before and after {TRAINING.max_steps} steps on MNIST-1D, two blocks of 32 "
        f"states, {arguments.seeds} seeds",
        figures=figures,
        packages=("scipy",),
        runs=everything,
    )


if __name__ == "__main__":
    main()
