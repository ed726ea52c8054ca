"""Full-batch gradient descent at the edge of stability: the sharpness rises to 2 / eta and hovers there.

Cohen, Kaur, Li, Kolter and Talwalkar (2021), Figure 1: networks trained by full-batch gradient descent at
several rates. Here a tanh MLP on digits with the squared error to the labels' unit vectors, which does not
die down as cross-entropy does once all examples are right.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.record import record
from margin.core.types import Batch, Metrics
from margin.data.sets.bundled import digits
from margin.engine.loop import GradientUpdate, State, descent, fit
from margin.feedforward.mlp.model import layers
from margin.theory.dynamics.edge_of_stability import track

HIDDEN = (64, 64)
SETTINGS = {15: 1500, 20: 2000, 30: 4000}
"""2 / eta, and the steps of a training."""

SEEDS, ROWS = range(3), 40


def squared(model: nn.Module, batch: Batch, generator: Generator) -> Tensor:
    """Half the squared distance of the outputs from the label's unit vector, of each example."""
    outputs = model(*batch.inputs)
    return (outputs - F.one_hot(batch.targets, outputs.shape[1]).to(outputs)).square().sum(1) / 2


def training_part() -> Batch:
    data = digits()
    part = data.splits["train"]
    return Batch((data.preprocess(part.inputs[0].float()).flatten(1),), part.targets)


def trained(limit: float, steps: int, seed: int) -> tuple[list[float], list[float]]:
    """Sharpness over the limit of stability by evaluation, and the losses there."""
    batch = training_part()
    torch.manual_seed(seed)
    model = layers((64, *HIDDEN, 10), activation="tanh")
    state = State({"model": model}, {"": torch.optim.SGD(model.parameters(), lr=2 / limit)}, seed=seed)
    ratios, losses = [], []

    def follow(state: State, metrics: Metrics) -> None:
        if state.step == 1 or state.step % (steps // ROWS) == 0:
            found = track(state, squared, [batch])
            ratios.append(found["sharpness"] / found["stability_limit"])
            losses.append(float(metrics["loss"]))

    fit(state, lambda step: batch, descent(squared, GradientUpdate()), max_steps=steps, hooks=[follow])
    return ratios, losses


def row(limit: float, runs: list[tuple[list[float], list[float]]]) -> dict[str, object]:
    """Where the last third of the evaluations lies, and where the training began."""
    third = [ratios[-(len(ratios) // 3) :] for ratios, _ in runs]
    means = torch.tensor([sum(part) / len(part) for part in third], dtype=torch.float64)
    half = 4.303 * float(means.std()) / len(runs) ** 0.5  # Student's t, 2 degrees of freedom, 95 %
    mean, first = float(means.mean()), max(ratios[0] for ratios, _ in runs)
    low, high = min(map(min, third)), max(map(max, third))
    losses = [losses[-1] for _, losses in runs]
    return {
        "what": f"2 / eta = {limit:g}: sharpness over 2 / eta, mean over the last third of the training "
        f"(there {low:.2f} to {high:.2f}; at the first step at most {first:.2f}; last losses "
        f"{min(losses):.3g} to {max(losses):.3g})",
        "value": mean,
        "unit": "1",
        "interval": [mean - half, mean + half],
        "published": "hovers just above 1 (Cohen et al. 2021, Figure 1)",
        "target": "0.95 to 1.15",
        "met": 0.95 <= mean <= 1.15,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry", action="store_true", help="one seed; print, and record nothing")
    dry = parser.parse_args().dry
    figures, every = [], {}
    for limit, steps in SETTINGS.items():
        runs = [trained(limit, steps, seed) for seed in (SEEDS[:1] if dry else SEEDS)]
        every[f"{limit:g}"] = [{"ratio": ratios, "loss": losses} for ratios, losses in runs]
        if dry:
            print(limit, [f"{r:.2f} {x:.3f}" for r, x in zip(*runs[0], strict=True)], flush=True)
        else:
            figures.append(row(limit, runs))
    if not dry:
        record(
            "theory/edge_of_stability",
            title=f"Sharpness of the training loss over 2 / eta in full-batch gradient descent: a tanh MLP "
            f"{'-'.join(map(str, HIDDEN))} on digits, squared error, {len(SEEDS)} seeds",
            figures=figures,
            seeds=list(SEEDS),
            steps={f"{limit:g}": steps for limit, steps in SETTINGS.items()},
            followed=every,
        )


if __name__ == "__main__":
    main()
