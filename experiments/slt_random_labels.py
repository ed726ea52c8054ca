"""Randomization tests on digits (Zhang et al. 2017): what a network fits, and what each bound says of it.

One network, 64-256-10, on the given labels, on random ones, and on pixels without their places or of noise;
its training and held-out accuracy, the epochs until it has fitted, the rungs of the ladder of bounds, and the
certificate of a law over its weights. Nothing is held out to choose among weights.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from margin import Run, Training
from margin.auditing.subject.trained import subject_of_run
from margin.runs.training import finish, open_source, prepare
from margin.theory.bounds.ladder import ladder
from margin.theory.prediction.memorization import accuracy

CASES: dict[str, dict[str, Any]] = {
    "given labels": {},
    "random labels": {"labels": "random"},
    "shuffled pixels": {"pixels": "shuffled"},
    "random pixels": {"pixels": "random"},
    "noise": {"pixels": "noise"},
}
FITTED = 0.02
"""Training loss in nats below which the training part is fitted."""


def trained(options: dict[str, Any], rule: str, out: Path, epochs: int) -> Run:
    arguments = {"options": {"hidden": (256,)}, "step": {"draws": 2000} if rule else {}, "rule": rule}
    training = Training(epochs=epochs, batch_size=64, lr=2e-3, evaluate_every=10, threads=1)
    training = training if rule else Training(**{**training.as_json(), "patience": 0})
    data = open_source("digits", {"val": 0.0, **options})
    return finish(prepare("mlp", data, arguments, training, out))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=150)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as directory:
        for number, (name, options) in enumerate(CASES.items()):
            run = trained(options, "", Path(directory) / f"plain-{number}", arguments.epochs)
            subject = subject_of_run(run)
            train, test, _ = accuracy(subject).value.tolist()
            epochs = next((row["epoch"] for row in run.history if row["train_loss"] < FITTED), None)
            found = ladder(subject)
            law = trained(options, "pac_bayes", Path(directory) / f"law-{number}", arguments.epochs)
            published = "fitted to 100 %, of random labels too (Zhang et al. 2017, Figure 1)"
            figures += [
                {"what": f"{name}: training accuracy", "value": train, "unit": "1", "target": ">= .99",
                 "published": published, "met": train >= 0.99},
                {"what": f"{name}: held-out accuracy", "value": test, "unit": "1"},
                {"what": f"{name}: epochs until the training loss is below {FITTED}", "value": epochs,
                 "unit": "epoch"},
                *({"what": f"{name}: {rung}", "value": value, "unit": "1"}
                  for rung, value in zip(found.labels, found.value.tolist(), strict=True)),
                {"what": f"{name}: certificate of a law over the weights",
                 "value": law.metrics["certificate"], "unit": "1"},
            ]  # fmt: skip
    record(
        "theory/random_labels",
        title="Randomization tests on digits: what 64-256-10 fits, and what each bound says of it",
        figures=figures,
        epochs=arguments.epochs,
        seeds=[0],
    )


if __name__ == "__main__":
    main()
