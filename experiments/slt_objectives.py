"""What a law over weights should descend on: the bounds of the rule beside each other on MNIST.

A network of one hidden layer on the first rows of the training part, with a prior that half of them choose,
and with the prior at the initial weights, where the law begins and from which it has to go far. It descends
on the quadratic bound (which the linear one at its best slope is, so that it is left out), McAllester's, or
Catoni's exponential one at its best slope. The certificate of each is the same function of its law, the
inverse of the divergence; with each seed all have the same prior and the same rows, so that differences are
paired. Each training is a run under --out: started again, the script goes on with the interrupted one.
"""

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from experiments.slt_random_labels import few, trained
from margin import Training
from margin.auditing.subject.trained import subject_of_run
from margin.data.open import open_data
from margin.runs.seed_interval import summary
from margin.theory.bounds.certificate import held_out_risk

BOUNDS = ("quadratic", "classic", "catoni")
BASE = "quadratic"
"""Of which the others differ by so much: the rule's default."""

PRIORS: dict[str, dict[str, float]] = {
    "learned prior": {"prior_share": 0.5},
    "prior at initialization": {
        "prior_share": 0.0, "prior_time": 0.0, "prior_std": 0.1, "posterior_lr": 0.03, "p_min": 0.05,
    },
}  # fmt: skip
"""Options of the rule; those of the second are the best of eight that were tried on another seed."""

NAMES = {
    "certificate": "certificate of the share of errors, delta .05",
    "error": "test error of drawn networks",
    "mean": "test error of the mean",
    "kl": "divergence from the prior",
}

Found = dict[str, list[dict[str, float]]]


def measured(bound: str, prior: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    data = few(open_data("mnist", {"val": 0.0}), arguments.rows)
    training = Training(
        epochs=arguments.epochs,
        batch_size=100,
        lr=1e-3,
        scale="unit",
        evaluate_every=500,
        threads=1,
        seed=seed,
    )
    rule: dict[str, Any] = {"bound": bound, "draws": arguments.draws, **PRIORS[prior]}
    place = arguments.out / f"{bound}-{PRIORS[prior]['prior_share']}-{seed}"
    run = trained(data, place, {"hidden": (arguments.width,)}, training, **rule)
    return {
        "certificate": run.metrics["certificate"],
        "error": float(held_out_risk(subject_of_run(run, data)).value),
        "mean": 1 - run.metrics["test_accuracy"],
        "kl": run.metrics["certificate_kl"],
    }


def figures_of(prior: str, found: Found) -> list[dict[str, object]]:
    """The mean of each over the seeds, its paired difference from the default's, with Student's intervals."""
    figures: list[dict[str, object]] = []
    for bound, rows in found.items():
        for key, mean in summary(rows).items():
            figures.append(row(f"{prior}, {bound}: {NAMES[key]}", mean, "nat" if key == "kl" else "1"))
    for bound in [name for name in found if name != BASE]:
        pairs = zip(found[bound], found[BASE], strict=True)
        gaps = summary(
            [{key: own[key] - base[key] for key in ("certificate", "error")} for own, base in pairs]
        )
        for key, gap in gaps.items():
            figures.append(row(f"{prior}, {bound} less {BASE}, paired by seed: {NAMES[key]}", gap))
    return figures


def row(what: str, found: dict[str, float], unit: str = "1") -> dict[str, object]:
    return {"what": what, "value": found["mean"], "unit": unit, "interval": [found["low"], found["high"]]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/slt-objectives"))
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--draws", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Found] = {}
    figures: list[dict[str, object]] = []
    for prior in PRIORS:
        found[prior] = {
            bound: [measured(bound, prior, seed, arguments) for seed in range(arguments.seeds)]
            for bound in BOUNDS
        }
        figures += figures_of(prior, found[prior])
        record(
            "theory/pac_bayes_objectives",
            title=f"The bound that a law over the weights of 784-{arguments.width}-10 descends on, the first "
            f"{arguments.rows:,} rows of MNIST, {arguments.seeds} seeds",
            figures=figures,
            rows=found,
            epochs=arguments.epochs,
            draws=arguments.draws,
            seeds=list(range(arguments.seeds)),
        )


if __name__ == "__main__":
    main()
