"""Vanishing gradients in tanh networks on MNIST-1D: the measured factor a step beside the bound sigma_1(U).

U begins as an orthogonal matrix times a gain, which is its spectral norm. ``--picture FILE`` draws the
first seed.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin import Training, load
from margin.data.sets.mnist1d import mnist1d
from margin.engine.evaluation import in_double
from margin.nn.preprocessed import features_of
from margin.runs.seed_interval import summary
from margin.runs.training import finish, prepare
from margin.sequence.dynamics.contraction import contractions, simple
from margin.sequence.dynamics.gradient_by_lag import ByLag, by_lag

GAINS = (0.5, 0.9, 1.1, 1.5)
EXAMPLES = 64
TRAINING = Training(
    max_steps=1000,
    batch_size=100,
    lr=2e-3,
    schedule="cosine",
    clip=1.0,
    patience=0,
    evaluate_every=1000,
    threads=1,
)
MODEL = {"hidden": 64, "recurrent_init": "orthogonal"}


@torch.no_grad()
def scale(model: Any, gain: float) -> None:
    """Multiply the recurrent matrix of an Elman network."""
    model.recurrence.layer.weight_hh_l0 *= gain


def seen(model: nn.Module, x: Tensor) -> tuple[ByLag, float]:
    """The gradient by lag on these sequences, and the bound of a step."""
    model = in_double(model)
    ((_, layer),) = simple(model)
    return by_lag(layer, features_of(model, x)), contractions(layer)[0].stretch


def row_of(before: tuple[ByLag, float], after: tuple[ByLag, float]) -> dict[str, float]:
    """The bound, the median factor a step over the longest lag and the largest of any, before and after."""
    row = {}
    for when, (found, bound) in (("before", before), ("after", after)):
        factors = found.norms ** (1 / found.lags.double())
        row[f"bound {when}"] = bound
        row[f"factor a step {when}"] = float(factors[:, -1].median())
        row[f"largest factor {when}"] = float(factors.max())
        row[f"log10 of the norm {when}"] = float(found.norms[:, -1].log10().median())
        row[f"norms above the bound {when}"] = float((factors > bound * (1 + 1e-9)).double().sum())
    return row


def draw(found: dict[float, list[tuple[ByLag, float]]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, when, place in zip(panels, ("before", "after"), (0, 1), strict=True):
        for color, (gain, both) in enumerate(found.items()):
            lags, bound = both[place][0].lags, both[place][1]
            norms = both[place][0].norms.median(0).values
            axes.plot(lags, norms, "o-", markersize=3, color=f"C{color}", label=f"gain {gain:g}")
            axes.plot(lags, bound ** lags.double(), "--", color=f"C{color}", linewidth=0.9)
        axes.set(yscale="log", xlabel="lag (steps)", title=f"{when} training (dashed: the bound)")
    panels[0].set_ylabel("norm of dz_T / dz_(T-lag), median")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def main() -> None:
    torch.set_num_threads(1)  # small matrices: more threads wait for each other
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--picture", default="")
    arguments = parser.parse_args()
    data, figures, everything = mnist1d(val=0.0), [], {}
    drawn: dict[float, list[tuple[ByLag, float]]] = {}
    x = data.splits["test"].take(torch.arange(EXAMPLES), Generator()).inputs[0].double()
    given = {"options": MODEL, "step": {}, "rule": ""}
    with tempfile.TemporaryDirectory() as directory:
        for gain in GAINS:
            rows = []
            for seed in range(arguments.seeds):
                out = Path(directory) / f"{gain}-{seed}"
                job = prepare("sequence/elman", data, given, replace(TRAINING, seed=seed), out)
                scale(job.state.core, gain)
                before = seen(job.state.model, x)
                accuracy = finish(job).metrics["test_accuracy"]
                after = seen(load(out, "last"), x)
                rows.append({"test accuracy": accuracy, **row_of(before, after)})
                drawn.setdefault(gain, [before, after])
                print(gain, seed, rows[-1], flush=True)
            for what, found in summary(rows).items():
                figures.append(
                    {
                        "what": f"gain {gain:g}: {what}",
                        "value": found["mean"],
                        "unit": "1",
                        "interval": [found["low"], found["high"]],
                    }
                )
            everything[f"gain {gain:g}"] = rows
    if arguments.picture:
        draw(drawn, arguments.picture)
    record(
        "sequence/vanishing",
        title="Gradient by lag in tanh networks of 64 units over the 40 steps of MNIST-1D, before and after "
        f"{TRAINING.max_steps} steps of training, {EXAMPLES} test sequences, {arguments.seeds} seeds",
        figures=figures,
        packages=("scipy",),
        runs=everything,
    )


if __name__ == "__main__":
    main()
