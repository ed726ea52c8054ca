"""Winning tickets against random ones of the same sparsity: an MLP 300-100 on digits, a few percent left.

Frankle and Carbin (2019), Figures 3 and 4: a network pruned by magnitude in rounds and rewound to its first
weights trains as well as the whole; at the same sparsity weights chosen at random do not.
"""

import tempfile
from pathlib import Path

import torch

import margin
from benchmarks.record import record
from margin import Training
from margin.core.tasks import CLASSES
from margin.data.examples import InOrder
from margin.data.sets.bundled import digits
from margin.engine.evaluation import evaluate
from margin.engine.loop import risk

SEEDS, ROUNDS, FRACTION, LENGTH = range(5), 8, 0.37, 160
MODEL = {"hidden": [300, 100]}


def accuracies(mask: str, seed: int, directory: Path) -> tuple[float, float]:
    """Test accuracy of the weights at the end, and the share that is left of them."""
    data = digits()
    training = Training(
        seed=seed,
        batch_size=60,
        lr=1.2e-3,
        optimizer="Adam",
        max_steps=(ROUNDS + 1) * LENGTH,
        evaluate_every=LENGTH,
    )
    step = {"rounds": ROUNDS, "fraction": FRACTION, "mask": mask}
    run = margin.train(
        "feedforward/mlp",
        data,
        MODEL,
        training,
        step=step,
        rule="lottery_ticket",
        out=directory / f"{mask}-{seed}",
    )
    found = evaluate(margin.load(run, "last"), InOrder(data.splits["test"], 512), CLASSES, risk(CLASSES))
    return found["accuracy"], run.history[-1]["train_weights_left"]


def whole(seed: int, directory: Path) -> float:
    """Test accuracy of the whole network after as many steps as one round has."""
    data = digits()
    training = Training(seed=seed, batch_size=60, lr=1.2e-3, optimizer="Adam", max_steps=LENGTH)
    run = margin.train("feedforward/mlp", data, MODEL, training, out=directory / f"whole-{seed}")
    found = evaluate(margin.load(run, "last"), InOrder(data.splits["test"], 512), CLASSES, risk(CLASSES))
    return found["accuracy"]


def row(what: str, values: list[float], **more: object) -> dict[str, object]:
    numbers = torch.tensor(values, dtype=torch.float64)
    half = 2.776 * float(numbers.std()) / len(values) ** 0.5  # Student's t, 4 degrees of freedom, 95 %
    mean = float(numbers.mean())
    figure = {"what": what, "value": mean, "unit": "1", "interval": [mean - half, mean + half], **more}
    return figure | ({"met": mean - half > 0} if "target" in more else {})


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        dense = [whole(seed, directory) for seed in SEEDS]
        found = {mask: [accuracies(mask, s, directory) for s in SEEDS] for mask in ("magnitude", "random")}
    tickets, random = ([accuracy for accuracy, _ in found[mask]] for mask in ("magnitude", "random"))
    left = found["magnitude"][0][1]
    record(
        "engine/lottery",
        title=f"Lottery tickets of an MLP 300-100 on digits: {left:.2%} of the weights left after {ROUNDS} "
        f"rounds of {LENGTH} steps, paired over {len(SEEDS)} seeds",
        figures=[
            row(
                "test accuracy of the ticket less that of a random mask of the same sparsity",
                [a - b for a, b in zip(tickets, random, strict=True)],
                target="the paired 95 % interval over 5 seeds lies above 0",
                published="above 0 (Frankle and Carbin 2019, Figures 3 and 4, LeNet-300-100 on MNIST)",
            ),
            row(
                "test accuracy of the ticket less that of the whole network after one round's steps",
                [a - b for a, b in zip(tickets, dense, strict=True)],
                published="about 0 at 3.6 % of the weights (Frankle and Carbin 2019, Section 2)",
            ),
            row("test accuracy of the ticket", tickets),
            row("test accuracy of a random mask", random),
            row("test accuracy of the whole network", dense),
        ],
        seeds=list(SEEDS),
        weights_left=left,
        accuracies={"ticket": tickets, "random": random, "whole": dense},
    )


if __name__ == "__main__":
    main()
