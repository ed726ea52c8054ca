"""Randomization tests on MNIST (Zhang et al. 2017): what a network fits, and what each bound says of it.

One network of two hidden layers on the first rows of the training part: with the given labels, with random
ones, and on pixels without their places or of noise; its training and held-out accuracy, the epochs until it
has fitted beside those of the given labels, the rungs of the ladder of bounds, and the certificate of a law
over its weights. Nothing is held out to choose among weights; what is held out is the official test part.
Each training is a run under --out: started again, the script goes on with the one that was interrupted.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import record
from margin import Run, Training, resume, train
from margin.auditing.subject.trained import subject_of_run
from margin.data.examples import Arrays, Data
from margin.data.open import open_data
from margin.data.transforms.randomization import Randomization, randomized
from margin.theory.bounds.ladder import ladder
from margin.theory.prediction.memorization import accuracy

CASES: dict[str, dict[str, Any]] = {
    "given labels": {},
    "random labels": {"labels": "random"},
    "shuffled pixels": {"pixels": "shuffled"},
    "random pixels": {"pixels": "random"},
    "noise": {"pixels": "noise"},
}
FITTED = 0.1
"""Training loss in nats below which the training part is fitted."""


def few(data: Data, rows: int) -> Data:
    """The data with the first rows of the training part alone."""
    part = data.splits["train"]
    cut = Arrays(tuple(x[:rows] for x in part.inputs), part.targets[:rows], dtype=part.dtype)
    return replace(
        data,
        name=f"{data.name}, {rows:,} rows",
        splits={**data.splits, "train": cut},
        spec={**data.spec, "num_examples": rows},
        origin={},
        fingerprint=f"{data.fingerprint}-{rows}",
    )


def trained(data: Data, path: Path, options: Mapping[str, Any], training: Training, **rule: Any) -> Run:
    """A run of an MLP: gone on with where it has begun."""
    if (path / "run.yaml").is_file():
        return resume(path, data)
    name = "pac_bayes" if rule else ""
    return train("mlp", data, options, rule=name, step=rule, training=training, out=path)


def figures_of(name: str, run: Run, law: Run, data: Data) -> list[dict[str, object]]:
    subject = subject_of_run(run, data)
    fitted, held, _ = accuracy(subject).value.tolist()
    found = ladder(subject)
    epochs = next((row["epoch"] for row in run.history if row["train_loss"] < FITTED), None)
    return [
        {"what": f"{name}: training accuracy", "value": fitted, "unit": "1", "target": ">= .99",
         "published": "1, of random labels too (Zhang et al. 2017, Figure 1)", "met": fitted >= 0.99},
        {"what": f"{name}: accuracy on the test part", "value": held, "unit": "1"},
        {"what": f"{name}: epochs until the training loss is below {FITTED}", "value": epochs,
         "unit": "epoch"},
        *({"what": f"{name}: {rung}", "value": value, "unit": "1"}
          for rung, value in zip(found.labels, found.value.tolist(), strict=True)),
        {"what": f"{name}: certificate of a law over the weights", "value": law.metrics["certificate"],
         "unit": "1"},
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/slt-random-labels"))
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    whole = few(open_data("mnist", {"val": 0.0}), arguments.rows)
    figures: list[dict[str, object]] = []
    training = Training(
        epochs=arguments.epochs,
        batch_size=100,
        lr=1e-3,
        schedule="cosine",
        scale="unit",
        evaluate_every=500,
        threads=1,
    )
    for name in arguments.cases:
        data = randomized(whole, Randomization(**CASES[name]))
        place = arguments.out / name.replace(" ", "-")
        options = {"hidden": (arguments.width, arguments.width)}
        plain = Training(**{**training.as_json(), "patience": 0, "evaluate_every": 40})
        run = trained(data, place / "plain", options, plain)
        law = trained(data, place / "law", options, training, draws=2000)
        figures += figures_of(name, run, law, data)
        record(
            "theory/random_labels",
            title=f"Randomization tests on the first {arguments.rows:,} rows of MNIST: what "
            f"784-{arguments.width}-{arguments.width}-10 fits, and what each bound says of it",
            figures=figures,
            epochs=arguments.epochs,
            seeds=[0],
        )


if __name__ == "__main__":
    main()
