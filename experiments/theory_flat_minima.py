"""Do averaged weights lie in a flatter place than the last ones? Stochastic weight averaging on digits.

Izmailov, Podoprikhin, Garipov, Vetrov and Wilson (2018), Section 3.4: SGD at a constant rate goes about a
wide region near its border; the mean of its weights lies inside, where the loss is flatter and generalizes
better. Here the digits are learned by heart and the loss falls on, so the mean may lag behind instead.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

import margin
from benchmarks.record import record
from margin import Training
from margin.auditing.subject.trained import subject_of_run
from margin.data.sets.bundled import digits
from margin.engine.checkpoints import load_module
from margin.engine.evaluation import evaluate
from margin.theory.curvature.loss_slices import random_directions
from margin.theory.curvature.trained_weights import sharpness

SEEDS, EPOCHS = range(5), 30
PER_EPOCH = 34


def measured(subject: margin.Subject) -> dict[str, float]:
    held_out = evaluate(subject.model, subject.test, subject.task, subject.objective)
    return {
        "largest eigenvalue of the training loss's Hessian": float(
            sharpness(subject, examples=None).value[0]
        ),
        "rise of the training loss along random directions, half the norm away": float(
            random_directions(subject, examples=None).value[1]
        ),
        "test loss": held_out["loss"],
        "test accuracy": held_out["accuracy"],
    }


def main() -> None:
    data = digits()
    last, mean = [], []
    training = Training(
        epochs=EPOCHS,
        batch_size=32,
        optimizer="SGD",
        lr=0.3,
        average="mean",
        average_start=EPOCHS // 2 * PER_EPOCH,
        evaluate_every=10 * PER_EPOCH,
    )
    with tempfile.TemporaryDirectory() as directory:
        for seed in SEEDS:
            out = Path(directory) / str(seed)
            run = margin.train("feedforward/mlp", data, {}, replace(training, seed=seed), out=out)
            subject = replace(subject_of_run(run, data), model=margin.load(run, "last"))
            mean.append(measured(subject))
            plain = margin.load(run, "last")
            load_module(run.checkpoint("last"), "model", plain)
            last.append(measured(replace(subject, model=plain)))
    figures = []
    for what in mean[0]:
        pairs = zip(mean, last, strict=True)
        gain = torch.tensor([a[what] - b[what] for a, b in pairs], dtype=torch.float64)
        half = 2.776 * float(gain.std()) / len(gain) ** 0.5  # Student's t, 4 degrees of freedom, 95 %
        value, before = float(gain.mean()), sum(row[what] for row in last) / len(last)
        figure = {
            "what": f"{what}: of the mean of the weights less that of the last ones ({before:.4g})",
            "value": value,
            "unit": "1",
            "interval": [value - half, value + half],
        }
        if what != "test accuracy":
            figure |= {
                "target": "the paired 95 % interval over 5 seeds lies below 0",
                "published": "below 0 (Izmailov et al. 2018, Section 3.4)",
                "met": value + half < 0,
            }
        figures.append(figure)
    record(
        "theory/flat_minima",
        title=f"The mean of the weights over the last {EPOCHS - EPOCHS // 2} of {EPOCHS} epochs beside the "
        "last weights: an MLP 128 on digits, SGD at rate 0.3",
        figures=figures,
        seeds=list(SEEDS),
        mean=mean,
        last=last,
    )


if __name__ == "__main__":
    main()
