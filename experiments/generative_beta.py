"""Rate and distortion of beta-VAEs on scikit-learn's digits (Alemi et al. 2018, Section 3).

Does a larger beta buy a smaller rate for more distortion? Five betas, each from the same seeds; the bits of
the held-out digits are drawn once.
"""

import argparse
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Generator

from benchmarks.record import record
from margin import Training, load, train
from margin.data.open import open_data
from margin.generative.autoencoder.distributions import divergence
from margin.generative.autoencoder.vae_bounds import elbo
from margin.nn.preprocessed import core_of, features_of
from margin.runs.seed_interval import summary

BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)
OPTIONS = {"code": 8, "hidden": (128,), "decoder": "bernoulli"}


def judged(model: torch.nn.Module, x: torch.Tensor) -> dict[str, float]:
    """Mean rate and distortion of grey digits, in nats."""
    core, grey = core_of(model), features_of(model, x)
    with torch.no_grad():
        bits = core.likelihood.observed(grey, Generator().manual_seed(0))
        rate = divergence(*core.posterior(bits))
        bound = elbo(core, bits, 20, Generator().manual_seed(1))
    return {"rate": float(rate.mean()), "distortion": float((-bound - rate).mean())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    data = open_data("digits", {})
    training = Training(epochs=arguments.epochs, batch_size=64, lr=2e-3, scale="unit", threads=1, patience=0)
    found: dict[float, list[dict[str, float]]] = {beta: [] for beta in BETAS}
    with tempfile.TemporaryDirectory() as directory:
        for beta in BETAS:
            for seed in range(arguments.seeds):
                out = Path(directory) / f"{beta}-{seed}"
                run = train(
                    "generative/vae", data, {**OPTIONS, "beta": beta}, replace(training, seed=seed), out=out
                )
                x = data.splits["test"].inputs[0].float()
                found[beta].append(judged(load(run, "last").eval(), x))
            print(beta, found[beta], flush=True)
    figures: list[dict[str, object]] = []
    for what, sign in (("rate", -1), ("distortion", 1)):
        for before, after in pairwise(BETAS):
            pairs = zip(found[before], found[after], strict=True)
            change = summary([{"change": b[what] - a[what]} for a, b in pairs])["change"]
            figures.append(
                {
                    "what": f"change of the {what} from beta = {before:g} to {after:g}",
                    "value": change["mean"],
                    "unit": "nats",
                    "interval": [change["low"], change["high"]],
                    "target": "< 0" if sign < 0 else "> 0",
                    "met": sign * change["mean"] > 0
                    and sign * change["low"] > 0
                    and sign * change["high"] > 0,
                }
            )
    record(
        "generative/beta",
        title=f"Rate and distortion of a VAE of 8 codes on held-out digits, {arguments.seeds} paired seeds",
        figures=figures,
        packages=("scikit-learn",),
        seeds=list(range(arguments.seeds)),
        found={f"{beta:g}": rows for beta, rows in found.items()},
        options={name: list(v) if isinstance(v, tuple) else v for name, v in OPTIONS.items()},
        epochs=arguments.epochs,
    )


if __name__ == "__main__":
    main()
